//! An account's usage beside what its clients and servers counted.
//!
//! A relay books what it reads. Of one direction it has read at least what the receiver compared, and at most what the
//! sender sent. Between the two lie heads, framing, and what was on its way when a transfer broke. A kill may lose what
//! was read since the journal was written last, a second before at most. Nothing may be booked twice.
//!
//! A relay of HTTP writes heads and chunks anew, and books them as read or as written, whichever is more: 8 bytes for
//! each piece of a chunked body that it reads. So it may book as much framing as the receiver got on top of what was
//! sent, and as much as may have been on its way to a receiver that broke.

use crate::ledger::Side;
use serde::Serialize;
use std::time::Duration;

/// A journal that is written each second may lack what was read since, and a look at a busy clock.
const SECOND: Duration = Duration::from_secs(1);

/// What kills may have cost a side: what came from a second before each on. What a relay read before it was killed, its
/// clients compare until all that waits for them has been read, which takes so long.
pub(crate) fn may_miss(side: &Side, kills: &[(Duration, Duration)], drains: Duration) -> u64 {
    let around = |(from, to): &(Duration, Duration)| {
        side.between(from.saturating_sub(SECOND), *to + SECOND / 10 + drains)
    };
    kills.iter().map(around).sum()
}

/// One direction of one account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Balance {
    pub(crate) account: &'static str,
    pub(crate) direction: &'static str,
    /// What `ekiden account usage` says.
    pub(crate) booked: u64,
    /// Bytes that the receivers compared.
    pub(crate) received: u64,
    /// Bytes that the senders sent.
    pub(crate) sent: u64,
    /// What may be missing: the seconds before each kill.
    pub(crate) may_miss: u64,
    /// Framing that the relay wrote anew, at most.
    pub(crate) rewritten: u64,
}

impl Balance {
    /// Received and not booked.
    pub(crate) fn missing(&self) -> u64 {
        self.received.saturating_sub(self.booked)
    }

    /// Booked and never sent.
    pub(crate) fn twice(&self) -> u64 {
        self.booked.saturating_sub(self.sent + self.rewritten)
    }

    /// Whether the account is balanced.
    pub(crate) fn holds(&self) -> bool {
        self.missing() <= self.may_miss && self.twice() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::Door;
    use crate::ledger::Ledger;
    use std::time::Instant;

    #[test]
    fn slow_readers_may_miss_what_they_read_long_after_a_kill() {
        let begun = Instant::now().checked_sub(Duration::from_secs(10)).unwrap();
        let ledger = Ledger::new(begun, Duration::from_secs(200));
        // ten seconds after the beginning, and some after the kill
        ledger.down(Door::Slow).on_compared(70);
        let kills = [(Duration::from_secs(5), Duration::from_secs(6))];
        let of = |door: Door| may_miss(ledger.down(Door::Slow), &kills, door.drains());
        assert_eq!([of(Door::Connect), of(Door::Slow)], [0, 70]);
    }

    fn balance(booked: u64) -> Balance {
        let (account, direction) = ("connect", "down");
        let (received, sent, may_miss, rewritten) = (1_000, 1_090, 50, 10);
        Balance { account, direction, booked, received, sent, may_miss, rewritten }
    }

    #[test]
    fn books_lie_between_received_and_sent_but_for_a_second_a_kill() {
        for (booked, holds) in [(949, false), (950, true), (1_000, true), (1_100, true)] {
            assert_eq!(balance(booked).holds(), holds, "{booked}");
        }
        assert_eq!(balance(949).missing(), 51);
    }

    #[test]
    fn a_second_that_is_booked_twice_shows() {
        assert_eq!(balance(1_101).twice(), 1);
        assert!(!balance(1_101).holds());
    }
}
