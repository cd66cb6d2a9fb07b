//! A flow's receiver: keeps what arrived, and decodes what did not.

use super::code::{Equation, Window, Work, solve};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::{Deref, Range};

/// Equations that wait for others. Half of the repairs of a burst come first: seven for each of its windows at 5 %, and
/// a burst of 20 Mbit/s and 600 ms has ten windows.
const EQUATIONS: usize = 128;
/// Symbols, or parts of them, that equations solved together may lack.
const UNKNOWN: u64 = 160;
/// What a kept piece costs beside its bytes.
const PIECE: usize = 64;

/// Bytes that were missing: their offset, and they.
pub type Repaired = Vec<(u64, Vec<u8>)>;

/// Pieces of one flow, for as long as there is room, and equations. `B`: bytes as they arrived.
#[derive(Debug, Clone)]
pub struct Recovery<B> {
    pieces: BTreeMap<u64, B>,
    kept: usize,
    equations: Vec<Equation>,
    work: Work,
}

impl<B> Default for Recovery<B> {
    fn default() -> Self {
        Self { pieces: BTreeMap::new(), kept: 0, equations: Vec::new(), work: Work::default() }
    }
}

impl<B: Deref<Target = [u8]> + From<Vec<u8>>> Recovery<B> {
    /// Bytes arrived, perhaps again. Returns what they allow to decode.
    pub fn on_bytes(&mut self, offset: u64, bytes: B) -> Repaired {
        self.work.earn(bytes.len());
        let end = offset + bytes.len() as u64;
        match self.keep(offset, bytes) {
            true => self.solved(&(offset..end)),
            false => Vec::new(),
        }
    }

    /// A repair arrived. Returns what it allows to decode; nothing where it is malformed, or where looking at it
    /// takes more work than what has arrived is worth.
    pub fn on_repair(&mut self, window: Window, symbol: &[u8]) -> Repaired {
        let Some(mut equation) = Equation::received(window, symbol) else { return Vec::new() };
        if self.equations.iter().any(|known| known.window() == equation.window()) {
            return Vec::new();
        }
        self.work.earn(symbol.len());
        let mut work = self.work;
        let affordable = self.pieces_in(&window.range()).all(|(offset, piece)| {
            let affordable = work.take(1 + (piece.len() as u64).min(window.length));
            if affordable {
                equation.add(offset, piece);
            }
            affordable
        });
        self.work = work;
        if !affordable || !equation.is_open() {
            return Vec::new();
        }
        if self.equations.len() == EQUATIONS {
            self.equations.remove(0);
        }
        self.equations.push(equation);
        self.solved(&window.range())
    }

    /// What is kept, bytes.
    pub fn kept(&self) -> usize {
        let equations = self.equations.iter().map(|equation| equation.window().width() + PIECE);
        self.kept + equations.sum::<usize>()
    }

    /// Drops the piece that came first in the flow, and equations that need it; without pieces the oldest equation.
    /// Returns whether there was anything.
    pub fn forget_first(&mut self) -> bool {
        let Some((offset, piece)) = self.pieces.pop_first() else {
            let any = !self.equations.is_empty();
            self.equations.drain(..usize::from(any));
            return any;
        };
        self.kept -= piece.len() + PIECE;
        let end = offset + piece.len() as u64;
        self.equations.retain(|equation| {
            let range = equation.window().range();
            range.start >= end || range.end <= offset
        });
        true
    }

    /// Work is left for all.
    #[cfg(test)]
    pub(super) const fn with_work(mut self) -> Self {
        self.work = Work::of(u64::MAX);
        self
    }

    #[cfg(test)]
    pub(super) const fn equations_len(&self) -> usize {
        self.equations.len()
    }

    /// Keeps the parts that are new, and takes them from all equations; whether there were any.
    fn keep(&mut self, offset: u64, bytes: B) -> bool {
        let all = offset..offset + bytes.len() as u64;
        if bytes.is_empty() {
            return false;
        }
        if self.pieces_in(&all).next().is_none() {
            // as it is, and not a copy
            self.take_from_equations(&all, &bytes);
            self.kept += bytes.len() + PIECE;
            self.pieces.insert(offset, bytes);
            return true;
        }
        // a step a piece that is there already
        let new = self.missing(&all, &mut Work::of(u64::MAX)).unwrap_or_default();
        for range in &new {
            let part = &bytes[(range.start - offset) as usize..(range.end - offset) as usize];
            self.take_from_equations(range, part);
            self.kept += part.len() + PIECE;
            self.pieces.insert(range.start, part.to_vec().into());
        }
        !new.is_empty()
    }

