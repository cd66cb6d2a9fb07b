//! The sender: numbers packets, and decides when a repair is due.
//!
//! While packets follow one another, repairs accompany them at twice the loss and a fiftieth, as those of bytes do. When
//! none followed for a while, as many more are sent as leave a hole in one of 200 bursts. Bytes of repairs are earned by
//! bytes of packets at the same rate, so that flows of few and small packets do not cost more than that.

use super::super::field::add_multiple;
use super::super::plan::repairs;
use super::{LENGTH, MOST_PACKETS, PacketRepair, coefficient, length};
use crate::units::{Span, Time};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Below this loss nothing is repaired: as for bytes, one of 2,000 packets.
const LOSS_FROM: f64 = 0.000_5;
/// Loss beyond this is no reason for more repairs: they would displace what they repair.
const MOST_LOSS: f64 = 0.25;
/// Repairs for each packet beside twice the loss (algorithms/satellite E.7).
const BESIDE: f64 = 0.02;
/// Bytes of repairs before any packet has earned them: those of a first flight of ten packets.
pub const ALLOWANCE: f64 = 4_096.0;
/// Bytes of repairs that may be earned and not sent.
const EARNED: f64 = 12_288.0;
/// Packets are covered for so long. The receiver gives them up then.
const COVERED: Span = super::decoder::BOUND;
/// Silence that ends a burst: longer than the gap between packets of a paced sender at 1 Mbit/s.
const QUIET: Span = Span::from_millis(12);
/// Between repairs of a burst's end: beyond a short burst of losses.
const APART: Span = Span::from_millis(4);

/// What is known of the path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PacketPath {
    /// The share of packets lost, 0 to 1.
    pub loss: f64,
    /// The longest repair symbol that fits into a packet, bytes.
    pub room: usize,
}

impl PacketPath {
    const fn codes(&self) -> bool {
        self.loss >= LOSS_FROM
    }

    /// Repairs for each packet.
    pub fn rate(&self) -> f64 {
        if self.codes() { 2.0 * self.loss.min(MOST_LOSS) + BESIDE } else { 0.0 }
    }
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PacketStep {
    /// Send this repair, and ask again.
    Repair(PacketRepair<Vec<u8>>),
    /// Ask again then.
    Wait(Time),
    /// Ask after the next packet was sent.
    Idle,
}

/// How a packet is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbered {
    /// Its number.
    pub number: u64,
    /// No repair covers packets so far before it; 0: it is not covered itself, or the first that is.
    pub back: u8,
}

/// One flow's sender.
#[derive(Debug, Clone)]
pub struct Encoder<B> {
    next: u64,
    /// The last ones, which repairs cover.
    window: VecDeque<(Time, B)>,
    kept: usize,
    nth: u8,
    /// Bytes of repairs that may be sent.
    earned: f64,
    /// Repairs owed beside a burst that goes on.
    owed: f64,
    sent_at: Time,
    /// Packets since the last burst's end, and repairs.
    burst: u32,
    repaired: u32,
    /// Repairs of a burst that is over, and when the next one is due.
    left: u32,
    due: Time,
}

impl<B> Default for Encoder<B> {
    fn default() -> Self {
        Self {
            next: 0,
            window: VecDeque::new(),
            kept: 0,
            nth: 0,
            earned: ALLOWANCE,
            owed: 0.0,
            sent_at: Time::ZERO,
            burst: 0,
            repaired: 0,
            left: 0,
            due: Time::ZERO,
        }
    }
}

impl<B: AsRef<[u8]>> Encoder<B> {
    /// A packet is sent now. `copy`: the same bytes, kept for repairs, where they are asked for.
    pub fn on_sent(
        &mut self,
        now: Time,
        size: usize,
        path: &PacketPath,
        copy: impl FnOnce() -> B,
    ) -> Numbered {
        let number = self.next;
        self.next += 1;
        if !path.codes() || size + LENGTH > path.room {
            self.clear();
            return Numbered { number, back: 0 };
        }
        let old = |(at, _): &(Time, B)| now.since(*at) >= COVERED;
        while self.window.len() as u64 >= MOST_PACKETS || self.window.front().is_some_and(old) {
            self.pop();
        }
        let back = self.window.len() as u8;
        self.kept += size;
        self.window.push_back((now, copy()));
        self.sent_at = now;
        self.burst = self.burst.saturating_add(1);
        self.left = 0;
        self.earned = (self.earned + size as f64 * path.rate()).min(EARNED);
        // of what cannot be paid, not more than one is owed later
        self.owed = (self.owed + path.rate()).min(2.0);
        Numbered { number, back }
    }

    /// A repair beside a burst that goes on: asked after each packet.
    pub fn accompany(&mut self, path: &PacketPath) -> Option<PacketRepair<Vec<u8>>> {
        if self.owed < 1.0 {
            return None;
        }
        let repair = self.repair(path)?;
        self.owed -= 1.0;
        Some(repair)
    }

    /// Asked when [`PacketStep::Wait`] said, or a packet was sent, where nothing else waits.
    pub fn step(&mut self, now: Time, path: &PacketPath) -> PacketStep {
        if self.window.is_empty() || !path.codes() {
            return PacketStep::Idle;
        }
        let over = self.sent_at + QUIET;
        if self.burst > 0 {
            if now < over {
                return PacketStep::Wait(over);
            }
            let packets = self.burst.min(self.window.len() as u32);
            self.left = repairs(packets, path.loss).saturating_sub(self.repaired);
            (self.burst, self.repaired, self.owed, self.due) = (0, 0, 0.0, now);
        }
        if self.left == 0 || now.since(self.sent_at) >= COVERED {
            self.clear();
            return PacketStep::Idle;
        }
        if now < self.due {
            return PacketStep::Wait(self.due);
        }
        self.left -= 1;
        self.due = now + APART;
        match self.repair(path) {
            Some(repair) => PacketStep::Repair(repair),
            // nothing will bring back what was lost of it: the receiver need not wait
            None => {
                self.clear();
                PacketStep::Idle
            }
        }
    }

    /// Bytes of packets that are kept.
    pub const fn kept(&self) -> usize {
        self.kept
    }

    /// Nothing before the next packet is repaired any more.
    pub fn clear(&mut self) {
        self.window.clear();
        (self.kept, self.burst, self.repaired, self.left, self.owed) = (0, 0, 0, 0, 0.0);
    }

    fn pop(&mut self) {
        if let Some((_, packet)) = self.window.pop_front() {
            self.kept -= packet.as_ref().len();
        }
    }

    /// The next repair of all that is covered; `None` where it is not paid for, or does not fit any more.
    fn repair(&mut self, path: &PacketPath) -> Option<PacketRepair<Vec<u8>>> {
        let longest = self.window.iter().map(|(_, packet)| packet.as_ref().len()).max()?;
        let width = longest + LENGTH;
        if width > path.room || width as f64 > self.earned {
            return None;
        }
        self.earned -= width as f64;
        self.repaired = self.repaired.saturating_add(1);
        self.nth = self.nth.wrapping_add(1);
        let (nth, count) = (self.nth, self.window.len() as u8);
        let first = self.next - u64::from(count);
        let mut symbol = vec![0; width];
        for (number, (_, packet)) in (first..).zip(&self.window) {
            let packet = packet.as_ref();
            let factor = coefficient(nth, number);
            let (head, body) = symbol.split_at_mut(LENGTH);
            add_multiple(head, &length(packet)?, factor);
            add_multiple(body, packet, factor);
        }
        Some(PacketRepair { first, count, nth, symbol })
    }
}
