//! After a pause on a line that others use: half the rate until the path has proved itself
//! (algorithms/satellite E.4, E.10).
//!
//! Others may have started meanwhile, and routes change. A pause is longer than two round trips and
//! a second (as RFC 5681 §4.1). The next burst begins at half the rate for one round trip (two
//! after 10 s), until its first packets are evaluated (RFC 9959's "unvalidated" phase, for a rate).
//! No credit accumulates: the pacer's slack is two packets.
//!
//! Where the path has given all that was sent for ten minutes, the rate is that which was agreed for this
//! line, and a pause changes nothing: a page that begins at half of it comes a round trip later.

use super::Epoch;
use crate::units::{Span, Time};

/// Knowledge of the path is stale after this (E.4's T_stale).
const STALE: Span = Span::from_secs(10);
/// A line on which no queue and no losses beyond its own were seen for so long has no others on it: as long as RTT_min
/// is remembered (E.4).
pub(super) const OTHERS: Span = Span::from_secs(600);
/// The shortest pause: RFC 6298's minimum time-out. On short paths E.4's two round trips are less.
const BREATH: Span = Span::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Idle {
    /// Half the rate or more, until then.
    Busy(Time),
    /// Less, since then.
    Resting(Time),
    /// A burst began then, and is sent at half the rate until the other time.
    Resuming(Time, Time),
}

impl Idle {
    pub(super) const fn halves(self) -> bool {
        !matches!(self, Self::Busy(_))
    }

    /// A round trip of a burst has passed, so that its first packets are acknowledged.
    pub(super) fn is_validated(self, now: Time, rtt: Span) -> bool {
        matches!(self, Self::Resuming(since, _) if now.since(since) >= rtt)
    }

    /// An epoch is over; `full` is whether bytes waited during it.
    pub(super) fn on_epoch(&mut self, now: Time, epoch: &Epoch, full: bool, rtt: Span) {
        let pause = rtt.saturating_mul(2).max(BREATH);
        *self = match *self {
            Self::Busy(_) if full && now.since(epoch.ends) <= pause => Self::Busy(epoch.ends),
            Self::Busy(until) => {
                let until = if full { epoch.ends } else { until };
                match now.since(until) > pause {
                    true => Self::Resting(until),
                    false => Self::Busy(until),
                }
            }
            Self::Resting(since) if full => {
                let rounds = if epoch.begun.since(since) > STALE { 2 } else { 1 };
                Self::Resuming(epoch.begun, epoch.begun + rtt.saturating_mul(rounds))
            }
            Self::Resuming(_, until) if full && until <= now => Self::Busy(epoch.ends),
            Self::Resuming(since, _) if !full => Self::Resting(since),
            same => same,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::epoch::EpochPurpose;
    use super::*;
    use crate::testing::*;

    const RTT: Span = Span::from_millis(600);

    /// An epoch of 150 ms that ends at `ms`, looked at then.
    fn epoch(idle: &mut Idle, ms: u64, full: bool) {
        let epoch = Epoch::new(at(ms - 150), at(ms), EpochPurpose::Hold, 1e6);
        idle.on_epoch(at(ms), &epoch, full, RTT);
    }

    #[test]
    fn short_pause_changes_nothing() {
        let mut idle = Idle::Busy(at(0));
        epoch(&mut idle, 1_150, false);
        epoch(&mut idle, 1_300, true);
        assert_eq!(idle, Idle::Busy(at(1_300)));
    }

    #[test]
    fn after_a_pause_half_is_sent_for_a_round_trip_and_for_two_after_a_long_one() {
        for (pause, rest) in [(9_000, 600), (11_000, 1_200)] {
            let mut idle = Idle::Busy(at(0));
            epoch(&mut idle, pause, false);
            assert!(idle.halves());
            let begun = pause + 50;
            epoch(&mut idle, begun + 150, true);
            assert_eq!(idle, Idle::Resuming(at(begun), at(begun + rest)));
            epoch(&mut idle, begun + rest - 1, true);
            assert!(idle.halves());
            epoch(&mut idle, begun + rest, true);
            assert!(!idle.halves(), "{pause}");
        }
    }

    #[test]
    fn early_end_of_a_burst_proves_nothing() {
        let mut idle = Idle::Resting(at(0));
        epoch(&mut idle, 5_000, true);
        epoch(&mut idle, 5_150, false);
        assert_eq!(idle, Idle::Resting(at(4_850)));
    }

    /// The driver did not ask for long: the epoch was full, and long ago.
    #[test]
    fn silence_after_a_full_epoch_is_a_pause() {
        let mut idle = Idle::Busy(at(0));
        let full = Epoch::new(at(100), at(250), EpochPurpose::Hold, 1e6);
        idle.on_epoch(at(60_000), &full, true, RTT);
        assert_eq!(idle, Idle::Resting(at(250)));
    }
}
