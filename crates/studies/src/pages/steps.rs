//! The steps of a connection by HTTPS, on both engines.

use ekiden_lab::cell::{Cell, CellError};
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_model::units::Span;

/// Files, by the names of their figures.
pub(super) const FILES: [(&str, u64); 3] =
    [("100_kb", 100_000), ("1_mb", 1_000_000), ("10_mib", 10 << 20)];

/// Between two connections: nothing of the one before is left. Errors: the cell has no round trip.
pub(super) fn apart(cell: &Cell) -> Result<Span, CellError> {
    let rtt: Span = cell.value("rtt")?;
    Ok(Span::from_nanos(rtt.as_nanos() / 2 * 5))
}

/// Seconds since before the connection.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Steps {
    pub(super) tls: f64,
    pub(super) first: f64,
    /// The last byte of each of [`FILES`], on a connection of its own.
    pub(super) files: Vec<f64>,
}

impl Steps {
    /// The first byte is the value; all steps in seconds and in round trips. Errors: the cell lacks a value.
    pub(super) fn outcome(&self, cell: &Cell) -> Result<Outcome, EngineError> {
        let rtt = cell.value::<Span>("rtt")?.as_secs_f64();
        let mut outcome = Outcome::of(self.first);
        let mut tell = |name: &str, seconds: f64| {
            let figures =
                [(format!("{name}_s"), seconds), (format!("{name}_trips"), seconds / rtt)];
            outcome.figures.extend(figures);
        };
        tell("tls", self.tls);
        tell("first_byte", self.first);
        for ((name, _), seconds) in FILES.into_iter().zip(&self.files) {
            tell(name, *seconds);
        }
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_told_in_seconds_and_in_round_trips() {
        let cell = Cell::new("steps", [("rtt", "600 ms")]);
        let steps = Steps { tls: 0.6, first: 1.2, files: vec![1.5, 1.8, 6.0] };
        let outcome = steps.outcome(&cell).unwrap();
        let figure = |name: &str| outcome.figures[name];
        assert_eq!((outcome.value, figure("first_byte_trips")), (1.2, 2.0));
        assert_eq!((figure("tls_s"), figure("1_mb_s"), figure("10_mib_trips")), (0.6, 1.8, 10.0));
    }
}
