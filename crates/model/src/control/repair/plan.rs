//! When a flow's repairs are sent, and how many.
//!
//! ```text
//! on_sent(now, offset, bytes, copied)    a packet's worth of the flow was sent for the first time
//! on_arrived(offset)                     it was acknowledged
//! step(now, path)                        asked where nothing else waits: a repair, or when to ask again
//! ```
//! A *burst* is over when nothing was sent for a while. It is then repaired so far that
//! retransmissions are needed after one of 200 bursts. While it goes on, repairs follow at twice
//! the loss and a fiftieth, or one each tenth of a round trip.

use super::code::{Equation, MOST_SYMBOLS, Window};
use crate::units::{Span, Time};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Bursts of which a loss is not repaired.
const FAILED: f64 = 0.005;
/// Below this loss nothing is repaired while a burst goes on.
const LOSS_FROM: f64 = 0.0005;
/// Repairs for each packet beside twice the loss (algorithms/satellite E.7).
const BESIDE: f64 = 0.02;
/// Repairs that may be owed, so that a full pipe's are not sent after it.
const OWED: f64 = 2.0;
/// Packets kept. What was lost holds those after it for a round trip, and where its retransmission is lost, too, for
/// another: at 20 Mbit/s and 600 ms that is three times 1,000.
const KEPT: usize = 4_096;
/// Packets that a copy carries: with eight, a lost one and all its copies hold up few of those behind it.
const TOGETHER: usize = 8;
/// A burst is over after a sixteenth of the round trip. It is longer than most bursts of losses.
const QUIET: (Span, Span) = (Span::from_millis(5), Span::from_millis(40));
/// No repair on shorter paths: a retransmission is there as soon.
pub const SHORTEST: Span = Span::from_millis(40);

/// What is known of the path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// The round trip.
    pub rtt: Span,
    /// The share of packets lost, 0 to 1.
    pub loss: f64,
    /// The longest repair symbol that fits into a packet, bytes.
    pub room: u32,
}

impl Path {
    /// Silence that ends a burst.
    pub fn quiet(&self) -> Span {
        Span::from_nanos(self.rtt.as_nanos() / 16).clamp(QUIET.0, QUIET.1)
    }

    fn interval(&self) -> Span {
        Span::from_nanos(self.rtt.as_nanos() / 10)
    }
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Send this repair symbol, and ask again.
    Repair(Window, Vec<u8>),
    /// Ask again then.
    Wait(Time),
    /// Ask after the next packet was sent.
    Idle,
}

#[derive(Debug, Clone)]
struct Piece<B> {
    at: Time,
    offset: u64,
    bytes: B,
    arrived: bool,
    /// Sent again in any case.
    copied: bool,
}

/// Repairs of one window that are still to be sent.
#[derive(Debug, Clone, Copy)]
struct Owed {
    due: Time,
    window: Window,
    repairs: u32,
}

/// One flow's repairs.
#[derive(Debug, Clone)]
pub struct Plan<B> {
    pieces: VecDeque<Piece<B>>,
    /// Bytes in them.
    kept: usize,
    base: u64,
    size: u32,
    nth: u8,
    /// From here on no burst's end was repaired.
    fresh_from: u64,
    /// The end of what was sent, and when.
    sent: u64,
    sent_at: Time,
    /// Packets, and repairs owed for them, since the last repair of the burst that goes on.
    since: u32,
    owed: f64,
    repaired_at: Time,
    queue: VecDeque<Owed>,
}

impl<B> Default for Plan<B> {
    fn default() -> Self {
        Self {
            pieces: VecDeque::new(),
            kept: 0,
            base: 0,
            size: 0,
            nth: 0,
            fresh_from: 0,
            sent: 0,
            sent_at: Time::ZERO,
            since: 0,
            owed: 0.0,
            repaired_at: Time::ZERO,
            queue: VecDeque::new(),
        }
    }
}

impl<B: AsRef<[u8]>> Plan<B> {
    /// Bytes were sent for the first time, those that follow the last ones. `copied`: they are sent
    /// again soon in any case.
    pub fn on_sent(&mut self, now: Time, offset: u64, bytes: B, copied: bool) {
        let length = bytes.as_ref().len() as u64;
        if offset != self.sent {
            // something between was not told: those before cannot be covered together with this
            self.clear();
            self.fresh_from = offset;
        }
        if self.since == 0 {
            self.repaired_at = now;
        }
        self.sent = offset + length;
        self.sent_at = now;
        self.since += u32::from(!copied);
        self.kept += length as usize;
        self.pieces.push_back(Piece { at: now, offset, bytes, arrived: false, copied });
        if self.pieces.len() > KEPT {
            self.pop();
        }
    }

