//! A line that gets faster while a queue stands (algorithms/satellite E.4).
//!
//! Over a standing queue the arrival rate is the line's, whatever is sent. After a fade the queue
//! that it left drains at the new rate, which is measured before a train could.

use super::{EpochPurpose, FEW, RateHold, seconds};
use crate::units::{Span, Time};

/// Arrivals are counted over this, or a sixth of a round trip if longer: some acknowledgements are
/// late by 20 ms and more.
const LEAST: Span = Span::from_millis(100);
const SHARE: u64 = 6;
/// A change that a flow beside would not cause; trains and reactions see smaller ones.
const CHANGE: f64 = 2.5;

/// Packets in a row that found a queue.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StandingQueue {
    packets: u64,
    since: Time,
    bytes: u64,
    /// The rate of the count before.
    before: Option<f64>,
}

impl RateHold {
    /// A packet arrived. Two counts in a row are believed: acknowledgements that were held up on
    /// their way come together.
    pub(super) fn on_standing(&mut self, now: Time, bytes: u64, rtt: Span) {
        let (Some(line), Some(base)) = (self.line, self.base) else {
            self.standing = StandingQueue::default();
            return;
        };
        if rtt <= base + self.tolerated() || self.is_contended() {
            self.standing = StandingQueue::default();
            return;
        }
        let standing = &mut self.standing;
        if standing.packets == 0 {
            standing.since = now;
        } else {
            standing.bytes += bytes;
        }
        standing.packets += 1;
        let span = now.since(standing.since);
        if standing.packets <= FEW || span < LEAST.max(Span::from_nanos(base.as_nanos() / SHARE)) {
            return;
        }
        let rate = standing.bytes as f64 * 8.0 / seconds(span);
        let before = standing.before;
        *standing = StandingQueue { packets: 1, since: now, bytes: 0, before: Some(rate) };
        let Some(before) = before else { return };
        let own = 1.0 - self.loss;
        let (rate, most) = (before.min(rate) / own, before.max(rate) / own);
        if rate > CHANGE * line {
            self.late = super::LateArrivals::default();
            self.line = Some(rate).filter(|rate| *rate < self.allotted());
            self.trains.calm(now, now);
            if self.line.is_none() {
                self.reaction = None;
            }
            self.begin(now, EpochPurpose::Hold);
        } else if self.reaction.is_some() && most * CHANGE < line {
            // slower still; without a reaction that is for `on_late` to see
            self.line = Some(rate.max(self.least()));
            self.begin(now, EpochPurpose::Hold);
            self.reacted = self.sending();
        }
    }
}
