//! What an evaluation finds, of one cell and of the whole.

use super::tables;
use crate::cell::Cell;
use crate::plan::{Claim, Published};
use crate::statistics::bootstrap::Interval;
use crate::statistics::paired::{Beside, Runs};
use std::collections::BTreeMap;

/// The results of one cell.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CellResult {
    /// Which.
    pub cell: Cell,
    /// Repetition and value, by repetition.
    pub runs: Runs,
    /// The middle one.
    pub median: f64,
    /// First and third quartile.
    pub quartiles: (f64, f64),
    /// Of the median, 95 %; `None` of one run.
    pub interval: Option<Interval>,
    /// Attempts that failed.
    pub failures: usize,
    /// Values on links that were late now and then.
    pub noisy: usize,
    /// Values on links that did not keep their time: there were no better ones.
    pub tainted: usize,
    /// Further figures: repetition and value, by repetition.
    pub figures: BTreeMap<String, Runs>,
    /// Counts by size (floor of a class), all repetitions together.
    pub histograms: BTreeMap<String, BTreeMap<u64, u64>>,
    /// Values over time, of the first repetition that has them.
    pub series: BTreeMap<String, Vec<[f64; 2]>>,
    /// Further facts, those that all runs agree on.
    pub facts: BTreeMap<String, String>,
}

impl CellResult {
    /// Repetition and value of one of its figures; `None`: of the value itself.
    pub fn runs_of(&self, figure: Option<&str>) -> Option<&Runs> {
        figure.map_or(Some(&self.runs), |name| self.figures.get(name))
    }

    /// The values alone.
    pub fn values_of(&self, figure: Option<&str>) -> Option<Vec<f64>> {
        Some(self.runs_of(figure)?.iter().map(|(_, value)| *value).collect())
    }
}

/// A published figure beside ours.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    pub row: Published,
    /// `None` when its cells were not run.
    pub measured: Option<f64>,
    /// Whether it must hold on this engine.
    pub asserted: bool,
    /// Whether this engine is asked for it; another one is, otherwise.
    pub is_asked: bool,
    /// Whether it is not asserted because its cells were run too seldom.
    pub is_too_few: bool,
    /// Its 95 % interval, where it comes from one cell.
    pub interval: Option<Interval>,
    /// Whether it lies in its range; `None` when not asserted or not measured.
    pub holds: Option<bool>,
    /// Whether it would, for a row that is reported and not asserted.
    pub within: Option<bool>,
    /// Why it can never be measured: no cell has its figure.
    pub lack: Option<String>,
}

/// A claim and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    pub claim: Claim,
    /// Whether it must hold on this engine.
    pub asserted: bool,
    /// Whether this engine is asked for it; another one is, otherwise.
    pub is_asked: bool,
    /// Whether its cells were run.
    pub is_measured: bool,
    /// `None` when not asserted or not measured.
    pub holds: Option<bool>,
    /// In numbers.
    pub evidence: String,
}

/// A peer beside the fastest of the others, in one condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    pub cell: Cell,
    pub beside: Beside,
}

/// Everything found.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// Each cell with at least one value or failure, in the order of tables.
    pub cells: Vec<CellResult>,
    pub rows: Vec<Judged>,
    pub claims: Vec<Decided>,
    /// Each condition that a `beside` claim compares.
    pub compared: Vec<Compared>,
    pub tables: Vec<tables::Filled>,
    /// Cells of the whole plan that were not run.
    pub missing: usize,
    /// Cells that the engine cannot run, by the reason it gives.
    pub lacking: BTreeMap<String, usize>,
    /// Cells of which every attempt failed, with the last reason.
    pub failed: Vec<(Cell, String)>,
    /// Where the plan asks for a figure that no run has: whose it is, and which there are.
    pub unknown: Vec<String>,
}

impl Evaluation {
    /// Asserted figures and claims that were measured and do not hold.
    pub fn failing(&self) -> usize {
        let rows = self.rows.iter().map(|row| row.holds);
        let all = rows.chain(self.claims.iter().map(|claim| claim.holds));
        all.filter(|holds| *holds == Some(false)).count()
    }

    /// Figures and claims of the plan that this engine should measure, and nothing was measured of.
    pub fn open(&self) -> usize {
        let rows = self.rows.iter().filter(|row| row.is_asked && row.measured.is_none()).count();
        let lacks = |claim: &&Decided| claim.is_asked && !claim.is_measured;
        rows + self.claims.iter().filter(lacks).count()
    }

    /// Figures and claims of the plan that concern other engines alone.
    pub fn elsewhere(&self) -> usize {
        let rows = self.rows.iter().filter(|row| !row.is_asked).count();
        rows + self.claims.iter().filter(|claim| !claim.is_asked).count()
    }
}
