//! Trains: a few packets faster than the estimate, whose arrivals measure the line
//! (algorithms/satellite E.4).
//!
//! A train is sent at twice the estimate, and again a little later, because a late acknowledgement
//! makes the rest of its train look fast; the lesser result counts. A pair that passes as it was
//! sent says only that the line is faster, and the next pair leaves at once at four times the new
//! estimate. So an estimate that is a thousandth of the line's rate takes five pairs. The cap of
//! bytes in flight makes room for a train; else a line that is thin and long could not be beaten.
//! After a pair as much less is sent as it was more.

use super::epoch::{Epoch, EpochPurpose};
use super::{PACKET, RateHold, seconds};
use crate::units::{Span, Time};

/// Packets that make a train.
pub(super) const FEW: u64 = 5;
/// A train has one more, because one may be lost.
const PACKETS: f64 = 6.0;
/// A train that is known of nothing, and one after a pair that passed as it was sent.
const TWICE: f64 = 2.0;
const AGAIN: f64 = 4.0;
/// Trains are no slower: then packets take longer than acknowledgements are held back, and a
/// faster train puts no more packets into the queue.
const SLOWEST: f64 = 1e6;
/// Share of the tolerated queue that a train at twice the rate takes, were the line no faster.
const TAKES: f64 = 0.6;
/// Seconds of a train that is little faster than the estimate, which takes longer to see.
const LONGEST: f64 = 0.5;
/// Share of the estimate after a train.
pub(super) const REST: f64 = 0.5;
/// The longest rest, so that a line that gets faster meanwhile is found soon.
const REST_MOST: f64 = 2.0;
/// Round trips before a train is repeated that found nothing.
const APART: u64 = 3;
/// A result below this multiple of the estimate is none.
const MORE: f64 = 1.05;
/// Arrivals at this share of a train's rate: acknowledgements are held back for up to a third of
/// the shortest train.
const PASSED: f64 = 0.7;
/// The same where a train went at the allotment, which is the most that can be seen.
const WHOLE: f64 = 0.95;

#[derive(Debug, Clone, Copy)]
pub(super) struct Trains {
    /// When the next one may leave.
    pub(super) next: Time,
    factor: f64,
    /// Trains of the current pair so far.
    sent: u8,
    /// Bits sent in addition that no rest has made up for.
    owed: f64,
    /// The first result of a pair, if above the estimate.
    found: Option<f64>,
    /// Trains from here on were sent for the present estimate.
    since: Time,
}

impl Default for Trains {
    fn default() -> Self {
        Self {
            next: Time::NEVER,
            factor: TWICE,
            sent: 0,
            owed: 0.0,
            found: None,
            since: Time::ZERO,
        }
    }
}

impl Trains {
    /// Bits a second for an estimate of the line.
    pub(super) fn rate(&self, line: f64) -> f64 {
        (line * self.factor).max(SLOWEST)
    }

    /// Whether the first of a pair has left: the second follows, however little there is to send.
    pub(super) const fn is_half(&self) -> bool {
        self.sent == 1
    }

    /// The estimate is another one since `now`, and nothing is known of a faster line; the next
    /// pair may leave then.
    pub(super) fn calm(&mut self, now: Time, next: Time) {
        *self = Self { next, owed: self.owed, since: now, ..Self::default() };
    }

    /// Seconds of resting. Between two of a pair it is short.
    pub(super) fn rest(&mut self, line: f64, queue: Span) -> f64 {
        let short = TAKES * seconds(queue) / REST;
        let owes = self.owed / (line * (1.0 - REST));
        let rest = if self.sent == 1 { short } else { owes.clamp(short, REST_MOST) };
        self.owed = (self.owed - rest * line * (1.0 - REST)).max(0.0);
        rest
    }
}

/// The time between pairs that find nothing.
pub(super) fn apart(base: Span) -> Span {
    base.max(Span::from_millis(200)).saturating_mul(APART)
}

impl RateHold {
    /// Whether a train may leave once it is due.
    pub(super) fn may_try(&self, now: Time) -> bool {
        let base = self.base.unwrap_or(Span::from_millis(100));
        self.line.is_some()
            && !self.silent
            && self.reaction.is_none()
            && (!self.rests() || self.idle.is_validated(now, base))
            && !self.is_contended()
            && !self.breaker.is_open()
    }

    /// Seconds that a train takes at `rate`.
    pub(super) fn begin_train(&mut self, now: Time, line: f64, rate: f64) -> f64 {
        let least = PACKETS * PACKET / rate;
        let more = (rate / line - 1.0).clamp(TAKES * seconds(self.config.queue) / LONGEST, 1.0);
        let length = (TAKES * seconds(self.config.queue) / more).max(least);
        self.trains.owed += (rate - line).max(0.0) * length;
        self.trains.sent += 1;
        if self.trains.sent == 2 {
            self.trains.sent = 0;
            // the outcome says sooner when the next pair is due, unless there was too little to send
            let base = self.base.unwrap_or(Span::from_millis(100));
            self.trains.next = now + Span::from_nanos((length * 1e9) as u64) + apart(base);
        }
        length
    }

    /// Bytes in flight for trains of which the outcome is not known.
    pub(super) fn train_bytes(&self) -> f64 {
        let trains = self.epochs.iter().filter(|epoch| epoch.purpose == EpochPurpose::Train);
        trains.map(|epoch| epoch.excess / 8.0).sum()
    }

    /// A train's arrival rate measures the line.
    pub(super) fn on_train(&mut self, now: Time, epoch: &Epoch) {
        let Some(line) = self.line else { return };
        let most = self.allotted();
        let all = epoch.rate > 0.99 * most;
        if epoch.begun < self.trains.since || self.reaction.is_some() {
            // it was sent for another estimate, and says nothing of this one
            return;
        }
        let base = self.base.unwrap_or(Span::from_millis(100));
        let arrives = epoch.train_rate() / (1.0 - self.loss);
        let before = self.trains.found.take();
        let found = before.map_or(arrives, |before| before.min(arrives)).min(epoch.rate);
        let whole = all && found >= WHOLE * most;
        if found <= MORE * line && !whole {
            if !epoch.is_full() {
                // too little was sent to say anything
                return;
            }
            self.trains.factor = TWICE;
            self.trains.next = now + apart(base);
        } else if before.is_none() {
            self.trains.found = Some(arrives);
        } else {
            self.line = (!whole).then_some(found);
            let passed = found > PASSED * epoch.rate;
            self.trains.factor = if passed { AGAIN } else { TWICE };
            if passed {
                self.trains.owed = 0.0;
            }
            self.trains.next = now;
            self.trains.since = now;
            self.trains.sent = 0;
            if self.may_try(now) {
                self.begin(now, EpochPurpose::Train);
            }
        }
    }
}
