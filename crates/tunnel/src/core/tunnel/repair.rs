//! Coded repairs of flows' bytes, by [`ekiden_model::control::repair`].
//!
//! They are sent where nothing else waits and no queue stands. Data that may be repaired goes on a
//! stream of its own, so that what was decoded does not wait for the retransmission in QUIC's order.

use super::super::OutgoingDatagram;
use super::super::flow::Flow;
use super::Tunnel;
use crate::core::reassembly::WHOLE;
use crate::frame::Frame;
use bytes::Bytes;
use ekiden_model::control::repair::{Path, Recovery, Repaired, Step, Window};
use ekiden_model::control::scheduler;
use ekiden_model::units::{Span, Time};
use quinn_proto::StreamId;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Instant;

/// Losses below this are not repaired, and data shares streams: one of 2,000 packets.
pub(super) const LOSS_FROM: f64 = 0.000_5;
/// A queue of this length stands, and repairs would lengthen it.
pub(super) const QUEUE: Span = Span::from_millis(25);
/// ATTACH, and REPAIR without its symbol: numbers of 4 bytes, and of 8 for an offset beyond 1 GiB.
const HEADER: usize = ATTACH + 1 + 2 + 8 + 2 + 4 + 4 + 1;
pub(super) const ATTACH: usize = 1 + 1 + 4;
/// Where fewer bytes of data fit into a datagram, it is not cut to be repaired.
pub(super) const LEAST_ROOM: u32 = 512;
/// Bytes kept for repairs in each direction; of what was received, within a sixteenth of the tunnel's memory.
pub(super) const MOST_KEPT: usize = 8 << 20;
/// Pieces kept for decoding.
const MOST_PIECES: usize = 32_768;

/// What a tunnel keeps for repairs, beside that of its flows.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    /// Flows by the time at which their repairs are to be looked at.
    looks: BTreeSet<(Time, u64)>,
    /// By lane: the flow and offset of the data on a stream.
    streams: [HashMap<StreamId, (u64, u64)>; 2],
    /// Bytes that flows keep: sent, and received.
    sent: usize,
    pub(super) received: usize,
    /// The flow of each piece and repair received, in the order of arrival.
    arrivals: VecDeque<u64>,
    /// Memory that coded flows of packets take: sent, and received.
    pub(super) packets_sent: usize,
    pub(super) packets_received: usize,
    /// When packets that nothing repairs any more were last dropped.
    pub(super) expired: Time,
    /// Those flows by the time at which their decoders are to be looked at.
    pub(super) decoders: BTreeSet<(Time, u64)>,
}

impl Repairs {
    /// Data of a flow was written to a stream of its own.
    pub(super) fn on_sent(
        &mut self,
        now: Time,
        (id, flow): (u64, &mut Flow),
        (nth, stream): (usize, StreamId),
        (offset, bytes): (u64, &Bytes),
        copied: bool,
    ) {
        if self.sent + bytes.len() > MOST_KEPT {
            return;
        }
        let plan = &mut flow.sending.repairs;
        self.sent -= plan.kept();
        // a slice would keep all that was read with it
        plan.on_sent(now, offset, Bytes::copy_from_slice(bytes), copied);
        self.sent += plan.kept();
        self.streams[nth].insert(stream, (id, offset));
        if !copied {
            self.look(now, (id, flow));
        }
    }

    /// Looks at a flow's repairs then, or earlier where that was said before.
    pub(super) fn look(&mut self, at: Time, (id, flow): (u64, &mut Flow)) {
        if flow.sending.repair_at.is_none_or(|known| known > at) {
            if let Some(known) = flow.sending.repair_at.replace(at) {
                self.looks.remove(&(known, id));
            }
            self.looks.insert((at, id));
        }
    }

