//! What an account with a quota may use, and what it is told after that.

use super::{Break, Door, Window};
use crate::faults::Kind;
use serde::Serialize;
use std::time::Duration;

/// After its first refusal an account has used all, though a kill or a database that was away gave it some more to use.
const SETTLED: Duration = Duration::from_secs(120);
/// Clients of an account that is cut are refused so often at least: their link is away for less.
const OFTEN: Duration = Duration::from_secs(60);
/// A relay that its database was away from asks again by then.
const ASKS_AGAIN: Duration = Duration::from_secs(30);

/// Refusals of an account whose quota is used up: when, since the traffic began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Refusals {
    pub(crate) first: Option<Duration>,
    pub(crate) last: Option<Duration>,
    pub(crate) times: u64,
}

impl Refusals {
    /// One more.
    pub(crate) fn on_refused(&mut self, now: Duration) {
        self.first = self.first.or(Some(now));
        self.last = Some(now);
        self.times += 1;
    }
}

/// A quota, what was used of it, and refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct QuotaUse {
    pub(crate) quota: u64,
    /// What `ekiden account usage` says, both directions.
    pub(crate) used: u64,
    pub(crate) refusals: Refusals,
}

impl QuotaUse {
    /// What does not hold at the end of a run of this length, each in a sentence.
    pub(crate) fn faults(&self, length: Duration) -> Vec<String> {
        let Self { quota, used, refusals } = *self;
        let mut faults = Vec::new();
        if used > quota {
            faults.push(format!("{used} bytes were used of a quota of {quota}"));
        }
        if refusals.first.is_some_and(|first| first + SETTLED <= length) {
            if used < quota {
                faults.push(format!("the quota's account was cut at {used} of {quota} bytes"));
            }
            if let Some(last) = refusals.last.filter(|last| *last + OFTEN < length) {
                faults.push(format!("the quota's account was refused last at {last:.1?}"));
            }
        }
        faults
    }
}

/// Whether a relay may have cut the account early: with its database away it passes what it was granted, and no more.
pub(super) fn cuts_early(window: &Window, broken: &Break) -> bool {
    broken.door == Door::Quota
        && window.kind == Kind::DatabaseAway
        && window.from <= broken.to
        && broken.to <= window.over + ASKS_AGAIN
}

#[cfg(test)]
mod tests {
    use super::super::tests::second;
    use super::*;

    fn of(used: u64, first: u64, last: u64) -> usize {
        let (first, last) = (Some(second(first)), Some(second(last)));
        let refusals = Refusals { first, last, times: 9 };
        QuotaUse { quota: 1_000, used, refusals }.faults(second(600)).len()
    }

    #[test]
    fn a_quota_is_used_to_the_byte_once_it_refuses() {
        assert_eq!([of(1_000, 300, 599), of(999, 300, 599), of(1_001, 300, 599)], [0, 1, 1]);
        // a kill just before the end gave some more, which is not used yet
        assert_eq!([of(999, 500, 599), of(1_001, 500, 599)], [0, 1]);
        let none = QuotaUse { quota: 1_000, used: 400, refusals: Refusals::default() };
        assert_eq!(none.faults(second(600)), Vec::<String>::new());
    }

    #[test]
    fn an_account_that_is_served_after_its_quota_is_found() {
        assert_eq!([of(1_000, 300, 540), of(1_000, 300, 539)], [0, 1]);
    }

    #[test]
    fn refusals_are_noted_from_the_first_to_the_last() {
        let mut refusals = Refusals::default();
        for now in [5, 7, 9] {
            refusals.on_refused(second(now));
        }
        let (first, last) = (Some(second(5)), Some(second(9)));
        assert_eq!(refusals, Refusals { first, last, times: 3 });
    }
}
