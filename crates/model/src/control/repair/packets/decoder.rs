//! The receiver: decodes what was lost, and releases packets in their order, none later than a bound.

use super::super::code::Work;
use super::super::field::{add_multiple, inverse, product};
use super::parts::Joining;
use super::{HEAD, LENGTH_BITS, MOST_PACKETS, PacketRepair, Part, coefficient, head};
use crate::units::{Span, Time};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Deref;

/// No packet waits longer for one before it. Added delays stay below 150 ms with the time that the repair itself takes.
pub const BOUND: Span = Span::from_millis(150);
/// A packet that no repair can bring any more may still be overtaken by those after it (RFC 9002 §6.1.2 waits for an
/// eighth of a round trip; here nothing is retransmitted for it).
pub const REORDERED: Span = Span::from_millis(10);
/// Packets that wait for one before them; the first is given up beyond.
const MOST_HELD: usize = 1_024;
/// Equations that wait for others, and packets that one of them may lack.
const EQUATIONS: usize = 64;
/// What a kept packet costs beside its bytes.
const PIECE: usize = 96;
/// What an equation costs beside its bytes: of each packet that it lacks a number and a factor, and room for as many.
const ROW: usize = PIECE + 2 * EQUATIONS * 16;

/// One flow's receiver. `B`: bytes as they arrived.
#[derive(Debug, Clone)]
pub struct Decoder<B> {
    /// Packets that arrived or were decoded, and when: those that were not released, and the last window of those that were.
    packets: BTreeMap<u64, (Time, Part, B)>,
    /// The next one to be released.
    next: u64,
    /// Packets from there on that wait for it, by the time at which each arrived. A peer can have a thousand of them
    /// wait, and every packet may be the one before the oldest: finding that takes no walk.
    held: BTreeSet<(Time, u64)>,
    /// Beyond the last one that arrived.
    seen: u64,
    /// No repair that is still to come covers packets before it.
    covered: u64,
    rows: Vec<Row>,
    kept: usize,
    work: Work,
    joining: Joining,
    ready: VecDeque<B>,
    /// When the packet that is missing is given up.
    deadline: Time,
    counts: DecoderCounts,
}

/// What became of packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DecoderCounts {
    /// Decoded from repairs.
    pub repaired: u64,
    /// Bytes of those.
    pub repaired_bytes: u64,
    /// Arrived, or were decoded, after they had been given up.
    pub late: u64,
}

/// An equation: the sum of packets that are missing, each multiplied. Its first one is in no other.
#[derive(Debug, Clone)]
struct Row {
    unknown: Vec<(u64, u8)>,
    sum: Vec<u8>,
}

impl<B> Default for Decoder<B> {
    fn default() -> Self {
        Self {
            packets: BTreeMap::new(),
            next: 0,
            held: BTreeSet::new(),
            seen: 0,
            covered: 0,
            rows: Vec::new(),
            kept: 0,
            work: Work::default(),
            joining: Joining::default(),
            ready: VecDeque::new(),
            deadline: Time::NEVER,
            counts: DecoderCounts::default(),
        }
    }
}

impl<B: Deref<Target = [u8]> + Clone + From<Vec<u8>>> Decoder<B> {
    /// A packet arrived, perhaps again. `back`: how many before it repairs may still cover.
    pub fn on_packet(&mut self, now: Time, number: u64, back: u8, part: Part, packet: B) {
        self.work.earn(packet.len());
        self.covered = self.covered.max(number.saturating_sub(u64::from(back)));
        self.seen = self.seen.max(number.saturating_add(1));
        if number < self.next && !self.packets.contains_key(&number) {
            self.counts.late += 1;
        }
        self.learn(now, number, part, packet);
        self.advance(now);
    }

    /// A repair arrived. It is dropped where looking at it takes more work than what has arrived is worth.
    pub fn on_repair(&mut self, now: Time, repair: &PacketRepair<B>) {
        let &PacketRepair { first, count, nth, ref symbol } = repair;
        let fits = (1..=MOST_PACKETS).contains(&u64::from(count)) && symbol.len() >= HEAD;
        if !fits || first.checked_add(MOST_PACKETS).is_none() {
            return;
        }
        self.work.earn(symbol.len());
        self.covered = self.covered.max(first);
        if let Some(row) = self.equation(first..first + u64::from(count), nth, symbol) {
            self.insert(row);
            self.decode(now);
        }
        self.advance(now);
    }

    /// When [`Decoder::on_deadline`] is due.
    pub const fn deadline(&self) -> Time {
        self.deadline
    }

    /// Gives up what has been waited for long enough.
    pub fn on_deadline(&mut self, now: Time) {
        self.advance(now);
    }

    /// The next packet in its order.
    pub fn release(&mut self) -> Option<B> {
        self.ready.pop_front()
    }

