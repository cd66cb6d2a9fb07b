//! Evaluates an epoch's rate by the outcomes of its packets.

use super::arrival::tells;
use super::epoch::{Epoch, EpochPurpose};
use super::{BURSTS, ENOUGH, FEW, RateHold, seconds, trains};
use crate::units::{Span, Time};

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RecentEpochs {
    span: Span,
    packets: u64,
    lost: u64,
    bursts: u64,
}

impl RateHold {
    /// Judges every epoch whose packets all have outcomes.
    pub(super) fn judge(&mut self, now: Time) {
        while self.epochs.len() > 1 && self.epochs.front().is_some_and(Epoch::is_known) {
            let Some(epoch) = self.epochs.pop_front() else { return };
            self.first += 1;
            let few = if epoch.purpose == EpochPurpose::Train { trains::FEW } else { FEW };
            if epoch.packets() >= few {
                self.on_known(now, &epoch);
            }
        }
        let span = self.base.unwrap_or(Span::from_millis(100)).max(Span::from_millis(100));
        while let Some((_, bytes)) = self.recent.pop_front_if(|(at, _)| now.since(*at) > span) {
            self.recent_bytes -= bytes;
        }
    }

    fn on_known(&mut self, now: Time, epoch: &Epoch) {
        let (Some(base), Some(shortest)) = (self.base, epoch.shortest) else { return };
        self.queue = Span::from_nanos(shortest.as_nanos().saturating_sub(base.as_nanos()));
        let loss = epoch.loss();
        if epoch.purpose == EpochPurpose::Train {
            self.on_train(now, epoch);
            return;
        }
        if self.is_contended() {
            self.on_known_beside(epoch, base);
            return;
        }
        let waits = self.queue > self.tolerated();
        let drops = self.drops(epoch, base);
        if let Some(reaction) = self.reaction {
            if epoch.begun >= reaction.shows && (!waits || self.tells(epoch)) {
                self.on_shown(now, epoch, reaction, base, shortest);
            }
        } else if (waits && self.was_pressed(epoch) && self.tells(epoch)) || drops.is_some() {
            // where less is sent by now, what arrived lately is that; all of the epoch's stood in a queue
            let recent = self.arrives(base);
            let arrives = if self.is_filled() { recent } else { recent.max(epoch.arrival_rate()) };
            self.react(now, base, arrives, drops.unwrap_or(loss));
        }
    }

    /// Whether an epoch was sent at its rate or in-flight cap; else little arrives, which says
    /// nothing.
    pub(super) fn was_pressed(&self, epoch: &Epoch) -> bool {
        epoch.sent_rate() > 0.5 * epoch.rate || 2 * self.in_flight > self.in_flight_cap().as_u64()
    }

    fn tells(&self, epoch: &Epoch) -> bool {
        self.is_filled() || tells(epoch.arrival_rate(), epoch.sent_rate(), epoch.rate)
    }

    /// Bits a second that arrived over the last round trip.
    pub(super) fn arrives(&self, base: Span) -> f64 {
        let span = seconds(base.max(Span::from_millis(100)));
        self.recent_bytes as f64 * 8.0 / span
    }

    /// The share of packets lost, if above the path's own. A round trip's epochs are judged
    /// together, more where losses come in bursts, because one epoch has few packets.
    pub(super) fn drops(&mut self, epoch: &Epoch, base: Span) -> Option<f64> {
        let lately = &mut self.lately;
        if !epoch.is_full() || self.reaction.is_some() {
            *lately = RecentEpochs::default();
            return None;
        }
        lately.span += epoch.ends.since(epoch.begun);
        lately.packets += epoch.packets();
        lately.lost += epoch.lost();
        lately.bursts += epoch.bursts;
        if lately.span < base.max(Span::from_millis(100)) || lately.packets < ENOUGH {
            return None;
        }
        let loss = lately.lost as f64 / lately.packets as f64;
        let bursts = lately.bursts;
        let own = self.loss.max(self.config.nominal_loss.as_parts_per_billion() as f64 / 1e9);
        if loss > own + 0.05 && 1.0 - loss < 0.9 * (1.0 - own) {
            if bursts < BURSTS {
                // whether it is chance shows later
                return None;
            }
            *lately = RecentEpochs::default();
            return Some(loss);
        }
        *lately = RecentEpochs::default();
        self.loss += (loss - self.loss) / 4.0;
        None
    }
}
