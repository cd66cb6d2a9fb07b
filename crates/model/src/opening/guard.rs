//! How often a destination may be sent a SYN that nothing was lost for.

use super::table::{Prefix, Table};
use crate::units::{Share, Span, Time};
use core::net::IpAddr;

/// One extra SYN at most per destination in this time (ALGORITHMS §D.6, 3).
pub const INTERVAL: Span = Span::from_secs(1);

/// None at all where less than this of recent handshakes was lost (§D.6, 3): 1 %.
pub const LEAST_LOSS: Share = match Share::from_percent(1) {
    Some(share) => share,
    None => Share::NONE,
};

/// Who was sent an extra SYN lately. A destination here is its [`Prefix`]: stricter than by address, and
/// whoever has many addresses does not get many.
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

    /// Whether one may be sent to `address` now, of whose recent handshakes `loss` was lost; what is
    /// granted is taken for sent.
    #[must_use]
    pub fn grant(&mut self, now: Time, address: IpAddr, loss: Share) -> bool {
        if loss < LEAST_LOSS {
            return false;
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
        assert!(!guard.grant(at(0), here, below));
        assert!(guard.grant(at(0), here, LEAST_LOSS));
        assert!(!guard.grant(at(999), here, Share::ALL));
        assert!(!guard.grant(at(999), near, Share::ALL), "the same destination");
        assert!(guard.grant(at(999), far, Share::ALL));
        assert!(guard.grant(at(1000), near, Share::ALL));
    }
}
