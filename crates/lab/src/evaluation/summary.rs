//! `summary.json` and `rows.csv`: what other programs read.

use super::{CellResult, Evaluation, tables};
use crate::cell::axis;
use crate::engine::Outcome;
use crate::runner::journal::{Kept, Row};
use ekiden_record::csv::Table;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// The document.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    pub experiment: String,
    pub engine: String,
    pub seed: u64,
    /// Of the program.
    pub version: String,
    /// Where rows of several versions of program or plan are kept: who made how many, of which parts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub makers: Vec<Maker>,
    /// That all runs took together.
    pub seconds: f64,
    pub rows: Vec<SummaryRow>,
    pub claims: Vec<SummaryClaim>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<tables::Filled>,
    /// Medians by cell, and counts.
    pub measured: BTreeMap<String, f64>,
}

/// Who made rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Maker {
    /// Of the program.
    pub version: String,
    /// The plan's hash.
    pub plan: String,
    pub rows: usize,
    pub parts: BTreeSet<String>,
}

/// Who made which rows, where there are several.
pub(crate) fn makers(kept: &Kept) -> Vec<Maker> {
    let makers = kept.makers().into_iter().map(|(identity, rows)| Maker {
        version: identity.version.clone(),
        plan: identity.plan.clone(),
        rows: rows.len(),
        parts: rows.iter().map(|row| row.cell.part.clone()).collect(),
    });
    let makers: Vec<Maker> = makers.collect();
    if makers.len() > 1 { makers } else { Vec::new() }
}

/// A published figure beside what was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SummaryRow {
    pub name: String,
    /// Of all figures here.
    pub unit: String,
    pub published: Option<f64>,
    pub measured: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// `null` where it is reported and not asserted, or was not measured.
    pub holds: Option<bool>,
    pub source: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SummaryClaim {
    pub text: String,
    /// `null` where it is reported and not asserted, or was not measured.
    pub holds: Option<bool>,
    /// In numbers.
    pub evidence: String,
}

/// Puts an evaluation into the document's form.
pub(crate) fn summary(kept: &Kept, evaluation: &Evaluation) -> Summary {
    let Kept { identity, rows, .. } = kept;
    let judged = evaluation.rows.iter().map(|judged| SummaryRow {
        name: judged.row.name.clone(),
        unit: judged.row.unit.clone(),
        published: judged.row.published,
        measured: judged.measured,
        low: judged.row.expectation.low,
        high: judged.row.expectation.high,
        holds: judged.holds,
        source: judged.row.source.clone(),
    });
    let claims = evaluation.claims.iter().map(|decided| SummaryClaim {
        text: decided.claim.text.clone(),
        holds: decided.holds,
        evidence: decided.evidence.clone(),
    });
    let mut measured: BTreeMap<String, f64> =
        evaluation.cells.iter().map(|result| (result.cell.key(), result.median)).collect();
    let sum = |count: fn(&CellResult) -> usize| evaluation.cells.iter().map(count).sum::<usize>();
    measured.insert("runs".to_owned(), rows.len() as f64);
    measured.insert(
        "runs failed".to_owned(),
        rows.iter().filter(|r| r.failure.is_some()).count() as f64,
    );
    measured.insert("runs tainted".to_owned(), sum(|result| result.tainted) as f64);
    measured.insert("cells".to_owned(), evaluation.cells.len() as f64);
    measured.insert("cells not run".to_owned(), evaluation.missing as f64);
    measured.insert("cells failed".to_owned(), evaluation.failed.len() as f64);
    Summary {
        experiment: identity.experiment.clone(),
        engine: identity.engine.clone(),
        seed: identity.seed,
        version: identity.version.clone(),
        makers: makers(kept),
        seconds: (rows.iter().map(|row| row.seconds).sum::<f64>() * 10.0).round() / 10.0,
        rows: judged.collect(),
        claims: claims.collect(),
        tables: evaluation.tables.clone(),
        measured,
    }
}

/// Every run, one a line, as CSV; `unit` is that of all values, empty where they have several.
pub(crate) fn csv(rows: &[Row], unit: &str, to: impl io::Write) -> io::Result<()> {
    let axes: Vec<&str> = axis::all()
        .map(|axis| axis.name)
        .filter(|name| rows.iter().any(|row| row.cell.values.contains_key(*name)))
        .collect();
    let outcomes = || rows.iter().filter_map(|row| row.outcome.as_ref());
    let figures: BTreeSet<&str> =
        outcomes().flat_map(|o| o.figures.keys().map(String::as_str)).collect();
    let facts: BTreeSet<&str> =
        outcomes().flat_map(|o| o.facts.keys().map(String::as_str)).collect();
    let value = match unit {
        "" => "value".to_owned(),
        unit => format!("value_{}", unit.to_lowercase().replace('/', "_per_")),
    };
    let own = [
        "repetition",
        "attempt",
        "seed",
        "time",
        "seconds",
        &value,
        "fidelity",
        "reasons",
        "failure",
    ];
    let head = ["part"].iter().chain(&axes).chain(&own).chain(&figures).chain(&facts);
    let mut table = Table::new(to, &head.copied().collect::<Vec<_>>())?;
    for row in rows {
        // all are empty where there is no outcome
        let text = |get: &dyn Fn(&Outcome) -> Option<String>| {
            row.outcome.as_ref().and_then(get).unwrap_or_default()
        };
        let mut line = vec![row.cell.part.clone()];
        line.extend(axes.iter().map(|a| row.cell.values.get(*a).cloned().unwrap_or_default()));
        line.extend([row.repetition, row.attempt].map(|n| n.to_string()));
        line.extend([row.seed.to_string(), row.time.to_string(), format!("{:.3}", row.seconds)]);
        line.push(text(&|o| Some(o.value.to_string())));
        line.push(text(&|o| Some(format!("{:?}", o.fidelity).to_lowercase())));
        line.push(text(&|o| Some(o.reasons.join("; "))));
        line.push(row.failure.clone().unwrap_or_default());
        line.extend(figures.iter().map(|name| text(&|o| Some(o.figures.get(*name)?.to_string()))));
        line.extend(facts.iter().map(|name| text(&|o| o.facts.get(*name).cloned())));
        table.row(&line)?;
    }
    Ok(())
}
