//! A client whose account has used up its volume and is cut: it may read the page that says so, and nothing else.

use super::http::forward;
use super::tls;
use crate::policy::quota::NotAdmitted;
use crate::session::{Session, within};
use crate::transfer::buffered::BufferedStream;
use ekiden_linux::host::sync::locked;
use std::sync::{Arc, Mutex};

/// Connections at a time of one account that may read it; one with TLS counts twice. Others are refused at once.
const OF_AN_ACCOUNT: usize = 8;
/// And of all accounts.
const OF_ALL: usize = 256;

/// The account of each connection that may read it now.
static READERS: Mutex<Vec<Arc<str>>> = Mutex::new(Vec::new());

struct Reader<'a>(&'a str);

impl<'a> Reader<'a> {
    fn enter(account: &'a Arc<str>) -> Option<Self> {
        let mut readers = locked(&READERS);
        let own = readers.iter().filter(|reader| *reader == account).count();
        if readers.len() >= OF_ALL || own >= OF_AN_ACCOUNT {
            return None;
        }
        readers.push(Arc::clone(account));
        Some(Self(account))
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let mut readers = locked(&READERS);
        let own = readers.iter().position(|reader| **reader == *self.0);
        own.map(|at| readers.swap_remove(at));
    }
}

/// Reads one request head, within TLS or not, and answers or refuses it.
pub(super) async fn serve(session: &Session, account: &Arc<str>, not: &NotAdmitted) {
    let Some(_reader) = Reader::enter(account) else {
        return session.refuse_by_account(not).await;
    };
    let timeouts = &session.config.settings.timeouts;
    let mut first = [0];
    let peeked = within(timeouts.first_byte, session.client.peek(&mut first));
    if !matches!(session.unless_stopping(peeked).await, Some(Ok(1..))) {
        return session.count_and_log_refusal(&not.to_string());
    }
    let client = BufferedStream::new(Arc::clone(&session.client), Vec::new());
    match first {
        [4 | 5] => session.refuse_by_account(not).await,
        [tls::FIRST_BYTE] if session.config.certificate.is_some() && session.tls.is_none() => {
            // the handshake, and then the head
            let limit = 2 * std::time::Duration::from(timeouts.request_head);
            let _ = tokio::time::timeout(limit, Box::pin(tls::serve(session, client))).await;
        }
        [tls::FIRST_BYTE] => session.refuse_by_account(not).await,
        _ => Box::pin(forward::serve_spent(session, client, not)).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_few_readers_and_leaves_slots_to_others() {
        let (one, other) = (Arc::from("readers-1"), Arc::from("readers-2"));
        let mut readers: Vec<_> = (0..OF_AN_ACCOUNT).map(|_| Reader::enter(&one)).collect();
        assert!(readers.iter().all(Option::is_some));
        assert!(Reader::enter(&one).is_none() && Reader::enter(&other).is_some());
        readers.pop();
        assert!(Reader::enter(&one).is_some());
    }
}
