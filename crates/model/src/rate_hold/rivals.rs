//! Others whose packets stand in the same queue.
//!
//! **How they are told.** A queue that is ours shrinks when less is sent. One that does not, or that is
//! there again as often as it has shrunk, is filled by others, or the path has become longer; a longer
//! path stays as long as it is, and a queue of others does not. Two such signs within half a minute, and
//! the line is taken for contended, until its queue has been short for a while.
//!
//! **What is done then.** On a line of the operator's own, nothing: it holds what it was told to hold. On a
//! shared one a delay is no guide any more, since whoever yields to a queue that others fill gives them all
//! of it. So a window is kept as TCP keeps it (CUBIC), for as many connections as have something to send in the
//! tunnel, at most eight (E.4's κ): together they get what as many TCPs would. It shrinks when more is
//! lost in a round trip than the path loses by itself.
//!
//! Bias: others who send a constant rate are taken for a slower line, and that is what they are.

use super::{Config, Epoch, Mode, RateHold, seconds};
use crate::congestion::{self, Ack, Congestion, Control, SlowStart};
use crate::units::{Span, Time};

/// Connections it counts for at most (E.4's κ).
const MOST: u32 = 8;
/// Signs are forgotten after this.
const REMEMBERED: Span = Span::from_secs(30);
/// So many of them are believed.
const BELIEVED: u8 = 2;
/// Bytes of a packet, as the window counts them.
const PACKET: f64 = 1_500.0;

/// How closely what is taken for the path's own losses follows a round trip with fewer.
const STEP: f64 = 0.002;

/// What is known of others.
#[derive(Debug, Clone)]
pub(super) struct Rivals {
    signs: u8,
    since: Time,
    /// The path was taken for longer: its round trip before and from then on.
    raised: Option<(Span, Span)>,
    pub(super) contention: Option<Contention>,
    /// Connections with something to send.
    connections: u32,
}

/// Sharing a queue.
#[derive(Debug, Clone)]
pub(super) struct Contention {
    /// One connection's window; `None` on a line of one's own.
    window: Option<Congestion>,
    connections: u32,
    smoothed: Span,
    /// The round trip that is counted, and what it has brought.
    round: Time,
    packets: u64,
    lost: u64,
    /// It has been reacted to what is lost until then.
    reacted: Time,
    /// Connections of which something was lost and whose windows have not shrunk yet.
    hit: f64,
    /// Share of packets that the path loses by itself, as it was before others came.
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
    /// One packet arrived, and `in_flight` are under way.
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
            // what is taken for the path's own may have been others' already
            self.own = self.own.min(self.lost as f64 / self.packets.max(1) as f64 + STEP);
            (self.packets, self.lost) = (0, 0);
            self.round = now + self.smoothed;
        }
    }

    /// Bytes that may be under way.
    fn most(&self) -> Option<f64> {
        let window = self.window.as_ref()?;
        Some(window.window() * f64::from(self.connections) * PACKET)
    }
}

impl RateHold {
    /// So many connections in the tunnel have something to send: on a shared line, where others' packets
    /// stand in the same queue, it counts for as many of theirs, at most eight.
    pub fn set_connections(&mut self, connections: u32) {
        let connections = connections.clamp(1, MOST);
        self.rivals.connections = connections;
        if let Some(contention) = &mut self.rivals.contention {
            contention.connections = connections;
        }
    }

    /// The tolerated queue: on a shared line at most half the round trip, since another TCP's queue is
    /// often no longer than that; but four packets' time on a thin one: two may leave together, and the shortest round
    /// trip was perhaps a small packet's.
    pub(super) fn tolerated(&self) -> Span {
        let Config { mode, queue, .. } = self.config;
        let packets = 4.0 * 8.0 * PACKET / self.allotted().max(1.0);
        let packets = Span::from_nanos((packets * 1e9) as u64);
        let before = self.rivals.raised.map(|(before, _)| before);
        let Some(base) = before.or(self.base).filter(|_| mode == Mode::Shared) else {
            return queue.max(packets);
        };
        let half = Span::from_nanos(base.as_nanos() / 2).max(Span::from_millis(15));
        half.min(queue).max(packets)
    }

    /// An epoch beside others is known. On a line of one's own more losses than the path's still mean that
    /// it gives less, and from there on it is a twentieth of the allotment more each round trip (E.4): a
    /// train's pace says nothing where others' packets stand between its own.
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

    /// Others' packets stand in the same queue.
    pub(super) const fn is_contended(&self) -> bool {
        self.rivals.contention.is_some()
    }

    /// A queue that did not shrink is taken for a longer path: or others fill it, and then it will not stay
    /// as it is.
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
            packets: 0,
            lost: 0,
            reacted: now,
            hit: 0.0,
            own: self.loss,
            short: None,
            acked: 0,
        });
        self.line = self.line.filter(|_| self.config.mode != Mode::Shared);
        self.reaction = None;
        self.begin(now, super::Purpose::Hold);
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

    /// Nobody else is there any more.
    fn leave(&mut self, now: Time) {
        let rate = self.rate().as_bits_per_second() as f64;
        self.rivals = Rivals { connections: self.rivals.connections, ..Rivals::new() };
        // what was sent without a queue is what the line gives at least
        self.line = (rate < self.allotted()).then_some(rate);
        self.next_train = now;
        self.eager = true;
        self.begin(now, super::Purpose::Hold);
    }

    pub(super) fn on_lost_beside(&mut self, now: Time) {
        if let Some(contention) = &mut self.rivals.contention {
            contention.on_lost(now);
        }
    }

    /// What sharing leaves of a rate, bits a second, and of what may be under way, bytes.
    pub(super) fn beside(&self) -> Option<(f64, f64)> {
        let contention = self.rivals.contention.as_ref()?;
        let bytes = contention.most()?;
        // a little quicker than the window, which is what limits
        let rate = 1.05 * bytes * 8.0 / seconds(contention.smoothed).max(1e-3);
        Some((rate, bytes + 2.0 * PACKET))
    }
}
