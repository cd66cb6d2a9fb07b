//! What was measured, as rows and as tables.

use ekiden_lab::statistics::quantile;
use ekiden_model::units::{Share, Span};
use serde::Serialize;
use std::fmt::Write;

/// One relay's openings.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) rtt: Span,
    pub(crate) loss: Share,
    pub(crate) remedy: String,
    pub(crate) load: String,
    pub(crate) destinations: u8,
    pub(crate) seconds: f64,
    /// SYNs sent, by the kernel's counters.
    pub(crate) syns: u64,
    /// Sockets connected beside one for each opening, by the kernel's counters.
    pub(crate) copies: u64,
    /// Second SYNs to one destination within one second, at most, as the relay says when it sent each.
    pub(crate) most_seconds: usize,
    /// What the relay itself says.
    pub(crate) opening: serde_json::Value,
    /// Milliseconds; null of an opening that failed.
    pub(crate) took: Vec<Option<f64>>,
}

/// A table for each link and load.
pub(crate) fn of(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut before = None;
    for row in rows {
        let here = (row.rtt, row.loss, &row.load);
        if before.replace(here) != Some(here) {
            let _infallible = writeln!(
                text,
                "\n{}, {} lost each way, {}\n{:14} {:>7} {:>7} {:>7} {:>7} {:>7} {:>6} {:>6} {:>8} {:>8} {:>11}",
                row.rtt,
                row.loss,
                row.load,
                "",
                "mean ms",
                "p50",
                "p95",
                "p99",
                "most",
                "failed",
                "SYN/1",
                "repeated",
                "second",
                "most/s to 1"
            );
        }
        let took: Vec<f64> = row.took.iter().copied().flatten().collect();
        let at = |share| quantile(&took, share).unwrap_or(f64::NAN);
        let mean = took.iter().sum::<f64>() / took.len().max(1) as f64;
        let message = |name: &str| row.opening[name].as_u64().unwrap_or(0);
        let second = message("second_syns");
        let _infallible = writeln!(
            text,
            "{:14} {mean:>7.1} {:>7.1} {:>7.1} {:>7.1} {:>7.1} {:>6} {:>6.3} {:>8} {second:>8} {:>11}",
            row.remedy,
            at(0.5),
            at(0.95),
            at(0.99),
            at(1.0),
            row.took.len() - took.len(),
            row.syns as f64 / row.took.len().max(1) as f64,
            message("repeated_syns"),
            row.most_seconds,
        );
    }
    text
}
