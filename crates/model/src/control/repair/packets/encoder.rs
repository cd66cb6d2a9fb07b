//! The sender: numbers packets, and decides when a repair is due.
//!
//! While packets follow one another, repairs accompany them at twice the loss and a fiftieth, as those of bytes do. Where
//! nothing else waits, and when no packet followed for a while, as many more are sent as leave few holes
//! (`HOLES`): the fewer packets follow one another within `COVERED`, the larger is their part. Bytes of repairs are
//! earned by bytes of packets, so that flows of few and small packets do not cost more than `MOST`, or than `LEAST` a second.

use super::super::field::add_multiple;
use super::super::plan::repairs_unless;
use super::{HEAD, MOST_PACKETS, PacketRepair, Part, coefficient, head};
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
/// Holes for each packet, where there is room for so many repairs. A sender of CUBIC with packets of 1,400 bytes holds 12
/// Mbit/s over 600 ms while one of 8,000 packets is lost (RFC 9438 §5.2, whose formula gives 1.2e-4).
const HOLES: f64 = 3e-5;
/// Repairs for each packet at most.
const MOST: f64 = 0.5;
/// Bytes of repairs before any packet has earned them: those of a first flight of ten packets.
pub const ALLOWANCE: f64 = 4_096.0;
/// Bytes of repairs that each second allows a flow, up to that: 64 kbit/s. A packet by itself needs a repair of its own.
pub const LEAST: f64 = 8_000.0;
/// Bytes of repairs that may be earned and not sent.
const EARNED: f64 = 12_288.0;
/// Packets are covered for so long. The receiver gives them up then.
const COVERED: Span = super::decoder::BOUND;
/// Silence that ends a burst: longer than the gap between packets of a paced sender at 1 Mbit/s.
const QUIET: Span = Span::from_millis(12);
/// A burst that lasts for so long is repaired while it goes on, also where nothing else waits. Of a shorter one the
/// repairs at its end cover all.
const LONG: Span = Span::from_millis(50);
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
    /// The longest packet, or part of one, whose repairs fit, bytes.
    pub const fn longest(&self) -> usize {
        self.room.saturating_sub(HEAD)
    }

    const fn codes(&self) -> bool {
        self.loss >= LOSS_FROM
    }

    /// Repairs that `packets` need so that few of them are missed.
    fn needed(&self, packets: u32) -> u32 {
        repairs_unless(packets, self.loss.min(MOST_LOSS), HOLES * f64::from(packets))
    }

    /// Repairs for each packet at most.
    pub fn most(&self) -> f64 {
        if self.codes() { self.rate().max(MOST) } else { 0.0 }
    }

    /// Repairs that accompany each packet.
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
    /// Ask after the next packet was sent. Nothing is kept until then.
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
    window: VecDeque<(Time, Part, B)>,
    kept: usize,
    nth: u8,
    /// Bytes of repairs that may be sent.
    earned: f64,
    /// Repairs owed beside a burst that goes on, and beyond those where nothing else waits.
    owed: f64,
    owed_idle: f64,
    /// Since when packets follow one another, if that is not over.
    burst: Option<Time>,
    sent_at: Time,
    /// The packet before which each of the last repairs was sent.
    repaired: VecDeque<u64>,
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
            owed_idle: 0.0,
            burst: None,
            sent_at: Time::ZERO,
            repaired: VecDeque::new(),
            left: 0,
            due: Time::ZERO,
        }
    }
}