    /// What flows keep is counted, and bounded.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn assert_bounded<'a>(
        &self,
        flows: impl Iterator<Item = &'a Flow> + Clone,
        memory: u64,
    ) {
        let coded = |(sent, received): (usize, usize), flow: &Flow| {
            let coding = flow.coding.as_ref();
            let kept = coding.map(|coding| (coding.encoder.kept(), coding.decoder.kept()));
            let (out, come) = kept.unwrap_or_default();
            (sent + out, received + come)
        };
        assert_eq!(flows.clone().fold((0, 0), coded), (self.packets_sent, self.packets_received));
        // one flow may be filled by the last packet
        let most = most_received(memory) + (1 << 18);
        assert!(self.packets_sent <= MOST_KEPT && self.packets_received <= most);
        let kept = |(sent, received): (usize, usize), flow: &Flow| {
            (sent + flow.sending.repairs.kept(), received + flow.receiving.recovery.kept())
        };
        assert_eq!(flows.fold((0, 0), kept), (self.sent, self.received));
        assert!(self.sent <= MOST_KEPT && self.received <= most_received(memory));
        assert!(self.arrivals.len() <= MOST_PIECES);
    }

    pub(super) fn on_removed(&mut self, id: u64, flow: &Flow) {
        self.sent -= flow.sending.repairs.kept();
        self.received -= flow.receiving.recovery.kept();
        if let Some(at) = flow.sending.repair_at {
            self.looks.remove(&(at, id));
        }
        if let Some(coding) = &flow.coding {
            self.packets_sent -= coding.encoder.kept();
            self.packets_received -= coding.decoder.kept();
            if let Some(at) = coding.look_at {
                self.decoders.remove(&(at, id));
            }
        }
    }
}

/// Bytes received that are kept, of a tunnel with so much memory.
pub(super) fn most_received(memory: u64) -> usize {
    (memory / 16).min(MOST_KEPT as u64) as usize
}

impl Tunnel {
    /// Whether losses were seen lately, on a path to a peer that can repair them.
    pub(super) fn repairs_losses(&self) -> bool {
        self.loss.lately() >= LOSS_FROM && self.greeting.as_ref().is_some_and(|peer| peer.repairs)
    }

    /// Bytes of a flow's data whose repair fits into a packet, where there may be one.
    pub(super) fn repairable(&mut self, header: usize) -> u64 {
        match self.repair_room(header) {
            room if room > 0 && self.repairs_losses() => u64::from(room),
            _ => u64::MAX,
        }
    }

    /// Bytes of a repair symbol that fit beside a flow's header; 0 where they are too few to be worth it.
    fn repair_room(&mut self, header: usize) -> u32 {
        let room = self.datagram_room().saturating_sub(HEADER + header.saturating_sub(ATTACH));
        u32::try_from(room).ok().filter(|room| *room >= LEAST_ROOM).unwrap_or(0)
    }

    /// Streams were acknowledged as a whole, or are not wanted.
    pub(super) fn on_finished(&mut self, nth: usize, finished: &[StreamId]) {
        for stream in finished {
            let Some((id, offset)) = self.repairs.streams[nth].remove(stream) else { continue };
            let Some(flow) = self.flows.get_mut(&id) else { continue };
            let plan = &mut flow.sending.repairs;
            self.repairs.sent -= plan.kept();
            plan.on_arrived(offset);
            self.repairs.sent += plan.kept();
        }
    }

    /// When a repair may be due; never while other bytes wait, or a queue stands.
    pub(super) fn repair_deadline(&self) -> Time {
        let Some((at, _)) = self.repairs.looks.first() else { return Time::NEVER };
        let free = self.scheduler.snapshot().waiting == [0; 2]
            && self.may_send_new()
            && self.hold.snapshot().queue < QUEUE;
        if free { *at } else { Time::NEVER }
    }

