//! Competing traffic in the same queue.
//!
//! **Detection.** Our own queue shrinks when less is sent. One that does not, or that returns as
//! often as it shrank, is filled by others, or the path is longer; only a longer path keeps its
//! length. Two such signs within half a minute mark the link as contended, until its queue has been
//! short for a while.
//!
//! **Reaction.** On a dedicated link: none. On a shared link a sender that yields to such a queue
//! loses everything, so it keeps a window as CUBIC does for as many connections as have data to
//! send in the tunnel, at most eight (E.4's κ). The window shrinks when more is lost in a round
//! trip than the path loses by itself.
//!
//! Bias: competitors at a constant rate look like a slower line, and have the same effect.

use super::{Config, Epoch, Mode, RateHold, seconds};
use crate::control::congestion::{self, Ack, Congestion, Control, SlowStart};
use crate::units::{Span, Time};

/// Connections it counts for at most (E.4's κ).
const MOST: u32 = 8;
const REMEMBERED: Span = Span::from_secs(30);
const BELIEVED: u8 = 2;
/// Bytes of a packet, as the window counts them.
const PACKET: f64 = 1_500.0;

/// Smoothing of the path's own loss share over round trips with fewer losses.
const STEP: f64 = 0.002;

#[derive(Debug, Clone)]
pub(super) struct Rivals {
    signs: u8,
    since: Time,
    /// The path counted as longer: its round trip before and since.
    raised: Option<(Span, Span)>,
    pub(super) contention: Option<Contention>,
    connections: u32,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Contention {
    /// One connection's window; `None` on a line of one's own.
    window: Option<Congestion>,
    connections: u32,
    smoothed: Span,
    /// The current round trip and its losses.
    round: Time,
    packets: u64,
    lost: u64,
    /// Losses up to here have been reacted to.
    reacted: Time,
    /// Connections with a loss whose windows have not shrunk yet.
    hit: f64,
    /// The path's own loss share, as before the competition.
    own: f64,
    /// The queue has been short since.
    short: Option<Time>,
    acked: u64,
}

impl Rivals {
    pub(super) const fn new() -> Self {
        Self { signs: 0, since: Time::ZERO, raised: None, contention: None, connections: 1 }
    }
}

impl Contention {
    /// One packet arrived, and `in_flight` are in flight.
    fn on_arrived(&mut self, now: Time, rtt: Option<Span>, in_flight: u64) {
        if let Some(rtt) = rtt {
            let eighth = |span: Span, of: u64| span.as_nanos() / 8 * of;
            self.smoothed = Span::from_nanos(eighth(self.smoothed, 7) + eighth(rtt, 1));
        }
        self.packets += 1;
        self.acked += PACKET as u64;
        let shares = f64::from(self.connections);
        let under_way = in_flight as f64 / PACKET / shares;
        let smoothed = self.smoothed;
        let acked = self.acked;
        if let Some(window) = &mut self.window {
            window.on_ack(&Ack {
                now,
                acked: 1.0 / shares,
                in_flight: under_way,
                rtt,
                smoothed,
                limited: under_way >= 0.8 * window.window(),
                una: acked,
                next: acked + in_flight,
                recovering: now < self.reacted,
            });
        }
        self.on_round(now);
    }

    fn on_lost(&mut self, now: Time) {
        self.packets += 1;
        self.lost += 1;
        let expected = self.own * self.packets as f64;
        let excess = self.lost as f64 - expected;
        let shares = f64::from(self.connections);
        // beyond chance: three standard deviations. Each such packet is one connection's, until each has one
        if now >= self.reacted && excess > 3.0 * libm::sqrt(expected) {
            self.hit += 1.0;
            if self.hit >= shares
                && let Some(window) = &mut self.window
            {
                self.hit = 0.0;
                self.reacted = now + self.smoothed;
                let basis = window.window();
                window.on_loss(now, basis);
            }
        }
        self.on_round(now);
    }

    fn on_round(&mut self, now: Time) {
        if self.round <= now {
            // the path's own share may have included others' losses already
            self.own = self.own.min(self.lost as f64 / self.packets.max(1) as f64 + STEP);
            (self.packets, self.lost) = (0, 0);
            self.round = now + self.smoothed;
        }
    }

    fn most(&self) -> Option<f64> {
        let window = self.window.as_ref()?;
        Some(window.window() * f64::from(self.connections) * PACKET)
    }
}

impl RateHold {
    /// Connections in the tunnel with data to send: as many competitors it counts for, at most
    /// eight.
    pub fn set_connections(&mut self, connections: u32) {
        let connections = connections.clamp(1, MOST);
        self.rivals.connections = connections;
        if let Some(contention) = &mut self.rivals.contention {
            contention.connections = connections;
        }
    }

    /// The tolerated queue: on a shared line at most half the round trip, as another TCP's queue
    /// is; at least four packets' time, because on a thin line two may leave together and the
    /// shortest round trip may be a small packet's.
    pub(super) fn tolerated(&self) -> Span {
        let Config { mode, queue, .. } = self.config;
        let line = self.line.unwrap_or_else(|| self.allotted());
        let packets = 4.0 * 8.0 * PACKET / line.max(1.0);
        let packets = Span::from_nanos((packets * 1e9) as u64);
        let before = self.rivals.raised.map(|(before, _)| before);
        let base = before.or(self.base).filter(|_| mode == Mode::Shared);
        let Some(base) = base else { return queue.max(packets) };
        let half = Span::from_nanos(base.as_nanos() / 2).max(Span::from_millis(25));
        half.min(queue).max(packets)
    }