    /// Memory in use, bytes.
    pub fn kept(&self) -> usize {
        self.kept + self.joining.kept()
    }

    /// Packets that all equations lack, each counted in each.
    #[cfg(test)]
    pub(super) fn lacks(&self) -> usize {
        self.rows.iter().map(|row| row.unknown.capacity()).sum()
    }

    /// What became of packets.
    pub const fn counts(&self) -> DecoderCounts {
        self.counts
    }

    /// Releases all that waits, and keeps nothing for repairs.
    pub fn flush(&mut self) {
        while !self.held.is_empty() {
            self.give_up();
        }
        self.packets.clear();
        self.rows.clear();
        self.joining = Joining::default();
        (self.kept, self.deadline) = (0, Time::NEVER);
    }

    /// The bytes of a packet are known.
    fn learn(&mut self, now: Time, number: u64, part: Part, packet: B) {
        if self.packets.contains_key(&number) {
            return;
        }
        self.substitute(number, part, &packet);
        // what was given up is of no more use than for equations, and those are solved first
        if number >= self.next {
            self.put(now, number, part, packet);
        }
        self.decode(now);
    }

    fn put(&mut self, now: Time, number: u64, part: Part, packet: B) {
        self.kept += packet.len() + PIECE;
        self.packets.insert(number, (now, part, packet));
        self.held.insert((now, number));
    }

    /// A repair symbol less the packets that are known.
    fn equation(&mut self, window: core::ops::Range<u64>, nth: u8, symbol: &[u8]) -> Option<Row> {
        let mut row = Row { unknown: Vec::new(), sum: symbol.to_vec() };
        let mut known = self.packets.range(window.clone()).peekable();
        for number in window {
            let factor = coefficient(nth, number);
            match known.next_if(|(known, _)| **known == number) {
                Some((_, (_, part, packet))) => {
                    if !self.work.take(1 + packet.len() as u64) {
                        return None;
                    }
                    add_packet(&mut row.sum, *part, packet, factor);
                }
                None => row.unknown.push((number, factor)),
            }
        }
        (row.unknown.len() <= EQUATIONS).then_some(row)
    }

    /// Adds an equation to the others, so that the first unknown of each is in no other.
    fn insert(&mut self, mut row: Row) {
        let mut nth = 0;
        while let Some(other) = self.rows.get(nth) {
            nth += 1;
            let Some(first) = other.first() else { continue };
            let factor = row.factor(first);
            if factor != 0 {
                if !self.work.take(other.cost()) {
                    return;
                }
                row.add(other, factor);
                if row.unknown.len() > EQUATIONS {
                    return;
                }
            }
        }
        self.normalize_and_push(row);
    }

    /// Divides an equation by the factor of its first unknown, and takes that out of all others.
    fn normalize_and_push(&mut self, mut row: Row) {
        let Some(&(first, factor)) = row.unknown.first() else { return };
        if !self.work.take(row.cost()) {
            return;
        }
        row.scale(inverse(factor));
        let mut dropped = Vec::new();
        for (nth, other) in self.rows.iter_mut().enumerate() {
            let factor = other.factor(first);
            if factor == 0 {
                continue;
            }
            if self.work.take(row.cost()) {
                let before = other.sum.len();
                other.add(&row, factor);
                self.kept += other.sum.len() - before;
            }
            if other.unknown.len() > EQUATIONS || other.factor(first) != 0 {
                dropped.push(nth);
            }
        }
        for nth in dropped.into_iter().rev() {
            self.remove(nth);
        }
        if self.rows.len() >= EQUATIONS {
            self.remove(0);
        }
        self.kept += row.sum.len() + ROW;
        self.rows.push(row);
    }

    fn remove(&mut self, nth: usize) -> Option<Row> {
        if nth >= self.rows.len() {
            return None;
        }
        let row = self.rows.remove(nth);
        self.kept -= row.sum.len() + ROW;
        Some(row)
    }

    /// Takes a packet that is known out of all equations.
    fn substitute(&mut self, number: u64, part: Part, packet: &[u8]) {
        let mut nth = 0;
        let mut again = Vec::new();
        while let Some(row) = self.rows.get_mut(nth) {
            let factor = row.factor(number);
            if factor == 0 {
                nth += 1;
                continue;
            }
            let was_first = row.first() == Some(number);
            let affordable = self.work.take(1 + packet.len() as u64);
            if affordable {
                let before = row.sum.len();
                add_packet(&mut row.sum, part, packet, factor);
                self.kept += row.sum.len() - before;
                row.unknown.retain(|(unknown, _)| *unknown != number);
            }
            if !affordable || was_first {
                again.extend(self.remove(nth).filter(|_| affordable));
            } else {
                nth += 1;
            }
        }
        again.into_iter().for_each(|row| self.normalize_and_push(row));
    }

