//! The next datagram at a slot of the schedule.

use super::super::lane::Polled;
use super::super::{Event, OutgoingDatagram};
use super::repair::ATTACH;
use super::{ScheduledCopy, Tunnel};
use crate::frame::{Carries, Frame};
use ekiden_model::control::pacing::Pacer;
use ekiden_model::control::rate_hold::SentBytes;
use ekiden_model::control::scheduler;
use ekiden_model::units::{self, Time};
use std::net::SocketAddr;
use std::time::Instant;

/// Bytes of frames that QUIC has not accepted yet: answers, ends and credit, which need no credit.
const MOST_WAITING: usize = 1 << 20;

/// Packets of the interactive lane in a row, while the bulk lane has something to send, before that goes
/// once. Its data has the scheduler's floor. Its acknowledgements, keep-alives and retransmissions get
/// as much here: without them the peer would take it for dead.
const BULK_PASSED: u32 = 9;

impl Tunnel {
    pub(in crate::core) fn transmit(
        &mut self,
        now: Time,
        clock: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<OutgoingDatagram> {
        self.release_packets(now);
        self.inspect_queues();
        if self.broken.is_some() || !self.wants_to_send(now) {
            return None;
        }
        self.update_rate(now);
        let rate = self.hold.rate();
        if rate != self.pacer.rate() {
            self.pacer.set_rate(now, rate, Pacer::slack(rate, units::Bytes::new(self.mtu())));
        }
        if self.pacer.next(now) > now {
            return None;
        }
        self.send_due_copies(now);
        if self.bulk_passed >= BULK_PASSED
            && let Some(out) = self.poll_lane(now, clock, 1, buf)
        {
            return Some(out);
        }
        self.poll_lane(now, clock, 0, buf)
            .or_else(|| self.turn(now, clock, buf, true))
            .or_else(|| self.poll_lane(now, clock, 1, buf))
            .or_else(|| self.turn(now, clock, buf, false))
            .or_else(|| self.repair(now, clock, buf))
    }

    /// Bounds data that QUIC does not accept; credit stops an honest peer's bytes long before.
    fn inspect_queues(&mut self) {
        let waiting: usize = self.lanes.iter().flatten().map(|lane| lane.waiting).sum();
        if waiting > MOST_WAITING {
            self.fail("the peer's QUIC accepts no data on the control stream".to_owned());
        }
    }

    /// Advances rate holding, and reports when its breaker opens or closes.
    fn update_rate(&mut self, now: Time) {
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

    /// When to ask for the next datagram, and to advance the lanes' timers.
    pub(in crate::core) fn deadline(&mut self, now: Time) -> Time {
        if self.broken.is_some() {
            return now;
        }
        let slot = match self.wants_to_send(now) {
            true => self.pacer.together(now),
            false => Time::NEVER,
        };
        let copies = self.copies.iter().filter_map(|queue| queue.front());
        let copy = copies.map(ScheduledCopy::due).min().unwrap_or(Time::NEVER);
        let repair = self.repair_deadline();
        let sends = slot.min(copy.min(repair).max(self.pacer.next(now)));
        let waits = self.probe_deadline().min(self.release_deadline()).min(self.orphans.deadline());
        sends.min(waits).min(self.marks.deadline())
    }

    /// The datagrams taken out were sent by now. Where they leave together, a driver's delays
    /// reduce the rate.
    pub(in crate::core) fn left(&mut self, now: Time) {
        if !self.pacer.leaves_together() {
            self.pacer.left(now);
        }
    }

    fn wants_to_send(&self, now: Time) -> bool {
        self.lanes.iter().flatten().any(|lane| lane.busy)
            || self.copies.iter().filter_map(|queue| queue.front()).any(|copy| copy.due() <= now)
            || self.may_send_new() && self.scheduler.snapshot().waiting != [0; 2]
            || self.may_send_interactive() && self.scheduler.snapshot().waiting[0] > 0
            || self.repair_deadline() <= now
    }

    /// Whether QUIC accepted all frames of a lane. Until a peer has identified both lanes, it
    /// accepts no more than an unidentified peer's bytes on one of them.
    fn is_flushed(&self, nth: usize) -> bool {
        self.lanes[nth].as_ref().is_none_or(|lane| lane.waiting == 0)
    }

    /// Whether the peer takes new bytes, by its credit and by what it acknowledges.
    pub(super) fn peer_takes_more(&self) -> bool {
        self.peer_has_room() && self.is_flushed(0) && self.is_flushed(1)
    }

    /// Whether new bytes may be sent: the peer has room for them, and the path too.
    pub(super) fn may_send_new(&self) -> bool {
        self.peer_takes_more() && self.in_flight + self.mtu() <= self.hold.in_flight_cap().as_u64()
    }

    /// The same for interactive data, by an eighth more: undetected losses must not stop a
    /// keystroke.
    pub(super) fn may_send_interactive(&self) -> bool {
        let cap = self.hold.in_flight_cap().as_u64();
        self.peer_has_room()
            && self.is_flushed(0)
            && self.in_flight + self.mtu() <= cap + cap / 8 + 4 * self.mtu()
    }

    /// Writes and sends one packet's worth of the next flow; of an interactive one alone if asked.
    fn turn(
        &mut self,
        now: Time,
        clock: Instant,
        buf: &mut Vec<u8>,
        interactive: bool,
    ) -> Option<OutgoingDatagram> {
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
            let room = lanes.map(|lane| lane.room(self.total_sent) as u64).min()?;
            let room = room.min(self.repairable(ATTACH)).min(left);
            let turn = self.scheduler.next(units::Bytes::new(room))?;
            let id = *self.turns.get(&turn.flow)?;
            let nth = turn.lane as usize;
            match self.flows.get(&id)?.opening.carries {
                Carries::Packets | Carries::Coded => self.packet_turn(now, id, turn),
                Carries::Stream => self.stream_turn(now, id, turn),
            }
            let out = self.poll_lane(now, clock, nth, buf);
            let out = out.or_else(|| self.poll_lane(now, clock, 1 - nth, buf));
            if out.is_some() {
                return out;
            }
            // a packet needs more turns than this, or another flow has one
        }
    }

    /// A turn of a flow of bytes: writes as many of them.
    fn stream_turn(&mut self, now: Time, id: u64, turn: scheduler::Turn) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let nth = turn.lane as usize;
        let offset = flow.sending.sent;
        // until it is answered, OPEN takes room of copies and repairs
        let opening = flow.is_opening().then(|| flow.header(id).to_bytes().len());
        let fits = opening.map_or(u64::MAX, |header| self.repeatable(header, offset));
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let bytes = flow.sending.take(turn.bytes.as_u64().min(fits));
        self.memory.on_queue(flow);
        let length = bytes.len() as u64;
        let rest = turn.bytes.as_u64().saturating_sub(length);
        self.scheduler.on_waiting(turn.flow, units::Bytes::new(rest));
        self.total_sent += length;
        let copy = nth == 0 && flow.sending.copies(now, length);
        let woken = flow.sending.waits && {
            let queue = flow.queue();
            queue.wakes(queue.room(self.memory.free(self.limits.send_memory(), flow)))
        };
        flow.sending.waits &= !woken;
        self.tell(now, id, nth, &[Frame::Data { offset, bytes }], copy);
        self.end_if_all_sent(now, id);
        if woken {
            self.changed(id);
        }
    }

