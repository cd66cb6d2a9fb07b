//! Packets of a flow that carries UDP: each is sent whole or not at all, and none is repeated.

use bytes::Bytes;
use ekiden_model::resources::send_queue::SendQueue;
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

    /// Bytes of memory: packets without bytes take room, too.
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
    /// Takes one to be sent, where all flows have left so much memory `free`; `false` where too many wait.
    pub(super) fn push(&mut self, packet: Bytes, free: u64) -> bool {
        let length = packet.len();
        let fits = self.out.has_room(length) && self.queue().takes_packet(length as u64, free);
        if fits {
            self.out.push(packet);
        }
        fits
    }

    /// A turn of so many bytes. [`Packets::next`] is to be asked until it has none: of all that was paid for, none stays.
    pub(super) const fn pay(&mut self, bytes: u64) {
        self.paid = self.paid.saturating_add_unsigned(bytes);
    }

    /// The next packet that has had as many turns as it needs.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        let first = worth(self.out.packets.front()?).cast_signed();
        if self.paid < first {
            return None;
        }
        self.paid -= first;
        self.out.pop()
    }

    /// Those that wait to be sent.
    pub(super) fn queue(&self) -> SendQueue {
        SendQueue { bytes: self.out.bytes as u64, pieces: self.out.packets.len() as u64 }
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
    use proptest::collection::vec;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    const FREE: u64 = 64 << 20;

    #[test]
    fn a_packet_goes_when_it_is_paid_for() {
        let mut packets = Packets::default();
        assert!(
            packets.push(Bytes::from(vec![1; 1_000]), FREE) && packets.push(Bytes::new(), FREE)
        );
        packets.pay(600);
        assert_eq!(packets.next(), None);
        packets.pay(400);
        assert_eq!(packets.next().map(|packet| packet.len()), Some(1_000));
        assert_eq!(packets.next(), None);
        packets.pay(1);
        assert_eq!(packets.next().map(|packet| packet.len()), Some(0));
        assert_eq!(packets.next(), None);
    }

    proptest! {
        /// To see it fail: take one packet a turn. What a turn paid beyond it would never be given by another.
        #[test]
        fn turns_for_all_that_waits_leave_nothing(
            lengths in vec(0_usize..2_000, 1..40),
            turn in 1_u64..1_500,
            repair in 0_u64..1_500,
        ) {
            let mut packets = Packets::default();
            let mut waiting = 0;
            for length in &lengths {
                let packet = Bytes::from(vec![0; *length]);
                waiting += worth(&packet);
                prop_assert!(packets.push(packet, FREE));
            }
            let mut sent = 0;
            while waiting > 0 {
                let bytes = turn.min(waiting);
                waiting -= bytes;
                packets.pay(bytes);
                while packets.next().is_some() {
                    sent += 1;
                    packets.owe(repair);
                    waiting += repair;
                }
            }
            prop_assert_eq!(sent, lengths.len());
        }
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
        let sent = (0..5).filter(|_| packets.push(large.clone(), FREE)).count();
        assert_eq!(sent, 2);
    }
}
