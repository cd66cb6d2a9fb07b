//! An experiment's plan: what varies over which values, how often, and which published figures the
//! result stands beside. `experiments/NAME.toml` is the only place where these values stand.
//!
//! ```toml
//! [[part]]
//! name = "row"
//! title = "relays in a row"
//! repetitions = 5
//! fixed = { loss = "0 %" }
//! quick = { repetitions = 1, only = { relays = [0, 2] } }
//! [[part.grid]]
//! vary = { peer = ["squid", "ekiden"], relays = [1, 2], file = ["8 MiB"] }
//! [[part.grid]]
//! engines = ["kernel"]          # of the plan's engines; a part may say it for all its grids
//! vary = { peer = ["squid", "ekiden"], relays = 2, congestion = "bbr", file = ["8 MiB"] }
//! ```
//! A part is the union of its grids; a grid is every combination of its values. What a grid does not
//! vary, the part fixes, and what the part does not fix, the plan does. `--quick` only takes values
//! away, so that its runs count in the whole experiment too.

pub mod axis;
mod check;
mod draft;
pub mod expectation;
pub mod figure;

use crate::cell::Cell;
pub use expectation::{Asserted, Claim, Expectation, Gain, Published, Rule, Selection, Take};
pub use figure::{Figure, Shape, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Plans that come with the program.
const EMBEDDED: &[(&str, &str)] = &[
    ("experiments/agreement.toml", include_str!("../../../experiments/agreement.toml")),
    ("experiments/asymmetric.toml", include_str!("../../../experiments/asymmetric.toml")),
    ("experiments/demo.toml", include_str!("../../../experiments/demo.toml")),
    ("experiments/island.toml", include_str!("../../../experiments/island.toml")),
    ("experiments/proxy-pressure.toml", include_str!("../../../experiments/proxy-pressure.toml")),
    ("experiments/satellite.toml", include_str!("../../../experiments/satellite.toml")),
    ("experiments/thin-client.toml", include_str!("../../../experiments/thin-client.toml")),
];

/// An experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// As in `ekiden lab run NAME`.
    pub name: String,
    /// One line.
    pub title: String,
    /// Where the published figures are from.
    pub source: String,
    /// What is replayed and how, in sentences.
    pub replays: String,
    /// Which engines can run it, the default first.
    pub engines: Vec<String>,
    /// What each run yields, where its part says nothing else.
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
    /// Stands for all that decides what a run is; not for repetitions, expectations and figures,
    /// which may change without a run losing its meaning.
    pub hash: String,
}

/// What a run yields.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// What its runs yield, if that is not what the plan says.
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

/// The axis of relays, whatever a plan compares.
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
    /// So often, whatever the plan says.
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

/// The plans that come with the program.
///
/// # Errors
/// None that a released program has: a test reads them all.
pub fn all() -> Result<Vec<Plan>, PlanError> {
    EMBEDDED.iter().map(|(file, text)| parse(file, text)).collect()
}

/// The plan of this name, or in this file (anything with a `/` or ending in `.toml`).
///
/// # Errors
/// There is none, it cannot be read, or it has a mistake.
pub fn find(name: &str) -> Result<Plan, PlanError> {
    if name.contains('/') || Path::new(name).extension().is_some_and(|e| e == "toml") {
        let text = std::fs::read_to_string(name)
            .map_err(|error| PlanError { place: name.to_owned(), what: error.to_string() })?;
        return parse(name, &text);
    }
    let plans = all()?;
    let names: Vec<String> = plans.iter().map(|plan| plan.name.clone()).collect();
    plans.into_iter().find(|plan| plan.name == name).ok_or_else(|| {
        let hint = match similar(name, names.iter().map(String::as_str)) {
            Some(other) => format!("did you mean «{other}»?"),
            None => format!("there are: {}; or give the path of a plan file", names.join(", ")),
        };
        PlanError {
            place: format!("experiment «{name}»"),
            what: format!("there is no such; {hint}"),
        }
    })
}

/// Reads a plan.
///
/// # Errors
/// The first mistake, with its line and a hint.
pub fn parse(file: &str, text: &str) -> Result<Plan, PlanError> {
    check::plan(file, text)
}

impl Plan {
    /// The cells to run and how often each, in the plan's order, each once.
    #[must_use]
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
    #[must_use]
    pub fn measure_of(&self, part: &str) -> &Measure {
        let own = self.part(part).and_then(|part| part.measure.as_ref());
        own.unwrap_or(&self.measure)
    }

    /// The axis of a part whose values are compared run by run.
    #[must_use]
    pub fn paired_in(&self, part: &str) -> &str {
        self.part(part).and_then(|part| part.paired.as_deref()).unwrap_or(&self.paired)
    }

    /// Whether an engine runs anything of a part.
    #[must_use]
    pub fn runs_on(&self, part: &str, engine: &str) -> bool {
        let runs = |grid: &Grid| grid.engines.iter().any(|name| name == engine);
        self.part(part).is_some_and(|part| part.grids.iter().any(runs))
    }

    /// The part of this name.
    #[must_use]
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

/// A name among `known` that `wrong` may have been meant to be.
pub(crate) fn similar<'a>(
    wrong: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(wrong, name), name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests;
