//! What can run a cell: the real kernel behind emulated links, or the simulator.

use crate::cell::Cell;
use crate::runner::order::Task;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Runs cells.
///
/// ```text
/// facts()                  once: versions, kernel, modes, for the report
/// calibrate()              before a batch
/// run(cell, repetition, seed)   as often as there are runs; cells come grouped, so that what two
///                          neighbours have in common may be kept from one to the next
/// ```
pub trait Engine {
    /// As in `--engine`.
    fn name(&self) -> &'static str;

    /// How many may run beside each other without disturbing what they measure; 1 where time is real.
    fn most_jobs(&self) -> usize {
        1
    }

    /// Whether equal cells and seeds give equal outcomes: then no second try can end otherwise, and
    /// there is nothing to calibrate.
    fn is_deterministic(&self) -> bool {
        false
    }

    /// Why it cannot run this cell, if it cannot: it is left out.
    fn lacks(&self, _cell: &Cell) -> Option<&'static str> {
        None
    }

    /// Versions of peers, congestion controls, offload mode and the like: what a reader needs to run
    /// it again.
    fn facts(&mut self) -> BTreeMap<String, String>;

    /// Measures its own error.
    ///
    /// # Errors
    /// It cannot even be measured.
    fn calibrate(&mut self) -> Result<Calibration, EngineError>;

    /// Runs a cell once. Cells that differ in their peer alone are given the same seed: they meet the
    /// same link.
    ///
    /// # Errors
    /// The run failed; its reason is kept in the rows.
    fn run(&mut self, cell: &Cell, repetition: u32, seed: u64) -> Result<Outcome, EngineError>;

    /// How much of the machine a run takes, in parts of [`WHOLE`]. Runs of one part that are not more together
    /// are made at once, by [`Engine::run_beside`].
    fn weight(&self, _cell: &Cell) -> u32 {
        WHOLE
    }

    /// Runs cells beside each other; the answers are in their order. An engine all of whose runs take the whole
    /// machine is given one at a time.
    fn run_beside(&mut self, tasks: &[Task]) -> Vec<Result<Outcome, EngineError>> {
        tasks.iter().map(|task| self.run(&task.cell, task.repetition, task.seed)).collect()
    }
}

/// The whole machine, for [`Engine::weight`].
pub const WHOLE: u32 = 100;

/// How far an engine's links are from what was asked, before a batch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// What was measured: a name such as `rate, 1 Gbit/s` and its relative error, 0.01 being 1 %.
    pub errors: BTreeMap<String, f64>,
    /// Further figures with their unit in the name.
    pub figures: BTreeMap<String, f64>,
}

impl Calibration {
    /// No batch begins on links that are further off than this: 2 %.
    pub const MOST: f64 = 0.02;

    /// What is too far off.
    #[must_use]
    pub fn refusals(&self) -> Vec<(&str, f64)> {
        let off = |error: &f64| error.is_nan() || error.abs() > Self::MOST;
        self.errors.iter().filter(|(_, e)| off(e)).map(|(name, e)| (name.as_str(), *e)).collect()
    }
}

/// How far a run's links can be believed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fidelity {
    /// On time.
    #[default]
    Clean,
    /// Late now and then; the figure stands.
    Noisy,
    /// Late enough to matter: repeated, and marked where it stays.
    Tainted,
}

/// What a run yielded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The figure, in the plan's unit.
    pub value: f64,
    /// Further figures, with their unit in the name: `connect_ms`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
    /// Counts of values by size: floor of a class, and how many. The name says of what, in nanoseconds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub histograms: BTreeMap<String, Vec<[u64; 2]>>,
    /// Values over time: seconds since the run began, and the value. The name says of what and in which
    /// unit: `srtt, ms`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub series: BTreeMap<String, Vec<[f64; 2]>>,
    /// Further facts: `congestion` = `cubic`, `cut` = `yes`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
    /// Whether the links kept their time.
    #[serde(default)]
    pub fidelity: Fidelity,
    /// Why not clean.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

impl Outcome {
    /// The outcome, if all of it are numbers: rows cannot hold another, and nothing can be said of one.
    ///
    /// # Errors
    /// The first of its figures that is none, by its name.
    pub fn checked(self) -> Result<Self, EngineError> {
        let of_series = |(name, values): (&String, &Vec<[f64; 2]>)| {
            let wrong = values.iter().flatten().find(|value| !value.is_finite());
            wrong.map(|value| (name.clone(), *value))
        };
        let wrong = (!self.value.is_finite())
            .then(|| ("the measured value".to_owned(), self.value))
            .or_else(|| {
                let wrong = self.figures.iter().find(|(_, value)| !value.is_finite());
                wrong.map(|(name, value)| (format!("figure «{name}»"), *value))
            })
            .or_else(|| self.series.iter().find_map(of_series));
        match wrong {
            None => Ok(self),
            Some((name, value)) => Err(EngineError(format!(
                "{name} came out as {value}, which is no number: something in this cell leaves nothing \
                 to measure, such as a time or a size of next to nothing"
            ))),
        }
    }
}

/// Why an engine cannot do what it is asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EngineError(pub String);

impl EngineError {
    /// Says what was being done when something failed.
    pub fn during(what: impl std::fmt::Display) -> impl FnOnce(&dyn std::fmt::Display) -> Self {
        move |error| Self(format!("{what}: {error}"))
    }
}

impl From<crate::cell::CellError> for EngineError {
    fn from(error: crate::cell::CellError) -> Self {
        Self(error.to_string())
    }
}

impl From<crate::peers::PeerError> for EngineError {
    fn from(error: crate::peers::PeerError) -> Self {
        Self(error.to_string())
    }
}
