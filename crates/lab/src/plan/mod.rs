//! An experiment's plan: what varies over which values, how often, and which published figures it stands
//! beside.
//!
//! ```toml
//! study = "island"              # left out: the study of the plan's name
//!
//! [[part]]
//! name = "row"
//! title = "relays in a row"
//! repetitions = 5
//! fixed = { loss = "0 %" }
//! quick = { repetitions = 1, only = { relays = [0, 2] } }
//! [[part.grid]]
//! engines = ["kernel"]          # of the plan's engines; a part may say it for all its grids
//! vary = { peer = ["squid", "ekiden"], relays = [1, 2], file = ["8 MiB"] }
//! ```
//! A part is the union of its grids; a grid is every combination of its values. A grid's values override the
//! part's fixed ones, and those the plan's. `--quick` only removes values, so its runs count in the whole
//! experiment too.

mod check;
mod draft;
mod expectation;
mod figure;

use crate::cell::Cell;
use crate::study::{self, Study};
pub use check::parse;
pub(crate) use expectation::{Asserted, Expectation, Gain, Published, Take};
pub use expectation::{Claim, Rule, Selection};
pub(crate) use figure::Table;
pub use figure::{Figure, Shape};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// An experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// As in `ekiden lab run NAME`.
    pub name: String,
    /// The study that runs its cells.
    pub study: &'static dyn Study,
    /// One line.
    pub title: String,
    /// Where the published figures are from.
    pub source: String,
    /// What is replayed and how, in sentences.
    pub replays: String,
    /// Which engines can run it, the default first.
    pub engines: Vec<String>,
    /// The measure of each run, unless its part has another.
    pub measure: Measure,
    /// The axis whose values are compared run by run: these are made side by side.
    pub paired: String,
    /// Axes for which one set-up serves all values.
    pub together: Vec<String>,
    /// What was chosen and why, for the report.
    pub notes: Vec<String>,
    /// Its parts.
    pub parts: Vec<Part>,
    /// Published figures.
    pub published: Vec<Published>,
    /// What else is expected.
    pub claims: Vec<Claim>,
    /// Figures to draw.
    pub figures: Vec<Figure>,
    /// Tables of several figures.
    pub tables: Vec<Table>,
    /// Of all that decides what a run is; repetitions, expectations and figures may change without changing it.
    pub hash: String,
}

/// What a run yields.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Such as `goodput`.
    pub name: String,
    /// Such as `Mbit/s`.
    pub unit: String,
}

/// A part of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// As in `--only PART`.
    pub name: String,
    /// One line.
    pub title: String,
    /// What it shows, in sentences.
    pub about: String,
    /// The measure of its runs, if it is not the plan's.
    pub measure: Option<Measure>,
    /// The axis whose values are compared run by run, if it is not the plan's.
    pub paired: Option<String>,
    /// What varies.
    pub grids: Vec<Grid>,
    /// What `--quick` leaves; without it the part is left out.
    pub quick: Option<Quick>,
}

/// Every combination of some values.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// How often each combination is run.
    pub repetitions: u32,
    /// Which engines run it.
    pub engines: Vec<String>,
    /// Axis → values, those with one value too.
    pub values: BTreeMap<String, Vec<String>>,
}

/// What `--quick` leaves of a part.
#[derive(Debug, Clone, PartialEq)]
pub struct Quick {
    /// At most so many.
    pub repetitions: u32,
    /// Axis → values that stay; an axis that is not here keeps all.
    pub only: BTreeMap<String, Vec<String>>,
}

/// The axis of relays, in every plan.
pub const PEER: &str = "peer";

/// Which cells of a plan are to be run.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// The quick ones alone.
    pub quick: bool,
    /// These values of [`PEER`] alone; the un-split path (`none`) always stays. Empty: all.
    pub peers: Vec<String>,
    /// These parts alone; empty: all.
    pub only: Vec<String>,
    /// Repetitions instead of the plan's.
    pub repetitions: Option<u32>,
    /// Those of this engine; `None`: of any.
    pub engine: Option<String>,
}

/// Why a plan cannot be used: what, where, what to try.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct PlanError {
    /// File and line.
    pub place: String,
    /// What is wrong, with a hint.
    pub what: String,
}