    /// Takes packets out of equations that lack one alone.
    fn decode(&mut self, now: Time) {
        while let Some(nth) = self.rows.iter().position(|row| row.unknown.len() == 1) {
            let Some(row) = self.remove(nth) else { return };
            let Some(number) = row.first() else { continue };
            let Some((head, body)) = row.sum.split_first_chunk::<HEAD>() else { continue };
            let head = u16::from_be_bytes(*head);
            let part = Part::from_bits((head >> LENGTH_BITS) as u8);
            let length = usize::from(head & ((1 << LENGTH_BITS) - 1));
            // it was not what its sender meant
            let Some(packet) = body.get(..length) else { continue };
            if number < self.next {
                self.counts.late += 1;
                continue;
            }
            if self.packets.contains_key(&number) {
                continue;
            }
            self.counts.repaired += 1;
            self.counts.repaired_bytes += packet.len() as u64;
            self.seen = self.seen.max(number.saturating_add(1));
            self.put(now, number, part, B::from(packet.to_vec()));
        }
    }

    /// Releases what is complete, and gives up what has been waited for long enough.
    fn advance(&mut self, now: Time) {
        self.release_run();
        while now >= self.patience() {
            self.give_up();
        }
        self.deadline = self.patience();
        self.forget();
    }

    fn release_run(&mut self) {
        while let Some((at, part, packet)) = self.packets.get(&self.next) {
            self.ready.extend(self.joining.take(self.next, *part, packet.clone()));
            self.held.remove(&(*at, self.next));
            self.next += 1;
            #[cfg(test)]
            super::super::counted::step(1);
        }
    }

    /// Until when the packet that is missing is waited for.
    fn patience(&self) -> Time {
        let Some((oldest, _)) = self.held.first() else { return Time::NEVER };
        if self.held.len() > MOST_HELD {
            return Time::ZERO;
        }
        let may_come =
            self.covered <= self.next || self.rows.iter().any(|row| row.factor(self.next) != 0);
        *oldest + if may_come { BOUND } else { REORDERED }
    }

    /// Goes on with the first packet that is there.
    fn give_up(&mut self) {
        let Some((&number, _)) = self.packets.range(self.next..).next() else { return };
        self.next = number;
        self.release_run();
        // equations about what is over are of no use
        let next = self.next;
        let mut nth = 0;
        while let Some(row) = self.rows.get(nth) {
            let over = row.unknown.iter().all(|(number, _)| *number < next);
            if over { drop(self.remove(nth)) } else { nth += 1 }
        }
    }

    /// Forgets packets that were released and that no repair covers any more.
    fn forget(&mut self) {
        let from = self.seen.saturating_sub(MOST_PACKETS).max(self.covered).min(self.next);
        while let Some(first) = self.packets.first_entry().filter(|first| *first.key() < from) {
            self.kept -= first.remove().2.len() + PIECE;
        }
    }
}

impl Row {
    fn first(&self) -> Option<u64> {
        self.unknown.first().map(|(number, _)| *number)
    }

    fn factor(&self, number: u64) -> u8 {
        let found = self.unknown.binary_search_by_key(&number, |(number, _)| *number);
        found.ok().and_then(|nth| self.unknown.get(nth)).map_or(0, |(_, factor)| *factor)
    }

    /// Steps that adding it takes.
    fn cost(&self) -> u64 {
        (self.sum.len() + self.unknown.len()) as u64
    }

    fn scale(&mut self, factor: u8) {
        let mut sum = vec![0; self.sum.len()];
        add_multiple(&mut sum, &self.sum, factor);
        self.sum = sum;
        self.unknown.iter_mut().for_each(|(_, value)| *value = product(*value, factor));
    }

    fn add(&mut self, other: &Self, factor: u8) {
        if self.sum.len() < other.sum.len() {
            self.sum.resize(other.sum.len(), 0);
        }
        add_multiple(&mut self.sum, &other.sum, factor);
        let mut unknown = Vec::with_capacity(self.unknown.len() + other.unknown.len());
        let mut own = self.unknown.iter().copied().peekable();
        for &(number, value) in &other.unknown {
            while let Some(before) = own.next_if(|(own, _)| *own < number) {
                unknown.push(before);
            }
            let value = product(value, factor)
                ^ own.next_if(|(own, _)| *own == number).map_or(0, |(_, value)| value);
            if value != 0 {
                unknown.push((number, value));
            }
        }
        unknown.extend(own);
        self.unknown = unknown;
    }
}

fn add_packet(sum: &mut Vec<u8>, part: Part, packet: &[u8], factor: u8) {
    let Some(before) = head(part, packet) else { return };
    if sum.len() < HEAD + packet.len() {
        sum.resize(HEAD + packet.len(), 0);
    }
    let (begin, body) = sum.split_at_mut(HEAD);
    add_multiple(begin, &before, factor);
    add_multiple(body, packet, factor);
}