    /// The packet that began there was acknowledged.
    pub fn on_arrived(&mut self, offset: u64) {
        if let Ok(nth) = self.pieces.binary_search_by_key(&offset, |piece| piece.offset)
            && let Some(piece) = self.pieces.get_mut(nth)
        {
            piece.arrived = true;
        }
        while self.pieces.front().is_some_and(|piece| piece.arrived) {
            self.pop();
        }
        if self.pieces.is_empty() {
            self.clear();
        }
    }

    fn pop(&mut self) {
        if let Some(piece) = self.pieces.pop_front() {
            self.kept -= piece.bytes.as_ref().len();
        }
    }

    /// Nothing is to be repaired any more.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.kept = 0;
        self.queue.clear();
        (self.size, self.since, self.owed) = (0, 0, 0.0);
        self.fresh_from = self.sent;
    }

    /// The packet that began at `offset` and those just before it that have not arrived, where all of them with `head`
    /// bytes each fit into `room`: what a copy of a small one carries. None where it has arrived.
    pub fn copied_with(&self, offset: u64, head: usize, room: usize) -> Vec<(u64, &B)> {
        let Ok(last) = self.pieces.binary_search_by_key(&offset, |piece| piece.offset) else {
            return Vec::new();
        };
        let (mut taken, mut copied) = (0, Vec::new());
        for piece in self.pieces.range(..=last).rev().take(TOGETHER) {
            taken += piece.bytes.as_ref().len() + head;
            let is_first = copied.is_empty();
            if !is_first && (taken > room || piece.arrived || !piece.copied) || piece.arrived {
                break;
            }
            copied.push((piece.offset, &piece.bytes));
        }
        copied
    }

    /// When the oldest packet that has not arrived was sent first.
    pub fn oldest(&self) -> Option<Time> {
        self.pieces.front().map(|piece| piece.at)
    }

    /// Bytes that are kept.
    pub const fn kept(&self) -> usize {
        self.kept
    }

    /// Asked where the path is free and nothing else waits.
    pub fn step(&mut self, now: Time, path: &Path) -> Step {
        if path.rtt < SHORTEST || path.room == 0 {
            self.clear();
            return Step::Idle;
        }
        let over = self.sent_at + path.quiet();
        if self.fresh_from < self.sent && now >= over {
            self.end_burst(now, path);
        }
        if let Some(repair) = self.take_due(now) {
            return repair;
        }
        let goes_on = self.fresh_from < self.sent;
        if goes_on && let Some(repair) = self.accompany(now, path) {
            return repair;
        }
        let queued = self.queue.front().map(|owed| owed.due);
        let end = goes_on.then_some(over);
        match queued.into_iter().chain(end).min() {
            Some(at) => Step::Wait(at.max(now)),
            None => Step::Idle,
        }
    }

    /// Repairs what was sent since the last burst's end; what was sent before has had its repairs.
    fn end_burst(&mut self, now: Time, path: &Path) {
        self.queue.clear();
        let Some(from) = self.first_unsafe_from(self.fresh_from) else {
            (self.fresh_from, self.since, self.owed) = (self.sent, 0, 0.0);
            return;
        };
        let from = from.max(self.pieces.front().map_or(0, |piece| piece.offset));
        let size = self.grid(from, path);
        let mut first = (from - self.base) / size;
        let later = now + path.quiet();
        let mut second = Vec::new();
        while self.base + first * size < self.sent {
            let start = self.base + first * size;
            let length = (self.sent - start).min(size * MOST_SYMBOLS);
            let lacks = |piece: &&Piece<B>| {
                !piece.is_safe() && piece.offset < start + length && piece.end() > start
            };
            let pieces = self.pieces.iter().filter(lacks).count();
            // each symbol of a column is lost once at most, however many packets it came in
            let pieces = (pieces as u64).min(length.div_ceil(size));
            let repairs = repairs(pieces as u32, path.loss);
            let window = Window { base: self.base, size: size as u32, first, length, nth: 0 };
            if repairs > 0 {
                // half of them later, beyond a burst of losses
                let half = repairs.div_ceil(2);
                self.queue.push_back(Owed { due: now, window, repairs: half });
                second.push(Owed { due: later, window, repairs: repairs - half });
            }
            first += MOST_SYMBOLS;
        }
        self.queue.extend(second.into_iter().filter(|owed| owed.repairs > 0));
        (self.fresh_from, self.since, self.owed) = (self.sent, 0, 0.0);
    }

    /// The next repair of a burst that is over.
    fn take_due(&mut self, now: Time) -> Option<Step> {
        while let Some(owed) = self.queue.front_mut().filter(|owed| owed.due <= now) {
            owed.repairs = owed.repairs.saturating_sub(1);
            let window = owed.window;
            if owed.repairs == 0 {
                self.queue.pop_front();
            }
            if let Some(repair) = self.encode(window) {
                return Some(repair);
            }
        }
        None
    }

    /// A repair beside a burst that goes on.
    fn accompany(&mut self, now: Time, path: &Path) -> Option<Step> {
        if path.loss < LOSS_FROM || self.since == 0 {
            return None;
        }
        let owed = self.owed + f64::from(self.since) * (2.0 * path.loss + BESIDE);
        if owed < 1.0 && now.since(self.repaired_at) < path.interval() {
            return None;
        }
        self.owed = (owed - 1.0).clamp(0.0, OWED);
        (self.since, self.repaired_at) = (0, now);
        let size = {
            let from = self.first_unsafe()?;
            self.grid(from, path)
        };
        let end = (self.sent - self.base).div_ceil(size);
        let from = (self.first_unsafe()? - self.base) / size;
        let first = from.max(end.saturating_sub(MOST_SYMBOLS));
        let length = self.sent - self.base - first * size;
        self.encode(Window { base: self.base, size: size as u32, first, length, nth: 0 })
    }

    fn first_unsafe(&self) -> Option<u64> {
        self.first_unsafe_from(0)
    }

    fn first_unsafe_from(&self, offset: u64) -> Option<u64> {
        let mut pieces = self.pieces.iter().filter(|piece| piece.offset >= offset);
        pieces.find(|piece| !piece.is_safe()).map(|piece| piece.offset)
    }

    /// The symbols' size; a new grid from there on where the present one does not fit.
    fn grid(&mut self, from: u64, path: &Path) -> u64 {
        let longest = self.pieces.iter().filter(|piece| piece.end() > from);
        let longest = longest.map(|piece| piece.bytes.as_ref().len()).max().unwrap_or(1);
        let wanted = u32::try_from(longest).unwrap_or(u32::MAX).clamp(1, path.room);
        // a symbol that begins before what is kept could not be encoded
        let kept = self.pieces.front().map_or(from, |piece| piece.offset);
        let reaches_back = |base: u64, size: u64| from - (from - base) % size < kept;
        if self.size < wanted
            || self.size > path.room
            || from < self.base
            || reaches_back(self.base, self.size.into())
        {
            (self.base, self.size) = (from, wanted);
        }
        u64::from(self.size)
    }

    /// `None` where bytes of it are not kept any more, or all of it has arrived.
    fn encode(&mut self, window: Window) -> Option<Step> {
        let range = window.range();
        let covered = |piece: &&Piece<B>| piece.offset < range.end && piece.end() > range.start;
        let kept = self.pieces.front().is_some_and(|piece| piece.offset <= range.start);
        if !kept {
            return self.shortened(window);
        }
        if self.pieces.iter().filter(covered).all(|piece| piece.is_safe()) {
            return None;
        }
        self.nth = self.nth.wrapping_add(1);
        let window = Window { nth: self.nth, ..window };
        let mut equation = Equation::new(window);
        for piece in self.pieces.iter().filter(covered) {
            equation.add(piece.offset, piece.bytes.as_ref());
        }
        Some(Step::Repair(window, equation.into_symbol()))
    }

    /// The part of a window that is kept, where some is.
    fn shortened(&mut self, window: Window) -> Option<Step> {
        let from = self.pieces.front()?.offset;
        let end = window.range().end;
        let first = (from - window.base).div_ceil(u64::from(window.size));
        let start = window.base + first * u64::from(window.size);
        if start >= end || first <= window.first {
            return None;
        }
        self.encode(Window { first, length: end - start, ..window })
    }
}