/// The plans that come with the program. Errors: none that a released program has: a test reads them all.
pub fn all() -> Result<Vec<Plan>, PlanError> {
    let plans = study::registered().iter().map(|study| study.plan());
    plans.map(|plan| parse(plan.path, plan.text)).collect()
}

/// The plan of this name, or in this file (anything with a `/` or ending in `.toml`). Errors: there is none, it
/// cannot be read, or it has a mistake.
pub fn find(name: &str) -> Result<Plan, PlanError> {
    if name.contains('/') || Path::new(name).extension().is_some_and(|e| e == "toml") {
        let text = std::fs::read_to_string(name)
            .map_err(|error| PlanError { place: name.to_owned(), what: error.to_string() })?;
        return parse(name, &text);
    }
    let plans = all()?;
    let names: Vec<String> = plans.iter().map(|plan| plan.name.clone()).collect();
    plans.into_iter().find(|plan| plan.name == name).ok_or_else(|| {
        let hint = match crate::cell::axis::similar_name(name, names.iter().map(String::as_str)) {
            Some(other) => format!("did you mean `{other}`?"),
            None => format!("there are: {}; or give the path of a plan file", names.join(", ")),
        };
        PlanError { place: format!("experiment `{name}`"), what: format!("not found; {hint}") }
    })
}

impl Plan {
    /// The cells to run and how often each, in the plan's order, each once.
    pub fn cells(&self, choice: &Choice) -> Vec<(Cell, u32)> {
        let mut seen = BTreeSet::new();
        let mut cells: Vec<(Cell, u32)> = Vec::new();
        for part in &self.parts {
            if !choice.only.is_empty() && !choice.only.contains(&part.name) {
                continue;
            }
            let quick = if choice.quick { part.quick.as_ref() } else { None };
            if choice.quick && quick.is_none() {
                continue;
            }
            let runs =
                |grid: &&Grid| choice.engine.as_ref().is_none_or(|e| grid.engines.contains(e));
            for grid in part.grids.iter().filter(runs) {
                let most = quick.map_or(u32::MAX, |quick| quick.repetitions);
                let repetitions = choice.repetitions.unwrap_or(grid.repetitions.min(most));
                for values in combinations(&grid.values) {
                    let stays = |(axis, value): (&String, &String)| {
                        let quick = quick.and_then(|quick| quick.only.get(axis));
                        let peer = axis != PEER
                            || choice.peers.is_empty()
                            || value == "none"
                            || choice.peers.contains(value);
                        peer && quick.is_none_or(|values| values.contains(value))
                    };
                    let cell = Cell { part: part.name.clone(), values };
                    if cell.values.iter().all(stays) && seen.insert(cell.key()) {
                        cells.push((cell, repetitions));
                    }
                }
            }
        }
        cells
    }

    /// What the runs of a part yield.
    pub fn measure_of(&self, part: &str) -> &Measure {
        let own = self.part(part).and_then(|part| part.measure.as_ref());
        own.unwrap_or(&self.measure)
    }

    /// The axis of a part whose values are compared run by run.
    pub fn paired_in(&self, part: &str) -> &str {
        self.part(part).and_then(|part| part.paired.as_deref()).unwrap_or(&self.paired)
    }

    /// Whether an engine runs anything of a part.
    pub fn runs_on(&self, part: &str, engine: &str) -> bool {
        let runs = |grid: &Grid| grid.engines.iter().any(|name| name == engine);
        self.part(part).is_some_and(|part| part.grids.iter().any(runs))
    }

    /// The part of this name.
    pub fn part(&self, name: &str) -> Option<&Part> {
        self.parts.iter().find(|part| part.name == name)
    }
}

/// Every combination, the last axis turning fastest.
fn combinations(values: &BTreeMap<String, Vec<String>>) -> Vec<BTreeMap<String, String>> {
    let mut all = vec![BTreeMap::new()];
    for (axis, values) in values {
        all = all
            .into_iter()
            .flat_map(|before: BTreeMap<String, String>| {
                values.iter().map(move |value| {
                    let mut one = before.clone();
                    one.insert(axis.clone(), value.clone());
                    one
                })
            })
            .collect();
    }
    all
}

#[cfg(test)]
mod tests;
