//! Flows of packets that are coded, by [`ekiden_model::control::repair::packets`].
//!
//! A repair follows the packet with which it falls due, and takes turns as packets do; those of a burst's end are sent
//! where nothing else waits. What a queue drops, or the path for want of room, was never numbered or counts as lost: its
//! senders see it, but for as many losses as their repairs undo.

use super::super::flow::Coding;
use super::Tunnel;
use super::repair::{ATTACH, LOSS_FROM, MOST_KEPT, most_received};
use crate::core::reassembly::WHOLE;
use crate::frame::{Frame, pad};
use bytes::{Bytes, BytesMut};
use ekiden_model::control::repair::packets::decoder::BOUND;
use ekiden_model::control::repair::packets::{PacketPath, PacketRepair, PacketStep, Part, parts};
use ekiden_model::control::repair::plan::SHORTEST;
use ekiden_model::control::scheduler;
use ekiden_model::units::{self, Span, Time};

/// Parts of a packet are no shorter: what has less room goes on the flow's stream.
const SHORTEST_PART: usize = 256;
/// A type, a length of two bytes, a number, how many packets, and which repair.
const REPAIR: usize = 1 + 2 + 8 + 2;
/// A packet that is no longer goes in parts where no datagram has room for it: any path carries such (RFC 8200 §5). A
/// longer one is dropped, so that its sender finds the largest that fits (RFC 9000 §14.3).
const SMALLEST_MTU: usize = 1_280;
/// UDP payload that every path of QUIC takes.
const SHORTEST_MTU: usize = 1_200;
/// A packet that fitted so lately goes in parts, too: the path may only seem narrower for a while.
const REMEMBERED: Span = Span::from_secs(60);
/// A datagram that lacks no more bytes than these of the largest is filled up where packets are lost. QUIC takes
/// losses of smaller packets for a narrower path where larger ones, with acknowledgements in them, are rare.
const FILLED: std::ops::RangeInclusive<usize> = 2..=65;
/// So is one of eight that are longer than every path takes, whatever it lacks. One acknowledgement may tell of several
/// losses beyond the last arrival of the largest size, and QUIC takes four for a narrower path. With one of 16, three of
/// ten minutes at 5 % of loss had that; with eight one of fourteen. It costs 2 % of the bytes of packets of 1,252.
const FILLED_OF: u8 = 8;
/// Of QUIC: the packet's first byte, an identifier, a number and a tag, and the frame's type and length.
const QUIC_TAKES: usize = 1 + 8 + 4 + 16 + 3;

impl Tunnel {
    /// A packet of a coded flow has had its turns.
    pub(super) fn send_coded(&mut self, now: Time, id: u64, turn: scheduler::Turn, packet: Bytes) {
        if self.repairs.packets_sent + packet.len() > MOST_KEPT {
            self.expire_packets(now);
        }
        let room = self.datagram_room();
        let Some((header, path)) = self.packet_path(id, packet.len(), room) else { return };
        let longest = path.longest();
        if longest >= self.widest.0 || now > self.widest.1 + REMEMBERED {
            self.widest = (longest, now);
        }
        if packet.len() > self.widest.0.max(SMALLEST_MTU) && room > 0 {
            return;
        }
        // without datagrams it is no shorter as parts
        let most = if longest < SHORTEST_PART { usize::MAX } else { longest };
        for (part, range) in parts(packet.len(), most) {
            self.send_part(now, (id, turn), (part, packet.slice(range)), (&header, &path, room));
        }
    }

    /// Drops what flows that fell silent keep for repairs, at most once in the time that these cover. Where the line is not
    /// busy, they do so themselves.
    fn expire_packets(&mut self, now: Time) {
        if now.since(self.repairs.expired) < BOUND {
            return;
        }
        self.repairs.expired = now;
        for coding in self.flows.values_mut().filter_map(|flow| flow.coding.as_mut()) {
            self.repairs.packets_sent -= coding.encoder.kept();
            coding.encoder.expire(now);
            self.repairs.packets_sent += coding.encoder.kept();
        }
    }

    /// Bytes of sent packets that are kept for repairs.
    #[cfg(test)]
    pub(in crate::core) const fn packets_kept(&self) -> usize {
        self.repairs.packets_sent
    }

    fn send_part(
        &mut self,
        now: Time,
        (id, turn): (u64, scheduler::Turn),
        (part, packet): (Part, Bytes),
        (header, path, room): (&BytesMut, &PacketPath, usize),
    ) {
        let nth = turn.lane as usize;
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let Some(coding) = &mut flow.coding else { return };
        self.repairs.packets_sent -= coding.encoder.kept();
        let sent = (part, packet.len());
        let numbered = coding.encoder.on_sent(now, sent, path, || packet.clone());
        let repair = coding.encoder.accompany(path);
        self.repairs.packets_sent += coding.encoder.kept();
        self.repairs.look(now, (id, flow));
        let frame = Frame::Numbered { number: numbered.number, back: numbered.back, part, packet };
        let mut bytes = header.clone();
        frame.write(&mut bytes);
        self.fill(&mut bytes, room);
        if !self.send_in_datagram(nth, bytes.freeze()) {
            self.say(now, id, nth, &[frame], false);
        }
        if let Some(repair) = repair {
            let length = self.send_packet_repair(nth, header.clone(), repair);
            let Some(flow) = self.flows.get_mut(&id) else { return };
            flow.packets.owe(length);
            self.scheduler.on_waiting(turn.flow, units::Bytes::new(length));
        }
    }