    /// The next repair that is due.
    pub(super) fn repair(
        &mut self,
        now: Time,
        clock: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<OutgoingDatagram> {
        while self.repair_deadline() <= now {
            let rtt = self.rtt()?;
            let (_, id) = self.repairs.looks.pop_first()?;
            let loss = if self.repairs_losses() { self.loss.lately() } else { 0.0 };
            let Some(flow) = self.flows.get(&id) else { continue };
            if flow.coding.is_some() {
                if self.repair_packets(now, id)
                    && let Some(out) = self.poll_lanes(now, clock, buf)
                {
                    return Some(out);
                }
                continue;
            }
            let header = match flow.is_opening() {
                true => flow.header(id).to_bytes().len(),
                false => ATTACH,
            };
            let path = Path { rtt, loss, room: self.repair_room(header) };
            let Some(flow) = self.flows.get_mut(&id) else { continue };
            flow.sending.repair_at = None;
            let plan = &mut flow.sending.repairs;
            self.repairs.sent -= plan.kept();
            let step = plan.step(now, &path);
            self.repairs.sent += plan.kept();
            match step {
                Step::Idle => {}
                Step::Wait(at) => self.repairs.look(at, (id, flow)),
                Step::Repair(window, symbol) => {
                    self.repairs.look(now, (id, flow));
                    let nth = usize::from(flow.lane == scheduler::Lane::Bulk);
                    let mut bytes = flow.header(id).to_bytes();
                    Frame::Repair { window, symbol: symbol.into() }.write(&mut bytes);
                    let length = bytes.len() as u64;
                    if self.send_in_datagram(nth, bytes.freeze()) {
                        self.counts.repairs += 1;
                        self.counts.repair_bytes += length;
                        let out = self.poll_lane(now, clock, nth, buf);
                        let out = out.or_else(|| self.poll_lane(now, clock, 1 - nth, buf));
                        if out.is_some() {
                            return out;
                        }
                    }
                }
            }
        }
        None
    }

    /// Sends frames about a flow in a datagram, on a lane or the other; `false` where they do not fit.
    pub(super) fn send_in_datagram(&mut self, nth: usize, bytes: Bytes) -> bool {
        [nth, 1 - nth].iter().any(|nth| {
            let lane = self.lanes[*nth].as_mut().filter(|lane| lane.connected);
            lane.is_some_and(|lane| lane.fits(bytes.len()) && lane.send_datagram(bytes.clone()))
        })
    }

    /// Data arrived: keeps it for repairs, and returns what it allows to decode.
    pub(super) fn recover(&mut self, id: u64, offset: u64, bytes: &Bytes) -> Repaired {
        if !self.greeting.as_ref().is_some_and(|peer| peer.repairs) {
            return Repaired::new();
        }
        let Some(flow) = self.flows.get_mut(&id) else { return Repaired::new() };
        let recovery = &mut flow.receiving.recovery;
        self.repairs.received -= recovery.kept();
        // a small one would keep its whole datagram
        let kept = match bytes.len() {
            WHOLE.. => bytes.clone(),
            _ => Bytes::copy_from_slice(bytes),
        };
        let repaired = recovery.on_bytes(offset, kept);
        self.repairs.received += recovery.kept();
        self.repairs.arrivals.push_back(id);
        self.forget();
        repaired
    }

    pub(super) fn on_repair(&mut self, now: Time, id: u64, window: Window, symbol: &[u8]) {
        let promised = self.promised;
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if flow.opening.carries.is_packets() {
            return self.fail("the peer sent a repair of a flow of packets".to_owned());
        }
        let range = window.range();
        if range.end > flow.receiving.granted.max(promised) {
            return self.fail("the peer sent a repair of a flow beyond its credit".to_owned());
        }
        if range.end <= flow.receiving.assembly.complete() {
            return;
        }
        let recovery = &mut flow.receiving.recovery;
        self.repairs.received -= recovery.kept();
        let repaired = recovery.on_repair(window, symbol);
        self.repairs.received += recovery.kept();
        self.repairs.arrivals.push_back(id);
        self.forget();
        self.on_repaired(now, id, repaired);
    }

    /// Bytes were decoded.
    pub(super) fn on_repaired(&mut self, now: Time, id: u64, repaired: Repaired) {
        for (offset, bytes) in repaired {
            let came = |tunnel: &Self| {
                tunnel.flows.get(&id).map_or(0, |flow| flow.receiving.assembly.came())
            };
            let before = came(self);
            self.take_data(now, id, offset, bytes.into());
            self.counts.repaired += came(self).saturating_sub(before);
        }
    }

    /// Bytes received that are kept for repairs.
    #[cfg(test)]
    pub(in crate::core) const fn kept_for_repairs(&self) -> usize {
        self.repairs.received
    }

    /// Drops the oldest pieces beyond the memory for them.
    fn forget(&mut self) {
        let most = most_received(self.limits.memory.as_u64());
        while self.repairs.received > most || self.repairs.arrivals.len() > MOST_PIECES {
            let Some(id) = self.repairs.arrivals.pop_front() else {
                // what was cut into small pieces has more of them than arrived
                self.flows
                    .values_mut()
                    .for_each(|flow| flow.receiving.recovery = Recovery::default());
                self.repairs.received = 0;
                return;
            };
            let Some(flow) = self.flows.get_mut(&id) else { continue };
            let recovery = &mut flow.receiving.recovery;
            self.repairs.received -= recovery.kept();
            recovery.forget_first();
            self.repairs.received += recovery.kept();
        }
    }
}
