//! What can run a cell: the real kernel behind emulated links, or the simulator.

pub mod sim;

use crate::cell::Cell;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Display};

/// A run to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// What.
    pub cell: Cell,
    /// Which repetition of it, from 0.
    pub repetition: u32,
    /// For the links.
    pub seed: u64,
}

/// Runs cells: [`calibrate`](Self::calibrate) and [`facts`](Self::facts) before a batch, then
/// [`run_beside`](Self::run_beside) for each group of runs.
pub trait Engine {
    /// As in `--engine`.
    fn name(&self) -> &'static str;

    /// Engines that may run at once without disturbing their measurements; 1 where time is real.
    fn most_jobs(&self) -> usize {
        1
    }

    /// Whether equal cells and seeds give equal outcomes: then it neither retries nor calibrates.
    fn is_deterministic(&self) -> bool {
        false
    }

    /// Why it cannot run this cell, if it cannot: it is left out.
    fn lacks(&self, _cell: &Cell) -> Option<&'static str> {
        None
    }

    /// What a reader needs to repeat the runs: versions of peers, congestion controls, offload mode.
    fn facts(&mut self) -> BTreeMap<String, String>;

    /// Measures its own error. Errors: it cannot even be measured.
    fn calibrate(&mut self) -> Result<Calibration, EngineError>;

    /// Runs a cell once. Cells that differ in their peer alone get the same seed, so the same link. Errors: the
    /// run failed; its reason is kept in the rows.
    fn run(&mut self, cell: &Cell, repetition: u32, seed: u64) -> Result<Outcome, EngineError>;

    /// Share of the machine that a run takes, in parts of [`WHOLE`]; runs of one part that fit together run at
    /// once.
    fn weight(&self, _cell: &Cell) -> u32 {
        WHOLE
    }

    /// Runs cells at once; returns their outcomes in the same order.
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
    /// Histograms: the floor of each class and its count. Named by the quantity, in nanoseconds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub histograms: BTreeMap<String, Vec<[u64; 2]>>,
    /// Values over time: seconds of the run and the value, by a name with its unit: `srtt, ms`.
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
    /// Of a run whose figure is `value`.
    pub fn of(value: f64) -> Self {
        Self { value, ..Self::default() }
    }

    /// Adds further figures by their names.
    pub fn add_figures<'a>(&mut self, figures: impl IntoIterator<Item = (&'a str, f64)>) {
        self.figures.extend(figures.into_iter().map(|(name, value)| (name.to_owned(), value)));
    }

    /// Adds a further fact.
    pub fn add_fact(&mut self, name: &str, fact: impl Into<String>) {
        self.facts.insert(name.to_owned(), fact.into());
    }

    /// The outcome, if all its values are finite: rows cannot hold others. Errors: the first of its figures
    /// that is none, by its name.
    pub fn checked(self) -> Result<Self, EngineError> {
        let of_series = |(name, values): (&String, &Vec<[f64; 2]>)| {
            let wrong = values.iter().flatten().find(|value| !value.is_finite());
            wrong.map(|value| (name.clone(), *value))
        };
        let figures = self.figures.iter().map(|(name, value)| (format!("figure `{name}`"), *value));
        let mut single = [("the measured value".to_owned(), self.value)].into_iter().chain(figures);
        let wrong = single.find(|(_, value)| !value.is_finite());
        match wrong.or_else(|| self.series.iter().find_map(of_series)) {
            None => Ok(self),
            Some((name, value)) => Err(EngineError(format!(
                "{name} is {value}, not a number: this cell leaves nothing \
                 to measure, such as a time or a size of next to nothing"
            ))),
        }
    }
}

/// Why an engine cannot run a cell. It takes any error by `?`, so it is none itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineError(pub String);

/// Names the operation that failed: `Topology::build(&plan).during("the network")?`.
pub trait During<T> {
    /// The result, its error behind the operation's name.
    fn during(self, operation: impl Display) -> Result<T, EngineError>;
}

impl<T, E: Display> During<T> for Result<T, E> {
    fn during(self, operation: impl Display) -> Result<T, EngineError> {
        self.map_err(|error| EngineError(format!("{operation}: {error}")))
    }
}

impl Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for EngineError {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}
