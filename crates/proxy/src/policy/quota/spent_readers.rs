//! Who may read the page that says that a volume is used up.

use ekiden_linux::host::sync::locked;
use std::sync::{Arc, Mutex};

/// Connections at a time of one account that may read why it is cut; one with TLS counts twice. Others are refused at once.
const OF_AN_ACCOUNT: usize = 8;
/// And of all accounts.
const OF_ALL: usize = 256;

/// The accounts that have a connection by which one may read it now, once for each.
#[derive(Debug, Default)]
pub(crate) struct SpentReaders(Mutex<Vec<Arc<str>>>);

impl SpentReaders {
    pub(crate) fn enter<'a>(&'a self, account: &'a str) -> Option<Reader<'a>> {
        let mut readers = locked(&self.0);
        let own = readers.iter().filter(|reader| ***reader == *account).count();
        if readers.len() >= OF_ALL || own >= OF_AN_ACCOUNT {
            return None;
        }
        readers.push(account.into());
        Some(Reader { readers: self, account })
    }
}

#[derive(Debug)]
pub(crate) struct Reader<'a> {
    readers: &'a SpentReaders,
    account: &'a str,
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let mut readers = locked(&self.readers.0);
        let own = readers.iter().position(|reader| **reader == *self.account);
        own.map(|at| readers.swap_remove(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_few_readers_and_leaves_slots_to_others() {
        let all = SpentReaders::default();
        let mut readers: Vec<_> = (0..OF_AN_ACCOUNT).map(|_| all.enter("one")).collect();
        assert!(readers.iter().all(Option::is_some));
        assert!(all.enter("one").is_none() && all.enter("other").is_some());
        readers.pop();
        assert!(all.enter("one").is_some());
    }
}
