//! Accounts whose time zone this system does not know: each is logged once.

use crate::account::{Account, AccountId};
use crate::period::BadPeriod;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Accounts that are named each time.
const NAMED: usize = 3;

/// Such accounts as they were the last time, with their zones.
#[derive(Debug, Default)]
pub(super) struct UnknownZones(BTreeMap<AccountId, String>);

impl UnknownZones {
    /// What to log now that these are all accounts.
    pub(super) fn lines<'a>(
        &mut self,
        accounts: impl Iterator<Item = &'a Arc<Account>>,
    ) -> Vec<String> {
        let before = std::mem::take(&mut self.0);
        let (mut lines, mut more) = (Vec::new(), 0_usize);
        for account in accounts {
            let Err(bad @ BadPeriod::Zone(_)) = account.attributes.calendar() else { continue };
            let (name, zone) = (&account.name, account.attributes.zone.clone());
            match before.get(&account.id) == Some(&zone) {
                true => {}
                false if lines.len() < NAMED => lines.push(format!(
                    "account \"{name}\": {bad}; its periods, hours and last day are those of UTC"
                )),
                false => more += 1,
            }
            self.0.insert(account.id, zone);
        }
        if more > 0 {
            lines.push(format!("{more} more accounts have a time zone that is not known here"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Attributes;

    fn accounts(zones: &[&str]) -> Vec<Arc<Account>> {
        let account = |(n, zone): (i64, &&str)| {
            let attributes = Attributes { zone: (*zone).to_owned(), ..Attributes::default() };
            let (id, name) = (AccountId(n), format!("a{n}"));
            Arc::new(Account { id, name, devices: Vec::new(), attributes })
        };
        (0..).zip(zones).map(account).collect()
    }

    #[test]
    fn an_unknown_zone_is_logged_once_for_each_account() {
        let mut zones = UnknownZones::default();
        let mut lines = |all: &[&str]| zones.lines(accounts(all).iter());
        assert!(lines(&["UTC", "Asia/Tokyo"]).is_empty());
        let first = lines(&["UTC", "Mars/Base"]);
        assert_eq!(first.len(), 1);
        assert!(first[0].starts_with("account \"a1\": \"Mars/Base\" is not"), "{first:?}");
        assert!(first[0].ends_with("those of UTC"), "{first:?}");
        assert!(lines(&["UTC", "Mars/Base"]).is_empty());
        // another account, and another zone of the same one
        assert_eq!(lines(&["Mars/Base", "Mars/Base"]).len(), 1);
        assert_eq!(lines(&["Mars/Base", "Mars/Camp"]).len(), 1);
        // and many at once
        let many = lines(&["Venus/Base"; 9]);
        assert_eq!(many.len(), 4);
        assert!(many[3].starts_with("6 more accounts"), "{many:?}");
    }
}
