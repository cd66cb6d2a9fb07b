//! Cost of lost handshakes to a short download (algorithms/asymmetric D.5): the mean over the number of failed
//! attempts, each run once and weighed by its probability.

use ekiden_lab::cell::{Cell, CellError};
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_model::control::formula::handshake_delay;
use ekiden_model::units::{Share, Span};

pub(crate) fn is_about(cell: &Cell) -> bool {
    cell.values.contains_key("initial-rto")
}

/// One download, from before connecting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Took {
    /// To its last byte, ms.
    pub(crate) whole: f64,
    /// To its first, ms.
    pub(crate) first_byte: f64,
}

/// How many failures in a row are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Depth {
    /// At most; longer rows count as so many.
    pub(crate) most: u32,
    /// None whose probability is below this.
    pub(crate) least: f64,
}

/// Runs a cell by `download`, one download whose first attempts fail, as many as its argument.
pub(crate) fn run(
    cell: &Cell,
    depth: Depth,
    mut download: impl FnMut(u32) -> Result<Took, EngineError>,
) -> Result<Outcome, EngineError> {
    let share: Share = cell.value("handshake-loss")?;
    let q = share.as_parts_per_billion() as f64 / 1e9;
    let fails = 1.0 - (1.0 - q) * (1.0 - q);
    let (mut mean, mut first_byte, mut without) = (0.0, 0.0, 0.0);
    for failures in 0..=depth.most {
        let took = download(failures)?;
        if failures == 0 {
            without = took.whole;
        }
        let so_many = fails.powi(failures as i32);
        let last = failures == depth.most || so_many * fails < depth.least;
        let weight = if last { so_many } else { so_many * (1.0 - fails) };
        mean += weight * took.whole;
        first_byte += weight * took.first_byte;
        if last {
            break;
        }
    }
    let first = first_wait(cell)?;
    let mut outcome = Outcome::of(mean);
    outcome.add_figures([
        ("first_byte_ms", first_byte),
        ("without_loss_ms", without),
        ("extra_ms", mean - without),
        ("extra_model_ms", handshake_delay(q, first, 1) * 1e3),
        ("extra_model_two_syns_ms", handshake_delay(q, first, 2) * 1e3),
        ("times_without_loss", mean / without),
        ("wait_percent", fails * 100.0),
    ]);
    Ok(outcome)
}

/// How long a SYN is waited for first. Errors: the cell does not say.
pub(crate) fn first_wait(cell: &Cell) -> Result<Span, CellError> {
    cell.value("initial-rto")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(loss: &str) -> Cell {
        Cell::new("p", [("handshake-loss", loss), ("initial-rto", "1 s")])
    }

    /// A time-out that doubles: 2ᵏ − 1 seconds after k failures.
    fn doubling(failures: u32) -> Result<Took, EngineError> {
        let whole = 100.0 + (2.0_f64.powi(failures as i32) - 1.0) * 1e3;
        Ok(Took { whole, first_byte: whole - 90.0 })
    }

    #[test]
    fn mean_equals_the_closed_form() {
        let outcome = run(&cell("10 %"), Depth { most: 20, least: 0.0 }, doubling).unwrap();
        let figures = &outcome.figures;
        assert!((figures["extra_ms"] / figures["extra_model_ms"] - 1.0).abs() < 1e-4);
        assert!((outcome.value - figures["first_byte_ms"] - 90.0).abs() < 1e-6);
        assert!((figures["times_without_loss"] - outcome.value / 100.0).abs() < 1e-9);
    }

    #[test]
    fn weighs_rare_failures_with_the_last_that_is_run() {
        let mut made = Vec::new();
        let mut count = |loss, least| {
            made.clear();
            let depth = Depth { most: 5, least };
            let outcome = run(&cell(loss), depth, |failures| {
                made.push(failures);
                // each alike: then the weights must come to 1
                Ok(Took { whole: 100.0, first_byte: 10.0 })
            });
            assert!((outcome.unwrap().value - 100.0).abs() < 1e-9);
            made.len()
        };
        assert_eq!([count("0 %", 1e-4), count("1 %", 1e-4), count("10 %", 1e-4)], [1, 3, 6]);
        assert_eq!(count("10 %", 0.0), 6);
    }
}
