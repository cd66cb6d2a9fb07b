//! Queue disciplines: drop-tail, strict priority, acknowledgements first, FQ-CoDel.

use super::fq_codel::{FqCodel, FqCodelConfig};
use super::{Packet, Waiting};
use crate::units::{Bytes, Time};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// How much may wait. The packet being sent does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Any amount.
    Unlimited,
    /// So many packets; a super-packet counts as its segments.
    Packets(u64),
    /// So many bytes of IP packets.
    Bytes(Bytes),
}

/// The queue's discipline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Discipline {
    /// First in, first out; packets that do not fit are dropped on arrival.
    DropTail(Bound),
    /// The lowest class first, within it first in, first out. Each class has the bound for itself.
    Priority(Bound),
    /// Bare TCP acknowledgements (class 0) first, so that a congested uplink does not hold up the
    /// downlink (RFC 3449 §5.4). Each class has its own bound; a packet in transmission is not
    /// interrupted.
    AckFirst(Bound),
    /// RFC 8290.
    FqCodel(FqCodelConfig),
}

/// Classes of strict priority; higher numbers share the last.
const CLASSES: usize = 8;

#[derive(Debug, Clone)]
pub(super) enum Queue {
    Classes { bound: Bound, by_class: Vec<Fifo> },
    FqCodel(FqCodel),
}

impl Queue {
    pub(super) fn new(discipline: &Discipline) -> Self {
        match discipline {
            Discipline::DropTail(bound) => {
                Self::Classes { bound: *bound, by_class: alloc::vec![Fifo::default()] }
            }
            Discipline::Priority(bound) => {
                Self::Classes { bound: *bound, by_class: alloc::vec![Fifo::default(); CLASSES] }
            }
            Discipline::AckFirst(bound) => {
                Self::Classes { bound: *bound, by_class: alloc::vec![Fifo::default(); 2] }
            }
            Discipline::FqCodel(config) => Self::FqCodel(FqCodel::new(config.clone())),
        }
    }

    /// Enqueues a packet; `dropped` receives it, or another that had to make room.
    pub(super) fn push(&mut self, now: Time, waiting: Waiting, dropped: &mut impl FnMut(&Waiting)) {
        match self {
            Self::Classes { bound, by_class } => {
                let class = usize::from(waiting.packet.class).min(by_class.len() - 1);
                if by_class[class].has_room(*bound, &waiting) {
                    by_class[class].push(waiting);
                } else {
                    dropped(&waiting);
                }
            }
            Self::FqCodel(queue) => queue.push(now, waiting, dropped),
        }
    }

    /// The next packet to send; `dropped` receives those that the queue management discards first.
    pub(super) fn pop(&mut self, now: Time, dropped: &mut impl FnMut(&Waiting)) -> Option<Waiting> {
        match self {
            Self::Classes { by_class, .. } => by_class.iter_mut().find_map(Fifo::pop),
            Self::FqCodel(queue) => queue.pop(now, dropped),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets() == 0
    }

    /// Packets offered that wait, a super-packet as one.
    pub(super) fn packets(&self) -> u64 {
        match self {
            Self::Classes { by_class, .. } => by_class.iter().map(Fifo::len).sum(),
            Self::FqCodel(queue) => queue.packets,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Classes { by_class, .. } => by_class.iter().map(Fifo::bytes).sum(),
            Self::FqCodel(queue) => queue.bytes,
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Room {
    segments: u64,
    pub(super) bytes: u64,
}

impl Room {
    /// Whether so much more fits under the bound.
    pub(super) fn has(&self, bound: Bound, segments: u64, bytes: u64) -> bool {
        match bound {
            Bound::Unlimited => true,
            Bound::Packets(most) => self.segments + segments <= most,
            Bound::Bytes(most) => self.bytes + bytes <= most.as_u64(),
        }
    }

    pub(super) const fn add(&mut self, segments: u64, bytes: u64) {
        self.segments += segments;
        self.bytes += bytes;
    }

    pub(super) const fn take(&mut self, segments: u64, bytes: u64) {
        self.segments -= segments;
        self.bytes -= bytes;
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Fifo {
    packets: VecDeque<Waiting>,
    used: Room,
}

impl Fifo {
    fn has_room(&self, bound: Bound, waiting: &Waiting) -> bool {
        self.used.has(bound, segments(&waiting.packet), waiting.packet.bytes.into())
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        self.used.add(segments(&waiting.packet), waiting.packet.bytes.into());
        self.packets.push_back(waiting);
    }

    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.packets.pop_front()?;
        self.used.take(segments(&waiting.packet), waiting.packet.bytes.into());
        Some(waiting)
    }

    pub(super) fn len(&self) -> u64 {
        self.packets.len() as u64
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.used.bytes
    }
}

/// What a packet counts as under a bound in packets.
pub(super) fn segments(packet: &Packet) -> u64 {
    packet.segments.max(1).into()
}
