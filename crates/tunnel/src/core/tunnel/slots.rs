//! What leaves at a slot of the schedule.

use super::super::flow::WAITING;
use super::super::lane::Polled;
use super::super::{Event, Out};
use super::Tunnel;
use crate::frame::{Carries, Frame};
use ekiden_model::pacing::Pacer;
use ekiden_model::rate_hold::Told;
use ekiden_model::scheduler;
use ekiden_model::units::{self, Span, Time};
use std::net::SocketAddr;
use std::time::Instant;

/// Datagrams that follow each other within this may leave together, as far as the envelope of ALGORITHMS E.4 goes: from
/// some 120 Mbit/s on, where waking for each costs more than all the rest. It is E.4's own measure of a burst.
const TOGETHER: Span = Span::from_micros(100);

/// What may be said that QUIC does not take yet: answers, ends and credit, which wait for no credit.
const MOST_WAITING: usize = 1 << 20;

impl Tunnel {
    /// The next datagram, if one is due.
    pub(in crate::core) fn transmit(
        &mut self,
        now: Time,
        clock: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<Out> {
        self.look_at_what_waits();
        if self.broken.is_some() || !self.wants_to_send(now) {
            return None;
        }
        self.look_at_rate(now);
        let rate = self.hold.rate();
        if rate != self.pacer.rate() {
            self.pacer.set_rate(now, rate, Pacer::slack(rate, units::Bytes::new(self.mtu())));
        }
        if self.pacer.next(now) > now {
            return None;
        }
        self.send_due_copies(now);
        self.poll_lane(now, clock, 0, buf)
            .or_else(|| self.turn(now, clock, buf, true))
            .or_else(|| self.poll_lane(now, clock, 1, buf))
            .or_else(|| self.turn(now, clock, buf, false))
    }

    /// What QUIC does not take is bounded: credit stops an honest peer's bytes long before.
    fn look_at_what_waits(&mut self) {
        let waiting: usize = self.lanes.iter().flatten().map(|lane| lane.waiting).sum();
        if waiting > MOST_WAITING {
            self.fail("the peer's QUIC takes nothing of what is said to it".to_owned());
        }
    }

    /// Lets rate holding go on, and tells when its breaker opens or closes.
    fn look_at_rate(&mut self, now: Time) {
        if self.hold.deadline() <= now {
            let waiting = self.flows.values().filter(|flow| flow.sending.queued > 0).count();
            self.hold.set_connections(u32::try_from(waiting).unwrap_or(u32::MAX));
        }
        self.hold.on_deadline(now);
        let open = self.hold.breaker().snapshot().open;
        if self.restrained != open.is_some() {
            self.restrained = open.is_some();
            self.events.push_back(Event::Breaker { tunnel: self.id, peer: self.peer, open });
        }
    }

    /// When to ask for the next datagram, and to tell lanes the time.
    pub(in crate::core) fn deadline(&mut self, now: Time) -> Time {
        if self.broken.is_some() {
            return now;
        }
        let slot = match self.wants_to_send(now) {
            true => self.pacer.together(now, TOGETHER),
            false => Time::NEVER,
        };
        let copies = self.copies.iter().filter_map(|queue| queue.front());
        let copy = copies.map(|copy| copy.due).min().unwrap_or(Time::NEVER);
        slot.min(copy.max(self.pacer.next(now)))
    }

    /// What was taken out has left by now. Where datagrams leave together that is all the slack there is; what a
    /// driver is held up by would then be taken off the rate.
    pub(in crate::core) fn left(&mut self, now: Time) {
        if !self.pacer.leaves_together(TOGETHER) {
            self.pacer.left(now);
        }
    }

    fn wants_to_send(&self, now: Time) -> bool {
        self.lanes.iter().flatten().any(|lane| lane.busy)
            || self.copies.iter().filter_map(|queue| queue.front()).any(|copy| copy.due <= now)
            || self.may_send_new() && self.scheduler.snapshot().waiting != [0; 2]
            || self.may_send_interactive() && self.scheduler.snapshot().waiting[0] > 0
    }

    /// Whether QUIC took all that was said on a lane. Until a peer knows both lanes for ours it takes no more than a
    /// stranger's bytes on one of them.
    fn is_taken(&self, nth: usize) -> bool {
        self.lanes[nth].as_ref().is_none_or(|lane| lane.waiting == 0)
    }

    /// Whether new bytes may be sent: the peer has room for them, and the path too.
    fn may_send_new(&self) -> bool {
        self.peer_has_room()
            && self.is_taken(0)
            && self.is_taken(1)
            && self.in_flight + self.mtu() <= self.hold.in_flight_cap().as_u64()
    }

    /// The same for what is interactive: it may go an eighth beyond what may be under way. What is lost and
    /// not yet known to be must not stop a keystroke.
    fn may_send_interactive(&self) -> bool {
        let cap = self.hold.in_flight_cap().as_u64();
        self.peer_has_room()
            && self.is_taken(0)
            && self.in_flight + self.mtu() <= cap + cap / 8 + 4 * self.mtu()
    }

    /// Writes one packet's worth of whoever is next, and sends it. With `interactive` only where something
    /// interactive waits.
    fn turn(
        &mut self,
        now: Time,
        clock: Instant,
        buf: &mut Vec<u8>,
        interactive: bool,
    ) -> Option<Out> {
        loop {
            let may = match interactive {
                true => self.may_send_interactive() && self.scheduler.snapshot().waiting[0] > 0,
                false => self.may_send_new(),
            };
            if !may {
                return None;
            }
            let left = self.total_limit - self.total_sent;
            let lanes = self.lanes.iter().flatten().filter(|lane| lane.connected);
            let room = lanes.map(|lane| lane.room(self.total_sent) as u64).min()?.min(left);
            let turn = self.scheduler.next(units::Bytes::new(room))?;
            let id = *self.turns.get(&turn.flow)?;
            let nth = turn.lane as usize;
            match self.flows.get(&id)?.opening.carries {
                Carries::Packets => self.packet_turn(now, id, turn),
                Carries::Stream => self.stream_turn(now, id, turn),
            }
            let out = self.poll_lane(now, clock, nth, buf);
            let out = out.or_else(|| self.poll_lane(now, clock, 1 - nth, buf));
            if out.is_some() {
                return out;
            }
            // a packet needs more turns than this, or somebody else has one
        }
    }

    /// A turn of a flow of bytes: writes as many of them.
    fn stream_turn(&mut self, now: Time, id: u64, turn: scheduler::Turn) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let nth = turn.lane as usize;
        let offset = flow.sending.sent;
        let many = flow.sending.queued >= WAITING / 2;
        let bytes = flow.sending.take(turn.bytes.as_u64());
        let length = bytes.len() as u64;
        self.total_sent += length;
        let copy = nth == 0 && flow.sending.copies(now, length);
        // told once: whoever was told that there is no room waits for it
        let more = many && flow.sending.queued < WAITING / 2;
        self.tell(now, id, nth, &[Frame::Data { offset, bytes }], copy);
        self.end_if_all_sent(now, id);
        if more {
            self.changed(id);
        }
    }

    fn poll_lane(
        &mut self,
        now: Time,
        clock: Instant,
        nth: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Out> {
        let lane = self.lanes[nth].as_mut().filter(|lane| lane.busy)?;
        let polled = lane.poll_transmit(clock, buf)?;
        let wire = units::Bytes::new(polled.size as u64 + overhead(polled.to));
        self.pacer.on_sent(now, wire);
        self.counts.packets += 1;
        self.counts.wire += wire.as_u64();
        if polled.counts {
            let epoch = self.hold.on_sent(now, wire);
            self.in_flight += wire.as_u64();
            lane.on_sent(polled, Told { epoch, bytes: wire });
        }
        let Polled { to, size, .. } = polled;
        Some(Out { to, lane: nth as u8, size, tunnel: Some(self.id) })
    }

    pub(super) fn mtu(&self) -> u64 {
        let lanes = self.lanes.iter().flatten();
        lanes.map(|lane| u64::from(lane.quinn.current_mtu())).max().unwrap_or(1_200) + 28
    }
}

/// Of IP and UDP.
const fn overhead(to: SocketAddr) -> u64 {
    if to.is_ipv4() { 28 } else { 48 }
}
