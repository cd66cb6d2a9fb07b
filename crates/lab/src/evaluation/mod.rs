//! From runs to figures: medians and intervals of cells, measured beside published figures, claims.

mod claims;
pub(crate) mod closed_form;
mod gain;
pub(crate) mod measured;
mod monotone;
mod order;
mod placement;
mod published;
mod result;
pub(crate) mod summary;
pub(crate) mod tables;

pub use result::CellResult;
pub(crate) use result::{Compared, Decided, Evaluation, Judged};

use crate::cell::Cell;
use crate::engine::Fidelity;
use crate::plan::{Claim, Plan, Published, Rule, Selection, Table};
use crate::runner::journal::{Kept, Row};
use crate::statistics::bootstrap;
use crate::statistics::paired::{self, Runs};
use crate::statistics::{median, quantile};
use std::collections::BTreeMap;

/// Evaluates what was kept; only cells that the plan still has for this engine count.
pub fn evaluate(plan: &Plan, kept: &Kept) -> Evaluation {
    let (seed, rows) = (kept.identity.seed, &kept.rows);
    let engine = kept.identity.engine.as_str();
    let of_engine = Some(engine.to_owned());
    let planned = plan.cells(&crate::plan::Choice { engine: of_engine, ..Default::default() });
    // of the last start: the engine may have gained a capability
    let lacks = kept.begins.last().map(|begin| begin.lacks.clone()).unwrap_or_default();
    let mut cells = Vec::new();
    let mut failed = Vec::new();
    let mut missing = 0;
    let mut lacking: BTreeMap<String, usize> = BTreeMap::new();
    for (cell, _) in planned {
        let own: Vec<&Row> = rows.iter().filter(|row| row.cell == cell).collect();
        match result(&cell, &own, seed) {
            Some(result) => cells.push(result),
            None => match own.iter().rev().find_map(|row| row.failure.clone()) {
                Some(why) => failed.push((cell, why)),
                None => match lacks.get(&cell.key()) {
                    Some(why) => *lacking.entry(why.clone()).or_default() += 1,
                    None => missing += 1,
                },
            },
        }
    }
    cells.sort_by(|a, b| a.cell.compare(&b.cell));
    let judged = plan.published.iter().map(|row| published::judge(plan, row, &cells, seed, engine));
    let judged = judged.collect();
    let mut compared = Vec::new();
    let claims = plan.claims.iter().map(|claim| {
        let (holds, evidence) = claims::decide(claim, plan, &cells, seed, &mut compared);
        let asserted = claim.asserted.on(engine);
        let runs = claim.rule.part().is_none_or(|part| plan.runs_on(part, engine));
        let (claim, is_asked) = (claim.clone(), claim.asserted.concerns(engine) && runs);
        let is_measured = !evidence.starts_with(NOT_MEASURED);
        let holds = holds.filter(|_| asserted);
        Decided { claim, asserted, is_asked, is_measured, holds, evidence }
    });
    let claims = claims.collect();
    let fill = |table: &Table| {
        // one of another engine has no lines
        let cells = if table.is_of(engine) { cells.as_slice() } else { &[] };
        tables::fill(table, cells, &plan.measure_of(&table.of.part).name)
    };
    let tables = plan.tables.iter().map(fill).collect();
    let unknown = unknown(plan, &cells, engine);
    Evaluation { cells, rows: judged, claims, compared, tables, missing, lacking, failed, unknown }
}

