//! A sliding-window linear code over a flow's bytes.
//!
//! A *grid* cuts the flow from `base` on into symbols of `size` bytes. A repair symbol is the sum
//! of the symbols of a window, each multiplied by a coefficient of the repair's and the symbol's
//! number. It is as long as a symbol; the window's last symbol may be shorter and counts as filled with zeros.
//!
//! Packets need not end where symbols do. Bytes at the same place of their symbols, a *column*,
//! are an equation of their own. A lost packet no longer than a symbol misses each column once, so
//! it costs one repair wherever it began.

use super::field::{add_multiple, inverse, product};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// The most symbols of a window: so many have different columns in the Cauchy matrix, with as many rows.
pub const MOST_SYMBOLS: u64 = 128;

/// What a repair symbol covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Offset in the flow at which the grid begins.
    pub base: u64,
    /// Bytes of a symbol; at least 1.
    pub size: u32,
    /// The number of the first symbol, counted from `base`.
    pub first: u64,
    /// Bytes from the first symbol on; at least 1, at most [`MOST_SYMBOLS`] symbols.
    pub length: u64,
    /// The number of the repair symbol; those of one window differ modulo 128.
    pub nth: u8,
}

impl Window {
    /// The same, if its values are in their ranges and no offset exceeds 2⁶².
    pub fn checked(self) -> Option<Self> {
        let size = u64::from(self.size);
        let start = self.first.checked_mul(size)?.checked_add(self.base)?;
        let end = start.checked_add(self.length)?;
        let fits = size > 0
            && self.length > 0
            && self.length <= size.saturating_mul(MOST_SYMBOLS)
            && end <= 1 << 62;
        fits.then_some(self)
    }

    /// The bytes of the flow that it covers.
    pub fn range(&self) -> Range<u64> {
        let start = self.base + self.first * u64::from(self.size);
        start..start + self.length
    }

    /// Bytes of the repair symbol.
    pub fn width(&self) -> usize {
        u64::from(self.size).min(self.length) as usize
    }

    /// Whether equations of both may be solved together.
    pub fn is_same_grid(&self, other: &Self) -> bool {
        (self.base, self.size) == (other.base, other.size)
    }

    /// Of a Cauchy matrix: 1 / (row + column), with rows below 128 and columns above.
    const fn coefficient(&self, symbol: u64) -> u8 {
        inverse((self.nth & 0x7f) ^ (0x80 | (symbol & 0x7f) as u8))
    }
}

/// Steps that decoding may still take: a step reads or adds a byte, or looks at a piece.
///
/// Bytes that arrive earn them, so that a peer cannot make this end compute for long by sending little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work(u64);

impl Work {
    /// Before anything arrived.
    const FIRST: u64 = 32 * 1024;
    /// Earned by a byte. A repair of `n` packets of `w` bytes takes about `n·w` steps to keep, and `n²·w` for all
    /// `n`; they bring `n·w` bytes, and `n` is 32 where a window of 128 has lost a quarter. More is not decoded.
    const EACH: u64 = 64;
    /// A window of 128 full packets with a third of them lost, and its repairs.
    const MOST: u64 = 16 * 1024 * 1024;

    /// So many steps.
    pub const fn of(steps: u64) -> Self {
        Self(steps)
    }

    /// Bytes arrived.
    pub fn earn(&mut self, bytes: usize) {
        self.0 = self.0.saturating_add(bytes as u64 * Self::EACH).min(Self::MOST.max(self.0));
    }

    /// Takes steps; `false` where too few are left, which takes them all.
    pub fn take(&mut self, steps: u64) -> bool {
        let enough = steps <= self.0;
        self.0 = self.0.saturating_sub(steps);
        enough
    }
}

impl Default for Work {
    fn default() -> Self {
        Self(Self::FIRST)
    }
}

/// A repair symbol less the bytes that are known: at the sender none of the rest is left to know,
/// at the receiver it is a sum of what was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Equation {
    window: Window,
    sum: Vec<u8>,
    /// Bytes of the window that were not added.
    lacks: u64,
}

impl Equation {
    /// An empty sum. With all bytes of the window added it is the repair symbol.
    pub fn new(window: Window) -> Self {
        Self { window, sum: vec![0; window.width()], lacks: window.length }
    }

    /// Of a repair symbol that arrived; `None` where its length is not that of its window.
    pub fn received(window: Window, symbol: &[u8]) -> Option<Self> {
        let window = window.checked()?;
        let lacks = window.length;
        (symbol.len() == window.width()).then(|| Self { window, sum: symbol.to_vec(), lacks })
    }

    /// What it covers.
    pub fn window(&self) -> &Window {
        #[cfg(test)]
        super::counted::step(1);
        &self.window
    }

    /// Whether bytes of the window are still unknown.
    pub const fn is_open(&self) -> bool {
        self.lacks > 0
    }

    /// The repair symbol, at the sender.
    pub fn into_symbol(self) -> Vec<u8> {
        self.sum
    }

    /// Adds bytes of the flow, or takes them away: the same in this field. What lies outside the window is left out;
    /// no byte may be added twice.
    pub fn add(&mut self, offset: u64, bytes: &[u8]) {
        let window = self.window.range();
        let from = window.start.max(offset);
        let until = window.end.min(offset + bytes.len() as u64);
        let size = u64::from(self.window.size);
        self.lacks = self.lacks.saturating_sub(until.saturating_sub(from));
        let mut at = from;
        while at < until {
            let symbol = (at - self.window.base) / size;
            let column = (at - self.window.base) % size;
            let length = (size - column).min(until - at);
            let part = &bytes[(at - offset) as usize..(at - offset + length) as usize];
            let factor = self.window.coefficient(symbol);
            add_multiple(&mut self.sum[column as usize..], part, factor);
            at += length;
        }
    }
}

