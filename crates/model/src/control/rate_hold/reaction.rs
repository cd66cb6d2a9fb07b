//! Sending less, and whether it was right.

use super::arrival::LateArrivals;
use super::{Epoch, EpochPurpose, FEW, PACKET, RateHold, seconds, trains};
use crate::units::{Span, Time};

/// The fewest epochs a second of a line that is not thin; on a thin one they take longer.
const EPOCHS: f64 = 4.0;

#[derive(Debug, Clone, Copy)]
pub(super) struct Reaction {
    /// Epochs from here on show the effect: the excess in flight has drained by then.
    pub(super) shows: Time,
    before: Option<f64>,
    /// The queue and the losses that were the reason.
    queue: Span,
    loss: f64,
    /// When there was one before.
    since: Option<Time>,
    /// A queue that did not shrink: a quarter less is sent to see whether it is one.
    doubted: bool,
}

impl RateHold {
    /// The line gives less than is sent: the arrival rate.
    pub(super) fn react(&mut self, now: Time, base: Span, arrives: f64, loss: f64) {
        self.late = LateArrivals::default();
        let most = self.line.unwrap_or_else(|| self.allotted());
        let line = (arrives / (1.0 - self.loss)).min(most);
        self.give(now, base, line, loss, false);
        self.count[0] += 1;
    }

    /// Assumes `line` until the effect is known.
    fn give(&mut self, now: Time, base: Span, line: f64, loss: f64, doubted: bool) {
        let line = line.max(self.least());
        let before = if doubted { self.reaction.and_then(|r| r.before) } else { self.line };
        let since = if doubted { self.reaction.and_then(|r| r.since) } else { self.reacted_at };
        let shows = self.drained(now, base, line, doubted);
        let queue = self.queue;
        self.reaction = Some(Reaction { shows, before, queue, loss, since, doubted });
        self.line = Some(line);
        self.reacted_at = Some(now);
        self.trains.calm(now, Time::NEVER);
        self.begin(now, EpochPurpose::Hold);
        self.reacted = self.sending();
    }

    /// When packets sent from then on show a reaction's effect: the excess in flight has drained.
    fn drained(&self, now: Time, base: Span, line: f64, doubted: bool) -> Time {
        let excess = self.in_flight as f64 * 8.0 / line - seconds(base);
        let drained = Span::from_nanos((excess.max(0.0) * 1e9) as u64);
        let wait = if doubted { base } else { Span::from_nanos(base.as_nanos() / 4) };
        now + drained + wait
    }

    /// Others' packets go with ours, so that a queue may drain faster than at the rate that is believed.
    pub(super) fn hasten(&mut self, now: Time) {
        let known = (self.reaction, self.line, self.base);
        let (Some(reaction), Some(line), Some(base)) = known else { return };
        let shows = self.drained(now, base, line, reaction.doubted).min(reaction.shows);
        self.reaction = Some(Reaction { shows, ..reaction });
    }

    /// The effect of a reaction is known: was its reason right?
    pub(super) fn on_shown(
        &mut self,
        now: Time,
        epoch: &Epoch,
        reaction: Reaction,
        base: Span,
        shortest: Span,
    ) {
        let tolerated = self.tolerated();
        let loss = epoch.loss();
        let arrives = (epoch.arrival_rate() / (1.0 - self.loss)).min(self.allotted());
        let is_path = if reaction.queue <= tolerated {
            // less was sent, and as large a share was lost
            let own = loss > reaction.loss * 0.7;
            if own {
                self.loss = loss;
            }
            own
        } else if self.queue <= tolerated {
            false
        } else if reaction.doubted {
            let own = self.queue.as_nanos() * 8 > reaction.queue.as_nanos() * 7;
            if own {
                self.on_raised(now, base, shortest);
                if self.is_contended() {
                    return;
                }
            } else {
                self.line = Some(arrives.max(self.least()));
            }
            own
        } else if arrives < 0.9 * epoch.sent_rate() {
            // slower still
            self.react(now, base, epoch.arrival_rate(), loss);
            return;
        } else {
            self.give(now, base, 0.75 * arrives, loss, true);
            return;
        };
        if is_path {
            self.line = reaction.before;
            // nobody else was seen
            self.reacted_at = reaction.since;
            self.count[1] += 1;
        }
        self.reaction = None;
        self.trains.calm(now, now + trains::apart(base));
    }

    /// A packet that left after a reaction to a queue found none. Where the line has become so thin
    /// that few packets leave in an epoch that is enough: the next one to be judged is seconds away.
    pub(super) fn on_drained(&mut self, now: Time, epoch: u64, rtt: Span) {
        let known = (self.reaction, self.line, self.base);
        let (Some(reaction), Some(line), Some(base)) = known else { return };
        let tolerated = self.tolerated();
        let fades = line < EPOCHS * (FEW + 3) as f64 * PACKET;
        let drained = reaction.queue > tolerated && rtt <= base + tolerated;
        if fades && drained && epoch >= self.reacted {
            self.reaction = None;
            self.trains.calm(now, now);
            self.begin(now, EpochPurpose::Hold);
        }
    }
}
