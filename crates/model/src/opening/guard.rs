//! How often a destination may be sent a SYN that nothing was lost for.

use super::plan::Kind;
use super::table::{Prefix, Table};
use crate::units::{Share, Span, Time};
use core::net::IpAddr;

/// One SYN at most that is not backed by losses per destination in this time (ALGORITHMS §D.6, 3).
pub const INTERVAL: Span = Span::from_secs(1);

/// No second SYN at all where less than this of recent handshakes was lost (§D.6, 3): 1 %.
pub const LEAST_LOSS: Share = match Share::from_percent(1) {
    Some(share) => share,
    None => Share::NONE,
};

/// Who was sent an extra SYN lately. A destination here is its [`Prefix`]: stricter than by address, and
/// whoever has many addresses does not get many.
///
/// | | less than 1 % lost | more |
/// |---|---|---|
/// | [`Kind::Second`] | never | once a second |
/// | [`Kind::Repeat`] | once a second | always |
///
/// A repetition is due because a time-out has passed. Where handshakes are lost that is reason enough, as
/// it is for the kernel. Where none are, it is more likely that the round trip has grown: then one a second
/// finds out, and many that open at once do not all send for nothing.
///
/// One guard stands before all legs, so that two that lead to the same place do not send twice as much.
#[derive(Debug, Clone)]
pub struct Guard {
    granted: Table<Time>,
}

impl Guard {
    /// A guard that remembers `entries` destinations. Where it has no room to remember one, that gets
    /// nothing.
    #[must_use]
    pub fn new(entries: usize) -> Self {
        Self { granted: Table::new(entries) }
    }

    /// Whether one may be sent to `address` now, of whose recent handshakes `loss` is held to be lost;
    /// what is granted is taken for sent.
    #[must_use]
    pub fn grant(&mut self, now: Time, address: IpAddr, kind: Kind, loss: Share) -> bool {
        match (kind, loss >= LEAST_LOSS) {
            (Kind::First, _) | (Kind::Repeat, true) => return true,
            (Kind::Second, false) => return false,
            (Kind::Second, true) | (Kind::Repeat, false) => {}
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
    #[must_use]
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
        let mut second = |ms, to, loss| guard.grant(at(ms), to, Kind::Second, loss);
        assert!(!second(0, here, below));
        assert!(second(0, here, LEAST_LOSS));
        assert!(!second(999, here, Share::ALL));
        assert!(!second(999, near, Share::ALL), "the same destination");
        assert!(second(999, far, Share::ALL));
        assert!(second(1000, near, Share::ALL));
    }

    #[test]
    fn a_crowd_whose_round_trip_has_grown_repeats_once_a_second() {
        let mut guard = Guard::new(16);
        let here: IpAddr = "192.0.2.1".parse().unwrap();
        let mut repeats = |ms, loss| {
            let now = Time::ZERO + Span::from_millis(ms);
            (0..30).filter(|_| guard.grant(now, here, Kind::Repeat, loss)).count()
        };
        let below = Share::from_parts_per_billion(9_999_999).unwrap();
        assert_eq!([repeats(0, below), repeats(400, below), repeats(1000, below)], [1, 0, 1]);
        assert_eq!(repeats(1001, LEAST_LOSS), 30, "what is lost is repeated");
    }
}
