//! Interactive data is sent once more a little later, as a datagram: a loss then costs no round trip. All else
//! that is lost quinn-proto sends again.

use super::{ScheduledCopy, Tunnel};
use bytes::Bytes;
use ekiden_model::units::{Span, Time};

/// The quickest repair by the peer's acknowledgement is quicker than a copy on paths shorter than this.
const COPY_FROM: Span = Span::from_millis(40);
/// δ, the delay of a copy: a sixteenth of the round trip, so that two copies and their answers'
/// stay well below a second one, yet beyond a burst of losses where possible (algorithms/satellite
/// E.2: up to 19 packets, 57 ms at 4 Mbit/s).
const COPY_AFTER: (Span, Span) = (Span::from_millis(5), Span::from_millis(40));
/// Above this loss a second copy follows, as long after the first. At 5 % one of 400 pairs is lost,
/// and each holds up a round trip's keystrokes.
pub(super) const COPY_AGAIN: f64 = 0.005;
/// Copies' part of the rate, so that many who type at once do not crowd out what they copy.
const PART: u64 = 4;

/// What copies may still take of the rate: bytes, earned over a second at most.
#[derive(Debug)]
pub(super) struct CopyBudget {
    left: u64,
    since: Time,
}

impl CopyBudget {
    pub(super) const fn new(now: Time) -> Self {
        Self { left: u64::MAX, since: now }
    }

    /// Takes so many bytes at a rate in bytes per second; `false` where too few are left.
    fn take(&mut self, now: Time, bytes: u64, rate: u64) -> bool {
        let nanos = now.since(self.since).min(Span::from_secs(1)).as_nanos();
        let earned = u128::from(rate / PART) * u128::from(nanos) / 1_000_000_000;
        let earned = u64::try_from(earned).unwrap_or(u64::MAX);
        if earned > 0 {
            self.since = now;
        }
        self.left = self.left.saturating_add(earned).min(rate / PART);
        let fits = bytes <= self.left;
        self.left -= if fits { bytes } else { 0 };
        fits
    }
}

impl Tunnel {
    pub(super) fn copy(&mut self, now: Time, bytes: Bytes) {
        let Some(rtt) = self.rtt().filter(|rtt| *rtt >= COPY_FROM) else { return };
        let after = Span::from_nanos(rtt.as_nanos() / 16).clamp(COPY_AFTER.0, COPY_AFTER.1);
        let again = self.lately > COPY_AGAIN;
        let rate = self.hold.rate().as_bytes_per_second();
        for (queue, nth) in self.copies.iter_mut().zip(1..=1 + u64::from(again)) {
            if !self.copy_budget.take(now, bytes.len() as u64, rate) {
                break;
            }
            let due = now + after.saturating_mul(nth);
            // in order, though the round trip changes
            let due = queue.back().map_or(due, |last: &ScheduledCopy| last.due.max(due));
            queue.push_back(ScheduledCopy { due, bytes: bytes.clone() });
        }
    }

    pub(super) fn send_due_copies(&mut self, now: Time) {
        for queue in &mut self.copies {
            while let Some(copy) = queue.pop_front_if(|copy| copy.due <= now) {
                let Some(lane) = self.lanes[0].as_mut().filter(|lane| lane.connected) else {
                    continue;
                };
                let length = copy.bytes.len() as u64;
                if lane.send_datagram(copy.bytes) {
                    self.counts.copies += 1;
                    self.counts.copied += length;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// In any time no more than a quarter of the rate is copied, and of a second before.
        #[test]
        fn copies_keep_to_their_part(
            rate in 1_000_u64..10_000_000,
            asked in prop::collection::vec((0_u64..2_000_000, 0_u64..3_000), 1..200),
        ) {
            let mut budget = CopyBudget::new(Time::ZERO);
            let (mut now, mut copied) = (Time::ZERO, 0);
            for (micros, bytes) in asked {
                now += Span::from_micros(micros);
                copied += if budget.take(now, bytes, rate) { bytes } else { 0 };
                let seconds = now.since(Time::ZERO).as_secs_f64() + 1.0;
                prop_assert!(copied as f64 <= rate as f64 / PART as f64 * seconds);
            }
        }
    }
}
