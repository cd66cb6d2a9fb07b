//! How often a destination may be sent a SYN that nothing was lost for.

use super::plan::SynKind;
use super::table::{Prefix, Table};
use crate::units::{Share, Span, Time};
use core::net::IpAddr;

/// One SYN at most that is not backed by losses per destination in this time (algorithms/asymmetric D.6, 3).
pub const INTERVAL: Span = Span::from_secs(1);

/// No second SYN at all where less than this of recent handshakes was lost (§D.6, 3): 1 %.
pub const LEAST_LOSS: Share = match Share::from_percent(1) {
    Some(share) => share,
    None => Share::NONE,
};

/// Destinations ([`Prefix`]es) that recently got an extra SYN. One guard serves all legs.
///
/// | | less than 1 % lost | more |
/// |---|---|---|
/// | [`SynKind::Second`] | never | once a second |
/// | [`SynKind::Repeat`] | once a second | always |
///
/// A repetition follows a time-out, which is reason enough where handshakes are lost. Where none
/// are, the round trip has more likely grown, and one SYN a second finds that out.
#[derive(Debug, Clone)]
pub struct Guard {
    granted: Table<Time>,
}

impl Guard {
    /// Remembers `entries` destinations; one that it has no room to remember gets no extra SYN.
    pub fn new(entries: usize) -> Self {
        Self { granted: Table::new(entries) }
    }

    /// Whether an extra SYN may go to `address` now, given its handshake `loss`; a permitted one
    /// counts.
    #[must_use]
    pub fn grant(&mut self, now: Time, address: IpAddr, kind: SynKind, loss: Share) -> bool {
        match (kind, loss >= LEAST_LOSS) {
            (SynKind::First, _) | (SynKind::Repeat, true) => return true,
            (SynKind::Second, false) => return false,
            (SynKind::Second, true) | (SynKind::Repeat, false) => {}
        }
        let prefix = Prefix::of(address);
        let over = |last: &Time| now >= *last + INTERVAL;
        if self.granted.get(prefix).is_some_and(|last| !over(last)) {
            return false;
        }
        match self.granted.touch(now, prefix, over, || now) {
            Some(last) => {
                *last = now;
                true
            }
            None => false,
        }
    }

    /// The most destinations remembered.
    pub const fn capacity(&self) -> usize {
        self.granted.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_a_second_and_only_where_something_is_lost() {
        let mut guard = Guard::new(16);
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let [here, near, far] = ["192.0.2.1", "192.0.2.2", "192.0.3.1"].map(|a| a.parse().unwrap());
        let below = Share::from_parts_per_billion(9_999_999).unwrap();
        let mut second = |ms, to, loss| guard.grant(at(ms), to, SynKind::Second, loss);
        assert!(!second(0, here, below));
        assert!(second(0, here, LEAST_LOSS));
        assert!(!second(999, here, Share::ALL));
        assert!(!second(999, near, Share::ALL), "the same destination");
        assert!(second(999, far, Share::ALL));
        assert!(second(1000, near, Share::ALL));
    }

    #[test]
    fn longer_round_trips_limit_repeats_to_one_a_second() {
        let mut guard = Guard::new(16);
        let here: IpAddr = "192.0.2.1".parse().unwrap();
        let mut repeats = |ms, loss| {
            let now = Time::ZERO + Span::from_millis(ms);
            (0..30).filter(|_| guard.grant(now, here, SynKind::Repeat, loss)).count()
        };
        let below = Share::from_parts_per_billion(9_999_999).unwrap();
        assert_eq!([repeats(0, below), repeats(400, below), repeats(1000, below)], [1, 0, 1]);
        assert_eq!(repeats(1001, LEAST_LOSS), 30, "what is lost is repeated");
    }
}
