//! Packets in and out of the flows that carry them.

use super::Tunnel;
use crate::core::packet_queue::worth;
use crate::frame::{Carries, Frame, LONGEST};
use bytes::Bytes;
use ekiden_model::control::scheduler;
use ekiden_model::units::{self, Time};

/// No packet is longer: with its head it must be a frame.
const LARGEST: usize = LONGEST - 8;

impl Tunnel {
    /// Takes a packet to be sent; `false` where it is dropped: too many wait, or it is too long.
    pub(in crate::core) fn send_packet(&mut self, now: Time, id: u64, packet: Bytes) -> bool {
        let Some(flow) = self.flows.get_mut(&id) else { return false };
        let free = self.memory.free(self.limits.send_memory(), flow);
        let over = flow.sending.ended || flow.sending.end.is_some();
        if over || !flow.opening.carries.is_packets() || packet.len() > LARGEST {
            return false;
        }
        let worth = worth(&packet);
        self.shortage.short |= !flow.queue().takes_packet(packet.len() as u64, free);
        let taken = flow.packets.push(packet, free);
        if taken {
            self.memory.on_queue(flow);
            let lane = flow.on_moved(now, worth);
            self.scheduler.set_lane(flow.turns, lane);
            self.scheduler.on_waiting(flow.turns, units::Bytes::new(worth));
        }
        taken
    }

    pub(in crate::core) fn packet(&mut self, id: u64) -> Option<Bytes> {
        let packets = &mut self.flows.get_mut(&id)?.packets;
        let before = packets.held();
        let packet = packets.take()?;
        self.packets -= before - packets.held();
        self.counts.taken += packet.len() as u64;
        Some(packet)
    }

    pub(super) fn on_packet(&mut self, now: Time, id: u64, packet: Bytes) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if flow.opening.carries != Carries::Packets {
            return self
                .fail("the peer sent a packet in a flow that does not carry such".to_owned());
        }
        self.take_packet(now, id, packet);
    }

    /// A packet is to be delivered.
    pub(super) fn take_packet(&mut self, now: Time, id: u64, packet: Bytes) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let lane = flow.on_moved(now, worth(&packet));
        // those of all flows together take a quarter of the memory; a packet may be lost
        if self.packets < self.limits.memory.as_u64() / 4 {
            self.packets -= flow.packets.held();
            flow.packets.on_come(&packet);
            self.packets += flow.packets.held();
        }
        self.scheduler.set_lane(flow.turns, lane);
        if flow.ours && flow.answer.is_none() {
            flow.answer = Some(Ok(()));
        }
        self.changed(id);
    }

    /// A turn of a flow of packets: writes those that have had enough turns, each in a datagram, or on the flow's
    /// stream where it is too long for one.
    pub(super) fn packet_turn(&mut self, now: Time, id: u64, turn: scheduler::Turn) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        flow.packets.pay(turn.bytes.as_u64());
        // one that is paid for and stays would wait for those that come after it
        while let Some(flow) = self.flows.get_mut(&id) {
            let Some(packet) = flow.packets.next() else { return };
            self.memory.on_queue(flow);
            self.send_one(now, id, turn, packet);
        }
    }

    fn send_one(&mut self, now: Time, id: u64, turn: scheduler::Turn, packet: Bytes) {
        let Some(flow) = self.flows.get(&id) else { return };
        if flow.coding.is_some() {
            return self.send_coded(now, id, turn, packet);
        }
        let nth = turn.lane as usize;
        let mut bytes = flow.header(id).to_bytes();
        let frame = Frame::Packet(packet);
        frame.write(&mut bytes);
        let room = self.datagram_room();
        self.fill(&mut bytes, room);
        if !self.send_in_datagram(nth, bytes.freeze()) {
            self.say(now, id, nth, &[frame], false);
        }
    }
}
