//! Packets of a flow that carries UDP: each is sent whole or not at all, and none is repeated.

use bytes::Bytes;
use std::collections::VecDeque;

/// Bytes that may wait in each direction, half a second at 4 Mbit/s: late packets are useless.
const MOST: usize = 256 * 1024;

#[derive(Debug, Default)]
pub(super) struct Packets {
    out: DirectionQueue,
    /// Of the first that waits, so much was paid for by turns; less than nothing where repairs are owed.
    paid: i64,
    come: DirectionQueue,
}

#[derive(Debug, Default)]
struct DirectionQueue {
    packets: VecDeque<Bytes>,
    bytes: usize,
}

impl DirectionQueue {
    fn push(&mut self, packet: Bytes) {
        self.bytes += packet.len();
        self.packets.push_back(packet);
    }

    fn pop(&mut self) -> Option<Bytes> {
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.len();
        Some(packet)
    }

    /// Packets without bytes take room, too.
    /// Bytes of memory.
    fn held(&self) -> u64 {
        (self.bytes + self.packets.len() * 64) as u64
    }

    fn has_room(&self, length: usize) -> bool {
        self.bytes + length <= MOST && self.packets.len() < MOST / 64
    }
}

/// A packet's weight for the scheduler. A packet without bytes needs a turn too.
pub(super) fn worth(packet: &Bytes) -> u64 {
    packet.len().max(1) as u64
}

impl Packets {
    /// Takes one to be sent; `false` where too many wait.
    pub(super) fn push(&mut self, packet: Bytes) -> bool {
        let fits = self.out.has_room(packet.len());
        if fits {
            self.out.push(packet);
        }
        fits
    }

    /// A turn of so many bytes: the packet that may go now, if it has had as many turns as it needs.
    pub(super) fn turn(&mut self, bytes: u64) -> Option<Bytes> {
        self.paid = self.paid.saturating_add_unsigned(bytes);
        let first = worth(self.out.packets.front()?).cast_signed();
        if self.paid < first {
            return None;
        }
        self.paid -= first;
        self.out.pop()
    }

    /// Bytes beside packets that were sent, to be paid by turns.
    pub(super) const fn owe(&mut self, bytes: u64) {
        self.paid = self.paid.saturating_sub_unsigned(bytes);
    }

    /// One came; the oldest go where too many wait. It is copied: a slice would keep all that came with it.
    pub(super) fn on_come(&mut self, packet: &[u8]) {
        while !self.come.has_room(packet.len()) && self.come.pop().is_some() {}
        self.come.push(Bytes::copy_from_slice(packet));
    }

    /// Memory of those that came and wait to be taken, bytes.
    pub(super) fn held(&self) -> u64 {
        self.come.held()
    }

    pub(super) fn take(&mut self) -> Option<Bytes> {
        self.come.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_goes_when_it_is_paid_for() {
        let mut packets = Packets::default();
        assert!(packets.push(Bytes::from(vec![1; 1_000])) && packets.push(Bytes::new()));
        assert_eq!(packets.turn(600), None);
        assert_eq!(packets.turn(400).map(|packet| packet.len()), Some(1_000));
        assert_eq!(packets.turn(1).map(|packet| packet.len()), Some(0));
        assert_eq!(packets.turn(1), None);
    }

    #[test]
    fn unread_packets_do_not_accumulate() {
        let mut packets = Packets::default();
        for nth in 0..10_000_u32 {
            packets.on_come(&nth.to_be_bytes());
        }
        let first = packets.take().unwrap();
        assert_eq!(first[..], (10_000 - MOST as u32 / 64).to_be_bytes());
        let large = Bytes::from(vec![0; MOST / 2]);
        let sent = (0..5).filter(|_| packets.push(large.clone())).count();
        assert_eq!(sent, 2);
    }
}