impl<B: AsRef<[u8]>> Encoder<B> {
    /// A packet of `size` bytes is sent now, or a part of one. `copy`: the same bytes, kept for repairs, where they are
    /// asked for.
    pub fn on_sent(
        &mut self,
        now: Time,
        (part, size): (Part, usize),
        path: &PacketPath,
        copy: impl FnOnce() -> B,
    ) -> Numbered {
        let number = self.next;
        self.next += 1;
        if !path.codes() || size > path.longest() {
            self.clear();
            return Numbered { number, back: 0 };
        }
        let old = |(at, ..): &(Time, Part, B)| now.since(*at) >= COVERED;
        while self.window.len() as u64 >= MOST_PACKETS || self.window.front().is_some_and(old) {
            self.pop();
        }
        let back = self.window.len() as u8;
        self.kept += size;
        self.window.push_back((now, part, copy()));
        let before = core::mem::replace(&mut self.sent_at, now);
        self.burst.get_or_insert(now);
        self.left = 0;
        let share = self.share(path);
        let allowed = (self.earned + now.since(before).as_secs_f64() * LEAST).min(ALLOWANCE);
        self.earned = (self.earned.max(allowed) + size as f64 * path.most()).min(EARNED);
        // of what cannot be paid, not more than one is owed later
        self.owed = (self.owed + path.rate()).min(2.0);
        self.owed_idle = (self.owed_idle + share - path.rate()).min(2.0);
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
            self.clear();
            return PacketStep::Idle;
        }
        if let Some(begun) = self.burst {
            let over = self.sent_at + QUIET;
            if now < over {
                let repair = self.beside(now.since(begun), path);
                return repair.map_or(PacketStep::Wait(over), PacketStep::Repair);
            }
            self.left = self.lacking(path);
            (self.burst, self.owed, self.owed_idle, self.due) = (None, 0.0, 0.0, now);
        }
        if self.left == 0 || now.since(self.sent_at) >= COVERED {
            // nothing will bring back what was lost of it: the receiver need not wait
            self.clear();
            return PacketStep::Idle;
        }
        if now < self.due {
            return PacketStep::Wait(self.due);
        }
        self.due = now + APART;
        match self.repair(path) {
            Some(repair) => {
                self.left -= 1;
                PacketStep::Repair(repair)
            }
            // the next packet may pay for it, while it is covered
            None => PacketStep::Wait(self.sent_at + COVERED),
        }
    }

    /// A repair beside a burst that goes on, where nothing else waits.
    fn beside(&mut self, lasts: Span, path: &PacketPath) -> Option<PacketRepair<Vec<u8>>> {
        if lasts < LONG || self.owed_idle < 1.0 {
            return None;
        }
        self.owed_idle -= 1.0;
        self.repair(path)
    }

    /// Repairs for each packet, by how many follow one another.
    fn share(&self, path: &PacketPath) -> f64 {
        let packets = self.window.len() as u32;
        let needed = f64::from(path.needed(packets)) / f64::from(packets.max(1));
        needed.clamp(path.rate(), path.most())
    }

    /// Repairs that the window lacks. Those that were sent cover what was sent before them alone.
    fn lacking(&self, path: &PacketPath) -> u32 {
        let first = self.next - self.window.len() as u64;
        let starts = self.repaired.iter().rev().copied().chain([first]);
        let lacks = (0..).zip(starts).map(|(sent, start)| {
            let packets = u32::try_from(self.next - start).unwrap_or(u32::MAX);
            path.needed(packets).saturating_sub(sent)
        });
        lacks.max().unwrap_or(0)
    }

    /// Bytes of packets that are kept.
    pub const fn kept(&self) -> usize {
        self.kept
    }

    /// Drops packets of which the last is too old to be repaired: where others always wait, nobody asks for a step.
    pub fn expire(&mut self, now: Time) {
        if now.since(self.sent_at) >= COVERED {
            self.clear();
        }
    }

    /// Nothing before the next packet is repaired any more.
    pub fn clear(&mut self) {
        self.window.clear();
        self.repaired.clear();
        (self.kept, self.burst, self.left, self.owed, self.owed_idle) = (0, None, 0, 0.0, 0.0);
    }

    fn pop(&mut self) {
        if let Some((.., packet)) = self.window.pop_front() {
            self.kept -= packet.as_ref().len();
        }
        let first = self.next - self.window.len() as u64;
        while self.repaired.front().is_some_and(|before| *before <= first) {
            self.repaired.pop_front();
        }
    }

    /// The next repair of all that is covered; `None` where it is not paid for, or does not fit any more.
    fn repair(&mut self, path: &PacketPath) -> Option<PacketRepair<Vec<u8>>> {
        let longest = self.window.iter().map(|(.., packet)| packet.as_ref().len()).max()?;
        let width = longest + HEAD;
        if width > path.room || width as f64 > self.earned {
            return None;
        }
        self.earned -= width as f64;
        self.repaired.push_back(self.next);
        self.nth = self.nth.wrapping_add(1);
        let (nth, count) = (self.nth, self.window.len() as u8);
        let first = self.next - u64::from(count);
        let mut symbol = vec![0; width];
        for (number, (_, part, packet)) in (first..).zip(&self.window) {
            let packet = packet.as_ref();
            let factor = coefficient(nth, number);
            let (begin, body) = symbol.split_at_mut(HEAD);
            add_multiple(begin, &head(*part, packet)?, factor);
            add_multiple(body, packet, factor);
        }
        Some(PacketRepair { first, count, nth, symbol })
    }
}