impl<B: AsRef<[u8]>> Piece<B> {
    fn end(&self) -> u64 {
        self.offset + self.bytes.as_ref().len() as u64
    }

    const fn is_safe(&self) -> bool {
        self.arrived || self.copied
    }
}

/// Repairs with which more than those are lost of `packets` and them in one of 200 cases.
pub fn repairs(packets: u32, loss: f64) -> u32 {
    repairs_unless(packets, loss, FAILED)
}

/// Repairs with which more than those are lost of `packets` and them in a share of `failed`, 0 to 1, of all cases:
/// losses are taken for independent, so that their number is binomial (algorithms/satellite E.7).
pub fn repairs_unless(packets: u32, loss: f64, failed: f64) -> u32 {
    let loss = loss.clamp(0.0, 0.5);
    let mut none = 1.0;
    for _ in 0..packets {
        none *= 1.0 - loss;
    }
    for repairs in 0..packets.saturating_add(3) {
        // the chance that at most `repairs` of all are lost, by summing up
        let all = packets + repairs;
        let (mut term, mut sum) = (none, none);
        for lost in 1..=repairs {
            term *= f64::from(all - lost + 1) / f64::from(lost) * loss / (1.0 - loss);
            sum += term;
        }
        if 1.0 - sum <= failed {
            return repairs;
        }
        none *= 1.0 - loss;
    }
    packets.saturating_add(3)
}
