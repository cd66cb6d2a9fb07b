//! From runs to figures: each cell's median and interval, what was published beside what was measured,
//! and what was claimed.

pub mod expected;
pub mod placement;
pub mod summary;

use crate::cell::Cell;
use crate::engine::Fidelity;
use crate::plan::{Claim, Plan, Published, Rule};
use crate::runner::journal::Row;
use crate::statistics::bootstrap::{self, Interval};
use crate::statistics::paired::{self, Beside, Runs};
use crate::statistics::{median, quantile};
use std::collections::BTreeMap;

/// What is known of one cell.
#[derive(Debug, Clone, PartialEq)]
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
    /// Medians of further figures.
    pub figures: BTreeMap<String, f64>,
    /// Further facts, those that all runs agree on.
    pub facts: BTreeMap<String, String>,
}

/// A published figure beside ours.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// What was published.
    pub row: Published,
    /// What was measured; `None` when its cells were not run.
    pub measured: Option<f64>,
    /// Its 95 % interval, where it comes from one cell.
    pub interval: Option<Interval>,
    /// Whether it lies in its range; `None` when not asserted or not measured.
    pub holds: Option<bool>,
    /// Whether it would, for a row that is reported and not asserted.
    pub within: Option<bool>,
}

/// A claim and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    /// The claim.
    pub claim: Claim,
    /// `None` when not asserted or not measured.
    pub holds: Option<bool>,
    /// In numbers.
    pub evidence: String,
}

/// A peer beside the fastest of the others, in one condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// Its cell.
    pub cell: Cell,
    /// Who compares.
    pub ours: String,
    /// The figures.
    pub beside: Beside,
}

/// All that can be said.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// Each cell with at least one value or failure, in the order of tables.
    pub cells: Vec<CellResult>,
    /// Each published figure.
    pub rows: Vec<Judged>,
    /// Each claim.
    pub claims: Vec<Decided>,
    /// Each condition that a `beside` claim compares.
    pub compared: Vec<Compared>,
    /// Cells of the whole plan that were not run.
    pub missing: usize,
    /// Cells of which every attempt failed, with the last reason.
    pub failed: Vec<(Cell, String)>,
}

impl Evaluation {
    /// Whether nothing that is asserted and was measured fails.
    #[must_use]
    pub fn holds(&self) -> bool {
        let rows = self.rows.iter().map(|row| row.holds);
        rows.chain(self.claims.iter().map(|claim| claim.holds)).all(|holds| holds != Some(false))
    }
}

/// Evaluates `rows`; only cells that the plan still has count.
#[must_use]
pub fn evaluate(plan: &Plan, rows: &[Row], seed: u64) -> Evaluation {
    let planned = plan.cells(&crate::plan::Choice::default());
    let mut cells = Vec::new();
    let mut failed = Vec::new();
    let mut missing = 0;
    for (cell, _) in planned {
        let own: Vec<&Row> = rows.iter().filter(|row| row.cell == cell).collect();
        match result(&cell, &own, seed) {
            Some(result) => cells.push(result),
            None => match own.iter().rev().find_map(|row| row.failure.clone()) {
                Some(why) => failed.push((cell, why)),
                None => missing += 1,
            },
        }
    }
    cells.sort_by(|a, b| a.cell.compare(&b.cell));
    let judged = plan.published.iter().map(|row| judge(row, &cells, seed)).collect();
    let mut compared = Vec::new();
    let claims =
        plan.claims.iter().map(|claim| decide(claim, plan, &cells, seed, &mut compared)).collect();
    Evaluation { cells, rows: judged, claims, compared, missing, failed }
}

fn result(cell: &Cell, rows: &[&Row], seed: u64) -> Option<CellResult> {
    // of several attempts at a repetition, the one whose links were best counts
    let mut best: BTreeMap<u32, (Fidelity, &Row)> = BTreeMap::new();
    for row in rows {
        let Some(outcome) = &row.outcome else { continue };
        let better = best.get(&row.repetition).is_none_or(|(f, _)| outcome.fidelity < *f);
        if better {
            best.insert(row.repetition, (outcome.fidelity, row));
        }
    }
    let outcomes: Vec<_> = best.values().filter_map(|(_, row)| row.outcome.as_ref()).collect();
    let runs: Runs =
        best.iter().filter_map(|(n, (_, row))| Some((*n, row.outcome.as_ref()?.value))).collect();
    let values: Vec<f64> = runs.iter().map(|(_, value)| *value).collect();
    let names = outcomes.first()?;
    let figures = names.figures.keys().filter_map(|name| {
        let all: Vec<f64> = outcomes.iter().filter_map(|o| o.figures.get(name).copied()).collect();
        Some((name.clone(), median(&all)?))
    });
    let agreed = names
        .facts
        .iter()
        .filter(|(name, fact)| outcomes.iter().all(|o| o.facts.get(*name) == Some(*fact)));
    let count = |fidelity| best.values().filter(|(f, _)| *f == fidelity).count();
    Some(CellResult {
        median: median(&values)?,
        quartiles: (quantile(&values, 0.25)?, quantile(&values, 0.75)?),
        interval: bootstrap::of_median(&values, seed),
        failures: rows.iter().filter(|row| row.failure.is_some()).count(),
        noisy: count(Fidelity::Noisy),
        tainted: count(Fidelity::Tainted),
        figures: figures.collect(),
        facts: agreed.map(|(name, fact)| (name.clone(), fact.clone())).collect(),
        cell: cell.clone(),
        runs,
    })
}