/// Figures that the plan asks for on this engine and that no run has: a misspelt name would stay a dash.
fn unknown(plan: &Plan, cells: &[CellResult], engine: &str) -> Vec<String> {
    let mut asked: Vec<(String, &Selection, &str)> = Vec::new();
    for row in plan.published.iter().filter(|row| row.asserted.concerns(engine)) {
        if let Some(figure) = &row.expectation.figure {
            asked.push((format!("published `{}`", row.name), &row.expectation.of, figure));
        }
    }
    for claim in plan.claims.iter().filter(|claim| claim.asserted.concerns(engine)) {
        let (of, figure) = match &claim.rule {
            Rule::Figure(expectation) => (&expectation.of, &expectation.figure),
            Rule::Order { of, figure, .. } => (of, figure),
            _ => continue,
        };
        if let Some(figure) = figure {
            asked.push((format!("claim `{}`", claim.text), of, figure));
        }
    }
    for table in plan.tables.iter().filter(|table| table.is_of(engine)) {
        let columns = table.columns.iter().filter(|column| *column != tables::VALUE);
        asked.extend(columns.map(|name| (format!("table `{}`", table.name), &table.of, &**name)));
    }
    let nowhere = |name: &str| !cells.iter().any(|result| result.figures.contains_key(name));
    let report =
        asked.into_iter().filter(|(.., name)| nowhere(name)).filter_map(|(whose, of, name)| {
            measured::lack(of, Some(name), cells).map(|lack| format!("{whose}: {lack}"))
        });
    report.collect()
}

fn result(cell: &Cell, rows: &[&Row], seed: u64) -> Option<CellResult> {
    // of several attempts at a repetition, the one whose links were best counts, and the last of equals
    let mut best: BTreeMap<u32, (Fidelity, &Row)> = BTreeMap::new();
    for row in rows {
        let Some(outcome) = &row.outcome else { continue };
        let better = best.get(&row.repetition).is_none_or(|(f, _)| outcome.fidelity <= *f);
        if better {
            best.insert(row.repetition, (outcome.fidelity, row));
        }
    }
    let outcomes: Vec<_> = best.values().filter_map(|(_, row)| row.outcome.as_ref()).collect();
    let runs: Runs =
        best.iter().filter_map(|(n, (_, row))| Some((*n, row.outcome.as_ref()?.value))).collect();
    let values: Vec<f64> = runs.iter().map(|(_, value)| *value).collect();
    let names = outcomes.first()?;
    let mut figures: BTreeMap<String, Runs> = BTreeMap::new();
    for (repetition, (_, row)) in &best {
        for (name, value) in row.outcome.iter().flat_map(|outcome| &outcome.figures) {
            figures.entry(name.clone()).or_default().push((*repetition, *value));
        }
    }
    let mut histograms: BTreeMap<String, BTreeMap<u64, u64>> = BTreeMap::new();
    for (name, classes) in outcomes.iter().flat_map(|outcome| &outcome.histograms) {
        let sum = histograms.entry(name.clone()).or_default();
        classes.iter().for_each(|[floor, count]| *sum.entry(*floor).or_default() += count);
    }
    let series = outcomes.iter().find(|outcome| !outcome.series.is_empty());
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
        figures,
        histograms,
        series: series.map(|outcome| outcome.series.clone()).unwrap_or_default(),
        facts: agreed.map(|(name, fact)| (name.clone(), fact.clone())).collect(),
        cell: cell.clone(),
        runs,
    })
}

pub(crate) const NOT_MEASURED: &str = "not measured";

/// Whether a claim holds, `None` while it is open; and the evidence.
pub(crate) type Decision = (Option<bool>, String);

fn not_measured() -> Decision {
    (None, NOT_MEASURED.to_owned())
}

/// A figure as [`Short`] prints it, or a dash.
pub(crate) fn short(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| Short(value).to_string())
}

/// Prints a figure with three significant digits, as many as repeats of this kind bear.
#[derive(Debug, Clone, Copy)]
pub struct Short(pub f64);

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = self.0.abs();
        let digits = match size {
            100.0.. => 0,
            10.0..100.0 => 1,
            _ if size >= 0.1 || size == 0.0 => 2,
            // 0.0013 and not 0.00; nothing is shown below a millionth
            _ => (1.0 - size.log10().floor()).clamp(2.0, 7.0) as usize,
        };
        f.pad(&format!("{:.digits$}", self.0))
    }
}

#[cfg(test)]
pub(crate) mod tests;
