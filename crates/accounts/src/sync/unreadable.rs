//! Which accounts cannot be read, and when to log it: when that changes, and not more often than
//! lines are read.

use crate::store::UnreadableAccount;
use std::time::{Duration, Instant};

/// The shortest time between two times that it is logged.
const SOME: Duration = Duration::from_secs(10);
/// Accounts that are named each time.
const NAMED: usize = 3;
/// Rows that somebody corrects by hand change no version: they are read again this often.
const AGAIN: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Unreadable {
    accounts: Vec<UnreadableAccount>,
    read: Option<Instant>,
    is_new: bool,
    logged: Option<Instant>,
}

impl Unreadable {
    /// These are all that could not be read at `now`.
    pub(super) fn on_read(&mut self, accounts: Vec<UnreadableAccount>, now: Instant) {
        self.is_new |= accounts != self.accounts;
        (self.accounts, self.read) = (accounts, Some(now));
    }

    pub(super) fn accounts(&self) -> &[UnreadableAccount] {
        &self.accounts
    }

    /// Whether to read all accounts again, though their version did not change.
    pub(super) fn wants(&self, now: Instant) -> bool {
        let last = self.read.is_some_and(|at| now.saturating_duration_since(at) < AGAIN);
        !self.accounts.is_empty() && !last
    }

    /// What to log now: warnings, or that all can be read again.
    pub(super) fn lines(&mut self, now: Instant) -> Vec<Result<String, String>> {
        let waits = self.logged.is_some_and(|at| now.saturating_duration_since(at) < SOME);
        if !self.is_new || waits {
            return Vec::new();
        }
        (self.is_new, self.logged) = (false, Some(now));
        if self.accounts.is_empty() {
            return vec![Ok("all accounts can be read again".to_owned())];
        }
        let named = self.accounts.iter().take(NAMED).map(|account| {
            Err(format!("{account}; it is not served: {}", UnreadableAccount::REMEDY))
        });
        let more = self.accounts.len().saturating_sub(NAMED);
        let more = (more > 0)
            .then(|| Err(format!("{more} more accounts cannot be read, and are not served")));
        named.chain(more).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::AccountId;

    fn unreadable(count: i64) -> Vec<UnreadableAccount> {
        let one = |n: i64| UnreadableAccount {
            id: Some(AccountId(n)),
            name: format!("a{n}"),
            column: "account.attributes",
            why: "no JSON".to_owned(),
            devices: Vec::new(),
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn a_change_is_logged_once_and_names_a_few() {
        let (mut state, start) = (Unreadable::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        state.on_read(unreadable(5), start);
        let lines = state.lines(start);
        assert_eq!(lines.len(), 4);
        let first = lines[0].as_ref().unwrap_err();
        for word in ["\"a0\"", "account.attributes", "not served", "ekiden account remove"] {
            assert!(first.contains(word), "{first}");
        }
        assert!(lines[3].as_ref().unwrap_err().starts_with("2 more"));
        state.on_read(unreadable(5), after(60));
        assert!(state.lines(after(60)).is_empty(), "nothing changed");
        // changes within ten seconds are logged together
        state.on_read(unreadable(1), after(61));
        assert_eq!(state.lines(after(61)).len(), 1);
        state.on_read(Vec::new(), after(62));
        assert!(state.lines(after(62)).is_empty());
        assert_eq!(state.lines(after(71)), [Ok("all accounts can be read again".to_owned())]);
    }

    #[test]
    fn unreadable_accounts_are_read_again_every_half_minute() {
        let (mut state, start) = (Unreadable::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        state.on_read(Vec::new(), start);
        assert!(!state.wants(after(1000)));
        state.on_read(unreadable(1), after(1000));
        assert!(!state.wants(after(1029)) && state.wants(after(1030)));
    }
}