fn judge(row: &Published, cells: &[CellResult], seed: u64) -> Judged {
    let found = expected::figure(&row.expectation, cells, seed);
    let measured = found.as_ref().map(|found| found.value);
    let within = measured.map(|value| row.expectation.is_met(value));
    let bounded = row.expectation.low.is_some() || row.expectation.high.is_some();
    Judged {
        row: row.clone(),
        measured,
        interval: found.and_then(|found| found.interval),
        holds: within.filter(|_| row.asserted),
        within: within.filter(|_| bounded),
    }
}

fn decide(
    claim: &Claim,
    plan: &Plan,
    cells: &[CellResult],
    seed: u64,
    compared: &mut Vec<Compared>,
) -> Decided {
    let (holds, evidence) = match &claim.rule {
        Rule::Beside { ours, others, mean_at_least, no_interval_below } => {
            let found = beside(plan, cells, ours, others, seed);
            let decided = beside_holds(&found, *mean_at_least, *no_interval_below, seed);
            compared.extend(found);
            decided
        }
        Rule::Placement { of, within } => placement::decide(of, *within, cells),
        Rule::Figure(expectation) => match expected::figure(expectation, cells, seed) {
            Some(found) => {
                let unit = if expectation.against.is_some() { "×" } else { &plan.measure.unit };
                let evidence = format!("{} {unit}", Short(found.value));
                (Some(expectation.is_met(found.value)), evidence)
            }
            None => (None, NOT_MEASURED.to_owned()),
        },
    };
    Decided { claim: claim.clone(), holds: holds.filter(|_| claim.asserted), evidence }
}

pub(crate) const NOT_MEASURED: &str = "not measured";

fn beside(
    plan: &Plan,
    cells: &[CellResult],
    ours: &str,
    others: &[String],
    seed: u64,
) -> Vec<Compared> {
    let peer = |result: &CellResult| result.cell.values.get(&plan.paired).cloned();
    let condition = |result: &CellResult| result.cell.key_without(&[&plan.paired]);
    let own = cells.iter().filter(|result| peer(result).as_deref() == Some(ours));
    own.filter_map(|own| {
        let same = cells.iter().filter(|result| condition(result) == condition(own));
        let rivals: Vec<(String, Runs)> = same
            .filter_map(|result| Some((peer(result)?, result.runs.clone())))
            .filter(|(name, _)| others.contains(name))
            .collect();
        let beside = paired::beside(&own.runs, &rivals, seed)?;
        Some(Compared { cell: own.cell.clone(), ours: ours.to_owned(), beside })
    })
    .collect()
}

fn beside_holds(found: &[Compared], mean: f64, floor: f64, seed: u64) -> (Option<bool>, String) {
    let ratios: Vec<Vec<f64>> = found.iter().map(|c| c.beside.ratios.clone()).collect();
    let Some((all, interval)) = paired::over_all(&ratios, seed) else {
        return (None, NOT_MEASURED.to_owned());
    };
    let below = |c: &&Compared| c.beside.interval.is_some_and(|i| i.high < floor);
    let slow: Vec<String> = found
        .iter()
        .filter(below)
        .map(|c| format!("{} ({:.2})", c.cell.key(), c.beside.ratio))
        .collect();
    let repeated = found.iter().any(|c| c.beside.interval.is_some());
    let range = interval.map_or(String::new(), |i| format!(" ({:.3} … {:.3})", i.low, i.high));
    let mut evidence = format!("geometric mean {all:.3}{range} over {} cells; ", found.len());
    evidence += &match (repeated, slow.as_slice()) {
        (false, _) => "one run each, so no intervals".to_owned(),
        (true, []) => format!("no cell's interval lies below {floor}"),
        (true, slow) => format!("below {floor}: {}", slow.join(", ")),
    };
    (Some(all >= mean && slow.is_empty()), evidence)
}

/// Prints a figure with three significant digits, as many as repeats of this kind bear.
#[derive(Debug, Clone, Copy)]
pub struct Short(pub f64);

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = match self.0.abs() {
            100.0.. => 0,
            10.0..100.0 => 1,
            _ => 2,
        };
        f.pad(&format!("{:.digits$}", self.0))
    }
}

#[cfg(test)]
pub(crate) mod tests;