    /// A complete epoch beside competitors. On a dedicated link more losses than the path's still
    /// mean less capacity; then the rate grows by a twentieth of the allotment a round trip (E.4),
    /// because others' packets spoil a train's pace.
    pub(super) fn on_known_beside(&mut self, epoch: &Epoch, base: Span) {
        if self.config.mode == Mode::Shared {
            return;
        }
        let most = self.allotted();
        let line = match self.drops(epoch, base) {
            Some(_) => Some(self.arrives(base) / (1.0 - self.loss)),
            None => self.line.map(|line| {
                let span = seconds(epoch.ends.since(epoch.begun));
                line + 0.05 * most * span / seconds(base).max(0.05)
            }),
        };
        self.line = line.filter(|line| *line < most);
    }

    pub(super) const fn is_contended(&self) -> bool {
        self.rivals.contention.is_some()
    }

    /// A queue that did not shrink counts as a longer path, unless others fill it.
    pub(super) fn on_raised(&mut self, now: Time, before: Span, shortest: Span) {
        self.on_sign(now);
        if !self.is_contended() {
            let before = self.rivals.raised.map_or(before, |(before, _)| before);
            self.rivals.raised = Some((before, shortest));
            self.base = Some(shortest);
            self.queue = Span::ZERO;
        }
    }

    /// Something that others do and a line does not.
    pub(super) fn on_sign(&mut self, now: Time) {
        let rivals = &mut self.rivals;
        if now.since(rivals.since) > REMEMBERED {
            rivals.signs = 0;
        }
        rivals.since = now;
        rivals.signs += 1;
        if rivals.signs >= BELIEVED && rivals.contention.is_none() {
            self.contend(now);
        }
    }

    fn contend(&mut self, now: Time) {
        if let Some((before, _)) = self.rivals.raised.take() {
            self.base = Some(self.base.map_or(before, |base| base.min(before)));
        }
        let base = self.base.unwrap_or(Span::from_millis(100));
        let smoothed = base + self.queue;
        let connections = self.rivals.connections;
        let begins = self.rate().as_bits_per_second() as f64 / 8.0 * seconds(smoothed) / PACKET;
        let begins = (begins / f64::from(connections)).max(2.0);
        let window = (self.config.mode == Mode::Shared).then(|| {
            let config = congestion::Config {
                initial_window: begins,
                // no slow start: the rate is known, and whether it is too high shows
                initial_threshold: begins,
                slow_start: SlowStart::Standard,
                ..congestion::Config::default()
            };
            Congestion::new(&config, now)
        });
        self.rivals.contention = Some(Contention {
            window,
            connections,
            smoothed,
            round: now + smoothed,
            reacted: now,
            own: self.loss,
            ..Contention::default()
        });
        self.line = self.line.filter(|_| self.config.mode != Mode::Shared);
        self.reaction = None;
        self.begin(now, super::EpochPurpose::Hold);
    }

    /// A packet arrived, as far as it concerns others.
    pub(super) fn on_arrived_beside(&mut self, now: Time, rtt: Option<Span>) {
        let in_flight = self.in_flight;
        let short_if = Span::from_nanos(self.tolerated().as_nanos() / 2);
        let Some(base) = self.base else { return };
        if let (Some((_, raised)), Some(rtt)) = (self.rivals.raised, rtt) {
            // a path that had become longer would have stayed so
            if raised.as_nanos().saturating_sub(rtt.as_nanos()) > short_if.as_nanos() {
                self.on_sign(now);
                self.rivals.raised = None;
            }
        }
        let Some(contention) = &mut self.rivals.contention else { return };
        contention.on_arrived(now, rtt, in_flight);
        let Some(rtt) = rtt else { return };
        if rtt > base + short_if {
            contention.short = None;
            return;
        }
        let since = *contention.short.get_or_insert(now);
        if now.since(since) > base.saturating_mul(4).max(Span::from_secs(1)) {
            self.leave(now);
        }
    }

    fn leave(&mut self, now: Time) {
        let rate = self.rate().as_bits_per_second() as f64;
        self.rivals = Rivals { connections: self.rivals.connections, ..Rivals::new() };
        // data sent without a queue is a lower bound of the capacity
        self.line = (rate < self.allotted()).then_some(rate);
        self.trains.calm(now, now);
        self.begin(now, super::EpochPurpose::Hold);
    }

    pub(super) fn on_lost_beside(&mut self, now: Time) {
        if let Some(contention) = &mut self.rivals.contention {
            contention.on_lost(now);
        }
    }

    /// The shared mode's limit for a rate, bits a second, and for bytes in flight.
    pub(super) fn beside(&self) -> Option<(f64, f64)> {
        let contention = self.rivals.contention.as_ref()?;
        let bytes = contention.most()?;
        // slightly faster than the window, which is the actual limit
        let rate = 1.05 * bytes * 8.0 / seconds(contention.smoothed).max(1e-3);
        Some((rate, bytes + 2.0 * PACKET))
    }
}