    /// The next datagram of any lane.
    pub(super) fn poll_lanes(
        &mut self,
        now: Time,
        clock: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<OutgoingDatagram> {
        let out = self.poll_lane(now, clock, 0, buf);
        out.or_else(|| self.poll_lane(now, clock, 1, buf))
    }

    pub(super) fn poll_lane(
        &mut self,
        now: Time,
        clock: Instant,
        nth: usize,
        buf: &mut Vec<u8>,
    ) -> Option<OutgoingDatagram> {
        let lane = self.lanes[nth].as_mut().filter(|lane| lane.busy)?;
        let polled = lane.poll_transmit(clock, buf)?;
        let wire = units::Bytes::new(polled.size as u64 + overhead(polled.to));
        self.pacer.on_sent(now, wire);
        self.counts.packets += 1;
        self.counts.wire += wire.as_u64();
        if polled.counts {
            let epoch = self.hold.on_sent(now, wire);
            self.in_flight += wire.as_u64();
            lane.on_sent(polled, SentBytes { epoch, bytes: wire });
        } else {
            self.hold.on_sent_unjudged(now, wire);
        }
        let bulk_waits = nth == 0 && self.lanes[1].as_ref().is_some_and(|bulk| bulk.busy);
        self.bulk_passed = if bulk_waits { self.bulk_passed.saturating_add(1) } else { 0 };
        let Polled { to, from, size, .. } = polled;
        let mark = self.marks.of(nth);
        Some(OutgoingDatagram { to, from, mark, size, tunnel: Some(self.id) })
    }

    /// How often QUIC took losses for a path that became narrower.
    #[cfg(test)]
    pub(in crate::core) fn narrowed(&self) -> u64 {
        let lanes = self.lanes.iter().flatten();
        lanes.map(|lane| lane.quinn.stats().path.black_holes_detected).sum()
    }

    /// The IP packet that every connected lane can send, bytes: the smaller one of both.
    pub(super) fn smallest_mtu(&self) -> u16 {
        let lanes = self.lanes.iter().flatten().filter(|lane| lane.connected);
        let each = lanes.map(|lane| {
            u64::from(lane.quinn.current_mtu()) + overhead(lane.quinn.remote_address())
        });
        u16::try_from(each.min().unwrap_or(1_228)).unwrap_or(u16::MAX)
    }

    /// The largest IP packet that any lane sends, bytes, which pacing makes room for.
    pub(in crate::core) fn mtu(&self) -> u64 {
        let lanes = self.lanes.iter().flatten();
        lanes.map(|lane| u64::from(lane.quinn.current_mtu())).max().unwrap_or(1_200) + 28
    }
}

/// Of IP and UDP.
const fn overhead(to: SocketAddr) -> u64 {
    if to.is_ipv4() { 28 } else { 48 }
}
