//! The evaluation of one cell.

use crate::cell::Cell;
use crate::statistics::bootstrap::Interval;
use crate::statistics::paired::Runs;
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
