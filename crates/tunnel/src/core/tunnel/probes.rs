//! Probes: what has been lost is found by news of either lane, and never waits for a probe of QUIC's
//! that has backed off.
//!
//! Both lanes share a path. A packet that arrives says that packets sent well before it, on either
//! lane, arrived or are lost (RFC 9002 §6.1 across lanes). Where a lane has nothing newer in flight, QUIC
//! would wait for its probe time-out: after a fade half a minute, because its round trips were the
//! queue's. Three PINGs instead make its packet threshold find the loss a round trip later.
//! Where nothing is heard of packets in flight the same is sent once in two round trips, as long as
//! the tunnel lasts.

use super::super::Event;
use super::super::config::{KEEP_ALIVE, SILENCE};
use super::Tunnel;
use ekiden_model::control::rate_hold::Restraint;
use ekiden_model::units::{Span, Time};
use std::time::{Duration, Instant};

/// RFC 9002's packet threshold.
pub(super) const PROBES: u8 = 3;
/// Acknowledgements are held back for up to 20 ms, and lanes' packets overtake each other by an
/// eighth of a round trip at most (RFC 9002's time threshold).
const HELD_BACK: Duration = Duration::from_millis(25);
const EIGHTH: u32 = 8;
/// The shortest and the longest silence before a probe.
const PATIENCE: (Span, Span) = (Span::from_millis(500), Span::from_secs(2));

#[derive(Debug)]
pub(super) struct Probes {
    /// When the latest packet that arrived was sent.
    arrived: Option<Instant>,
    /// The last outcome, or the last probe for want of one.
    news: Time,
    /// The last frame from the peer.
    heard: Time,
}

impl Probes {
    pub(super) const fn new(now: Time) -> Self {
        Self { arrived: None, news: now, heard: now }
    }

    pub(super) fn on_arrived(&mut self, now: Time, sent: Option<Instant>) {
        self.arrived = self.arrived.max(sent);
        self.news = now;
    }
}

impl Tunnel {
    /// Outcomes have come: probes lanes whose last packets are overdue by them.
    pub(super) fn probe_after_news(&mut self, now: Time) {
        let heard = self.lanes.iter_mut().flatten().fold(false, |any, lane| lane.has_heard() | any);
        if heard {
            self.probes.heard = now;
        }
        let Some(arrived) = self.probes.arrived else { return };
        let path = self.path_round_trip();
        let late = Duration::from_nanos(path.as_nanos()) / EIGHTH + HELD_BACK;
        for lane in self.lanes.iter_mut().flatten() {
            if lane.last_in_flight().is_some_and(|last| last + late < arrived) {
                lane.probe(PROBES);
            }
        }
    }

    /// When to probe for want of outcomes, and when to give up.
    pub(super) fn probe_deadline(&self) -> Time {
        let probe = if self.in_flight > 0 { self.probe_at() } else { Time::NEVER };
        probe.min(self.silent_at())
    }

    fn probe_at(&self) -> Time {
        let patience = self.path_round_trip().saturating_mul(2);
        self.probes.news + patience.clamp(PATIENCE.0, PATIENCE.1)
    }

    pub(in crate::core) fn probe_if_silent(&mut self, now: Time) {
        if self.in_flight == 0 {
            self.probes.news = now;
        } else if self.probe_at() <= now {
            self.probes.news = now;
            for lane in self.lanes.iter_mut().flatten() {
                if lane.last_in_flight().is_some() {
                    lane.probe(PROBES);
                }
            }
        }
    }

    /// Reports what holds the rate down for long, when that begins and when it ends.
    pub(in crate::core) fn watch_restraints(&mut self, now: Time) {
        let restraint = self.hold.restraint();
        if self.restraints.on_look(now, restraint) {
            let (tunnel, peer, why) = (self.id, self.peer, self.restraints.long());
            let rate = self.hold.rate();
            let worth_telling = match why {
                // it speaks for itself
                Some(Restraint::Breaker(_)) => false,
                Some(_) => true,
                None => self.told_restrained,
            };
            if worth_telling {
                self.told_restrained = why.is_some();
                self.events.push_back(Event::Restrained { tunnel, peer, why, rate });
            }
        }
    }

    /// Whether neither lane has heard the peer for long.
    pub(in crate::core) fn is_silent(&self, now: Time) -> bool {
        self.silent_at() <= now
    }

    fn silent_at(&self) -> Time {
        let connected = self.lanes.iter().flatten().any(|lane| lane.connected);
        self.probes.heard + if connected { SILENCE + KEEP_ALIVE } else { SILENCE }
    }

    /// The path's own, without the queue that QUIC's includes.
    fn path_round_trip(&self) -> Span {
        let base = self.hold.snapshot().base;
        if base > Span::ZERO { base } else { Span::from_millis(500) }
    }
}