    /// Where packets are lost, fills a datagram with a packet up to the largest size, if it is to have that.
    pub(super) fn fill(&mut self, bytes: &mut BytesMut, room: usize) {
        let lacks = room.saturating_sub(bytes.len());
        if self.loss.lately() < LOSS_FROM || bytes.len() + QUIC_TAKES <= SHORTEST_MTU {
            return;
        }
        self.unfilled = self.unfilled.saturating_add(1);
        if FILLED.contains(&lacks) || self.unfilled >= FILLED_OF && lacks >= *FILLED.start() {
            pad(bytes, lacks);
            self.unfilled = 0;
        }
    }

    /// Looks whether a burst of packets is over and has repairs left; whether one was sent.
    pub(super) fn repair_packets(&mut self, now: Time, id: u64) -> bool {
        let room = self.datagram_room();
        let Some((header, path)) = self.packet_path(id, 0, room) else { return false };
        let Some(flow) = self.flows.get_mut(&id) else { return false };
        flow.sending.repair_at = None;
        let nth = usize::from(flow.lane == scheduler::Lane::Bulk);
        let Some(coding) = &mut flow.coding else { return false };
        self.repairs.packets_sent -= coding.encoder.kept();
        let step = coding.encoder.step(now, &path);
        self.repairs.packets_sent += coding.encoder.kept();
        match step {
            PacketStep::Idle => false,
            PacketStep::Wait(at) => {
                self.repairs.look(at, (id, flow));
                false
            }
            PacketStep::Repair(repair) => {
                self.repairs.look(now, (id, flow));
                self.send_packet_repair(nth, header, repair) > 0
            }
        }
    }

    /// Sends a repair; bytes of it.
    fn send_packet_repair(
        &mut self,
        nth: usize,
        mut header: BytesMut,
        repair: PacketRepair<Vec<u8>>,
    ) -> u64 {
        let PacketRepair { first, count, nth: number, symbol } = repair;
        let repair = PacketRepair { first, count, nth: number, symbol: Bytes::from(symbol) };
        Frame::PacketRepair(repair).write(&mut header);
        let length = header.len() as u64;
        if !self.send_in_datagram(nth, header.freeze()) {
            return 0;
        }
        self.counts.repairs += 1;
        self.counts.repair_bytes += length;
        length
    }

    /// The first frame of a flow's datagrams, and what is known of the path for a packet of this size, where a datagram
    /// has so much room.
    fn packet_path(&self, id: u64, size: usize, room: usize) -> Option<(BytesMut, PacketPath)> {
        let flow = self.flows.get(&id)?;
        let header = flow.header(id).to_bytes();
        let coded = self.greeting.as_ref().is_some_and(|peer| peer.coded);
        // beyond the memory for them, packets are not repaired
        let keeps = self.repairs.packets_sent + size <= MOST_KEPT;
        let room = room.saturating_sub(header.len().max(ATTACH) + REPAIR);
        let long = self.rtt().is_some_and(|rtt| rtt >= SHORTEST);
        let loses = self.loss.lately() >= LOSS_FROM;
        let loss = if coded && keeps && long && loses { self.loss.upper() } else { 0.0 };
        Some((header, PacketPath { loss, room }))
    }

    /// Bytes that fit into a datagram on each lane.
    pub(super) fn datagram_room(&mut self) -> usize {
        let lanes = self.lanes.iter_mut().flatten().filter(|lane| lane.connected);
        lanes.map(super::Lane::datagram_room).min().unwrap_or(0)
    }

    pub(super) fn on_numbered(
        &mut self,
        now: Time,
        id: u64,
        (number, back, part): (u64, u8, Part),
        packet: Bytes,
    ) {
        // a small one would keep its whole datagram
        let kept = match packet.len() {
            WHOLE.. => packet,
            _ => Bytes::copy_from_slice(&packet),
        };
        self.decode(now, id, |coding| coding.decoder.on_packet(now, number, back, part, kept));
    }

    pub(super) fn on_packet_repair(&mut self, now: Time, id: u64, repair: PacketRepair<Bytes>) {
        self.decode(now, id, |coding| coding.decoder.on_repair(now, &repair));
    }

    /// When packets are given up, and those behind them released.
    pub(super) fn release_deadline(&self) -> Time {
        self.repairs.decoders.first().map_or(Time::NEVER, |(at, _)| *at)
    }

    /// Releases what has waited long enough.
    pub(super) fn release_packets(&mut self, now: Time) {
        while let Some((at, id)) = self.repairs.decoders.first().copied() {
            if at > now {
                return;
            }
            self.decode(now, id, |coding| coding.decoder.on_deadline(now));
        }
    }

    /// Has a flow's decoder take something, and delivers what it releases.
    fn decode(&mut self, now: Time, id: u64, take: impl FnOnce(&mut Coding)) {
        let most = most_received(self.limits.memory.as_u64());
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let Some(coding) = &mut flow.coding else {
            return self.fail("the peer numbered packets of a flow that is not coded".to_owned());
        };
        let before = coding.decoder.counts().repaired_bytes;
        self.repairs.packets_received -= coding.decoder.kept();
        take(coding);
        if self.repairs.packets_received + coding.decoder.kept() > most {
            coding.decoder.flush();
        }
        self.repairs.packets_received += coding.decoder.kept();
        self.counts.repaired += coding.decoder.counts().repaired_bytes - before;
        if let Some(at) = coding.look_at.take() {
            self.repairs.decoders.remove(&(at, id));
        }
        let at = coding.decoder.deadline();
        if at < Time::NEVER {
            coding.look_at = Some(at);
            self.repairs.decoders.insert((at, id));
        }
        let released: Vec<Bytes> = std::iter::from_fn(|| coding.decoder.release()).collect();
        for packet in released {
            self.take_packet(now, id, packet);
        }
    }
}
