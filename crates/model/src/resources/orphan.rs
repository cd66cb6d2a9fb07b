//! How long a flow may live on whose owner has left, while bytes of it wait that the far end does not take.
//!
//! The kernel has the same case: a closed socket with unsent bytes is an *orphan*, and ends when its peer takes nothing
//! for long (`tcp_orphan_retries` of Linux). Nobody else would end such a flow, because its owner's idle time-outs went
//! with the owner.
//!
//! An orphan may spend [`PATIENCE`] without progress. Bytes sent give it time back, a second for each [`LEAST_RATE`],
//! up to [`PATIENCE`]. So a receiver that takes bytes in portions, or slowly, gets all of them. One that takes a byte now
//! and then does not keep the flow: with `n` bytes left behind it ends after `PATIENCE + n / LEAST_RATE` at the latest.
//! Time in which the flow waits for its turn on this side's own line does not count.

use crate::units::{Span, Time};

/// Time without progress: the kernel's `tcp_fin_timeout`.
pub const PATIENCE: Span = Span::from_secs(60);

/// Bytes a second that a receiver takes at the least, on average beyond [`PATIENCE`]: less than the slowest modems.
/// What a flow may leave behind, 256 KiB, takes 17 minutes at this rate.
pub const LEAST_RATE: u64 = 256;

/// A flow without an owner, from when that left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orphan {
    patience: Span,
    /// Since then its patience is used up.
    since: Time,
}

impl Orphan {
    /// Its owner leaves now.
    pub const fn new(now: Time) -> Self {
        Self { patience: PATIENCE, since: now }
    }

    /// So many bytes of it were sent since the last call. Called before [`Self::on_deadline`] of the same time.
    pub fn on_sent(&mut self, now: Time, bytes: u64) {
        let earned = Span::from_secs(1).saturating_mul(bytes).as_nanos() / LEAST_RATE;
        let most = (self.patience + Span::from_nanos(earned)).min(PATIENCE).as_nanos();
        self.patience = Span::from_nanos(most.saturating_sub(now.since(self.since).as_nanos()));
        self.since = now;
    }

    /// Since the last call it might have been sent, and the line was busy with others.
    pub const fn on_queued(&mut self, now: Time) {
        self.since = now;
    }

    /// When it ends if the far end takes nothing more.
    pub fn deadline(&self) -> Time {
        self.since + self.patience
    }

    /// Whether it ends now.
    pub fn on_deadline(&self, now: Time) -> bool {
        now >= self.deadline()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn secs(n: u64) -> Time {
        Time::ZERO + Span::from_secs(n)
    }

    #[test]
    fn an_orphan_that_makes_no_progress_ends_after_its_patience() {
        let orphan = Orphan::new(secs(5));
        assert_eq!(orphan.deadline(), secs(65));
        assert!(!orphan.on_deadline(secs(64)) && orphan.on_deadline(secs(65)));
    }

    #[test]
    fn time_in_the_queue_of_this_side_does_not_count() {
        let mut orphan = Orphan::new(secs(0));
        assert!((1..10_000).all(|second| {
            orphan.on_queued(secs(second));
            !orphan.on_deadline(secs(second + 59))
        }));
        // what counted before still counts
        let mut orphan = Orphan::new(secs(0));
        orphan.on_sent(secs(50), 0);
        orphan.on_queued(secs(80));
        assert_eq!(orphan.deadline(), secs(90));
    }

    #[test]
    fn a_slow_receiver_keeps_it_and_one_of_single_bytes_does_not() {
        // a portion of 16 KiB every 50 s
        let mut slow = Orphan::new(secs(0));
        assert!((1..1_000).all(|nth| {
            slow.on_sent(secs(nth * 50), 16_384);
            !slow.on_deadline(secs(nth * 50))
        }));
        let mut trickle = Orphan::new(secs(0));
        let end = (1..1_000).find(|nth| {
            trickle.on_sent(secs(*nth), 1);
            trickle.on_deadline(secs(*nth))
        });
        assert_eq!(end, Some(61));
    }

    proptest! {
        /// Whatever the far end takes, and when: the time that counts is bounded by the bytes, and one that takes
        /// [`LEAST_RATE`] in each pause keeps the flow.
        #[test]
        fn time_without_an_owner_is_bounded_by_the_bytes_left(
            steps in prop::collection::vec((0_u64..70_000, 0_u64..20_000, any::<bool>()), 1..200),
        ) {
            let mut orphan = Orphan::new(Time::ZERO);
            let (mut now, mut counted, mut sent, mut steady) = (Time::ZERO, Span::ZERO, 0, true);
            for (millis, bytes, queued) in steps {
                let pause = Span::from_millis(millis);
                if queued {
                    now += pause;
                    orphan.on_queued(now);
                    continue;
                }
                now += pause;
                orphan.on_sent(now, bytes);
                steady &= bytes * 1_000 >= LEAST_RATE * millis && pause < PATIENCE;
                prop_assert!(!steady || !orphan.on_deadline(now));
                if orphan.on_deadline(now) {
                    return Ok(());
                }
                counted += pause;
                sent += bytes;
                let most = PATIENCE + Span::from_secs(1 + sent / LEAST_RATE);
                prop_assert!(counted <= most, "{counted} {sent}");
            }
        }
    }
}