    /// Takes known bytes from all equations. Where that is more work than there is, those that they concern are dropped:
    /// they would decode wrong bytes.
    fn take_from_equations(&mut self, range: &Range<u64>, part: &[u8]) {
        let concerned = |equation: &Equation| overlap(&equation.window().range(), range);
        let number = self.equations.iter().filter(|equation| concerned(equation)).count() as u64;
        let steps = self.equations.len() as u64 + number.saturating_mul(part.len() as u64);
        if self.work.take(steps) {
            self.equations.iter_mut().for_each(|equation| equation.add(range.start, part));
        } else {
            self.equations.retain(|equation| !concerned(equation));
        }
    }

    /// After something new of a range: what it allows to decode.
    fn solved(&mut self, range: &Range<u64>) -> Repaired {
        self.equations.retain(Equation::is_open);
        let (mut repaired, mut range) = (Vec::new(), range.clone());
        while let Some(found) = self.attempt(&range) {
            for (offset, bytes) in &found {
                self.keep(*offset, bytes.clone().into());
                // the equation that joined others to the range may be spent now
                range.start = range.start.min(*offset);
                range.end = range.end.max(offset + bytes.len() as u64);
            }
            self.equations.retain(Equation::is_open);
            repaired.extend(found);
        }
        repaired
    }

    /// With the equations of each grid whose windows overlap the range, directly or through others.
    fn attempt(&mut self, range: &Range<u64>) -> Option<Repaired> {
        let mut work = self.work;
        let touched = |equation: &&Equation| overlap(&equation.window().range(), range);
        let mut grids: Vec<Window> = Vec::new();
        let mut found = None;
        for newest in self.equations.iter().rev().filter(touched).map(Equation::window) {
            // looking for a grid, and at all equations for those of a new one, is work, too
            if !work.take(1 + grids.len() as u64) {
                break;
            }
            if grids.iter().any(|grid| grid.is_same_grid(newest)) {
                continue;
            }
            grids.push(*newest);
            if !work.take(self.equations.len() as u64) {
                break;
            }
            let (equations, missing) = self.together(newest, range, &mut work);
            let solved = solve(&equations, &missing, &mut work);
            if !solved.is_empty() {
                found = Some(solved);
                break;
            }
        }
        self.work = work;
        found
    }

    /// Equations of a grid that hang together around a range, and what they lack; without those of the flow's oldest
    /// bytes where that is too much.
    fn together(
        &self,
        grid: &Window,
        range: &Range<u64>,
        work: &mut Work,
    ) -> (Vec<&Equation>, Vec<Range<u64>>) {
        let same = self.equations.iter().filter(|equation| equation.window().is_same_grid(grid));
        let mut others: Vec<&Equation> = same.collect();
        let (mut equations, mut all) = (Vec::new(), range.clone());
        loop {
            if !work.take(others.len() as u64) {
                return (Vec::new(), Vec::new());
            }
            let (more, rest): (Vec<_>, Vec<_>) =
                others.into_iter().partition(|other| overlap(&other.window().range(), &all));
            if more.is_empty() {
                break;
            }
            for equation in &more {
                let window = equation.window().range();
                all = all.start.min(window.start)..all.end.max(window.end);
            }
            equations.extend(more);
            others = rest;
        }
        // what arrived may begin before the first window, and end behind the last
        equations.sort_by_key(|equation| equation.window().range().start);
        let start = equations.first().map_or(0, |equation| equation.window().range().start);
        let end = equations.iter().map(|equation| equation.window().range().end).max();
        let Some(mut missing) = self.missing(&(start..end.unwrap_or(start)), work) else {
            return (Vec::new(), Vec::new());
        };
        let size = u64::from(grid.size);
        let symbols = |missing: &[Range<u64>]| {
            missing.iter().map(|part| 1 + (part.end - part.start).div_ceil(size)).sum::<u64>()
        };
        while symbols(&missing) > UNKNOWN && !equations.is_empty() {
            if !work.take((missing.len() + equations.len()) as u64) {
                return (Vec::new(), Vec::new());
            }
            equations.remove(0);
            let start = equations.first().map_or(u64::MAX, |first| first.window().range().start);
            missing.retain_mut(|part| {
                part.start = part.start.max(start);
                part.start < part.end
            });
        }
        (equations, missing)
    }

    /// Pieces that overlap a range.
    fn pieces_in(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, &[u8])> {
        let before = self.pieces.range(..range.start).next_back();
        let before = before.filter(|(at, piece)| **at + piece.len() as u64 > range.start);
        let inside = self.pieces.range(range.start..range.end.max(range.start));
        before.into_iter().chain(inside).map(|(at, piece)| (*at, &**piece))
    }

    /// What of a range is not kept; `None` where the work is spent.
    fn missing(&self, range: &Range<u64>, work: &mut Work) -> Option<Vec<Range<u64>>> {
        let (mut at, mut missing) = (range.start, Vec::new());
        for (offset, piece) in self.pieces_in(range) {
            if !work.take(1) {
                return None;
            }
            if at < offset {
                missing.push(at..offset);
            }
            at = at.max(offset + piece.len() as u64);
        }
        if at < range.end {
            missing.push(at..range.end);
        }
        Some(missing)
    }
}

const fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