/// A part of a symbol that is unknown.
#[derive(Debug, Clone, Copy)]
struct Unknown {
    symbol: u64,
    from: u64,
    until: u64,
}

/// What equations of one grid give of the bytes that are missing: offset and bytes. It stops where the work is spent.
///
/// `missing` are all bytes of the equations' windows that were not taken from them, in order.
pub fn solve(
    equations: &[&Equation],
    missing: &[Range<u64>],
    work: &mut Work,
) -> Vec<(u64, Vec<u8>)> {
    let Some(first) = equations.first() else { return Vec::new() };
    let (base, size) = (first.window.base, u64::from(first.window.size));
    let unknown = unknown(base, size, missing);
    let mut borders: Vec<u64> = unknown.iter().flat_map(|part| [part.from, part.until]).collect();
    // where windows end within a symbol, the columns behind are not covered
    borders.extend(equations.iter().map(|equation| (equation.window.range().end - base) % size));
    borders.sort_unstable();
    borders.dedup();
    let mut solved = Vec::new();
    for columns in borders.windows(2) {
        let &[from, until] = columns else { continue };
        let here = unknown.iter().filter(|part| part.from <= from && part.until >= until);
        let symbols: Vec<u64> = here.map(|part| part.symbol).collect();
        if !work.take((unknown.len() + equations.len() * symbols.len()) as u64) {
            break;
        }
        let useful = useful(equations, &symbols, (from, until));
        // those that no equation covers need no column
        let symbols: Vec<u64> = symbols
            .into_iter()
            .filter(|symbol| useful.iter().any(|equation| covers(equation, *symbol, from)))
            .collect();
        let rows = useful.len() as u64;
        if !work.take(rows * rows * (rows + symbols.len() as u64)) {
            break;
        }
        for (symbol, combination) in eliminate(&useful, &symbols, from) {
            let mut bytes = vec![0; (until - from) as usize];
            work.take(rows * (until - from));
            for (equation, factor) in useful.iter().zip(combination) {
                add_multiple(&mut bytes, &equation.sum[from as usize..until as usize], factor);
            }
            solved.push((base + symbol * size + from, bytes));
        }
    }
    solved
}

/// The equations that may determine something in a column: one with more unknowns than there are equations cannot,
/// since any minor of a Cauchy matrix is regular.
fn useful<'a>(
    equations: &[&'a Equation],
    symbols: &[u64],
    (from, until): (u64, u64),
) -> Vec<&'a Equation> {
    let unknown = |equation: &Equation| {
        symbols.iter().filter(|symbol| covers(equation, **symbol, from)).count()
    };
    // a window's last symbol may be short, a repair symbol too
    let reaches = |equation: &&&Equation| until <= equation.sum.len() as u64;
    let counted = equations.iter().filter(reaches).map(|equation| (unknown(equation), *equation));
    let mut counted: Vec<_> = counted.filter(|(unknown, _)| *unknown > 0).collect();
    loop {
        let most = counted.len();
        counted.retain(|(unknown, _)| *unknown <= most);
        if counted.len() == most {
            return counted.into_iter().map(|(_, equation)| equation).collect();
        }
    }
}

/// Missing bytes by symbol and column.
fn unknown(base: u64, size: u64, missing: &[Range<u64>]) -> Vec<Unknown> {
    let mut parts = Vec::new();
    for range in missing {
        let mut at = range.start.max(base);
        while at < range.end {
            let (symbol, from) = ((at - base) / size, (at - base) % size);
            let length = (size - from).min(range.end - at);
            parts.push(Unknown { symbol, from, until: from + length });
            at += length;
        }
    }
    parts
}

fn covers(equation: &Equation, symbol: u64, column: u64) -> bool {
    let window = &equation.window;
    window.range().contains(&(window.base + symbol * u64::from(window.size) + column))
}

/// Gauss and Jordan: symbols that are determined, each with the factors of the equations whose sum it is.
fn eliminate(equations: &[&Equation], symbols: &[u64], column: u64) -> Vec<(u64, Vec<u8>)> {
    let width = symbols.len();
    let mut rows: Vec<Vec<u8>> = Vec::with_capacity(equations.len());
    for (nth, equation) in equations.iter().enumerate() {
        let coefficient = |symbol: &u64| match covers(equation, *symbol, column) {
            true => equation.window.coefficient(*symbol),
            false => 0,
        };
        let mut row: Vec<u8> = symbols.iter().map(coefficient).collect();
        row.extend((0..equations.len()).map(|other| u8::from(other == nth)));
        rows.push(row);
    }
    let mut pivots = Vec::new();
    for unknown in 0..width {
        let rank = pivots.len();
        let Some(row) = (rank..rows.len()).find(|row| rows[*row][unknown] != 0) else { continue };
        rows.swap(rank, row);
        let factor = inverse(rows[rank][unknown]);
        rows[rank].iter_mut().for_each(|value| *value = product(*value, factor));
        let pivot = rows[rank].clone();
        for (nth, row) in rows.iter_mut().enumerate() {
            let factor = if nth == rank { 0 } else { row[unknown] };
            add_multiple(row, &pivot, factor);
        }
        pivots.push(unknown);
    }
    let determined = rows
        .iter()
        .zip(pivots)
        .filter(|(row, _)| row[..width].iter().filter(|value| **value != 0).count() == 1);
    determined.map(|(row, unknown)| (symbols[unknown], row[width..].to_vec())).collect()
}
