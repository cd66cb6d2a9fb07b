//! What a load of a page yielded, on both engines.

use crate::pages::page::Page;
use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_model::units::Span;

/// Series of a waterfall: each has the begin and the end of a phase of every object, in seconds.
pub(crate) const PHASES: [&str; 3] = ["connecting", "waiting", "receiving"];
/// The figure of the first paint.
pub(crate) const PAINT: &str = "first_paint_s";
/// The figure of the least time that is possible.
pub(crate) const FLOOR: &str = "floor_s";

/// One object, in seconds since the navigation began.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fetched {
    /// When it was wanted.
    pub(crate) wanted: f64,
    /// When its request was sent: there was a connection.
    pub(crate) asked: f64,
    /// The first byte of its answer.
    pub(crate) first: f64,
    /// The last.
    pub(crate) last: f64,
}

/// A page that came whole.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Loaded {
    /// The document, then the others in any order.
    pub(crate) objects: Vec<Fetched>,
    /// When something was shown; nothing where nobody looks.
    pub(crate) paint: Option<f64>,
}

impl Loaded {
    /// The last response is the value. Errors: the cell lacks a value, or there is no document.
    pub(crate) fn outcome(mut self, cell: &Cell, page: &Page) -> Result<Outcome, EngineError> {
        let first = self.objects.first().map(|document| document.first);
        let first = first.ok_or_else(|| EngineError("the page has no document".to_owned()))?;
        let last = self.objects.iter().map(|object| object.last).fold(0.0, f64::max);
        let rtt: Span = cell.value("rtt")?;
        let floor = page.floor(rtt, cell.value("downlink")?);
        let mut outcome = Outcome::of(last);
        outcome.add_figures([
            ("first_byte_s", first),
            (FLOOR, floor),
            ("over_floor", last / floor),
            ("round_trips", last / rtt.as_secs_f64()),
        ]);
        outcome.add_figures(self.paint.map(|paint| (PAINT, paint)));
        self.objects.sort_by(|a, b| a.wanted.total_cmp(&b.wanted).then(a.last.total_cmp(&b.last)));
        let phase = |of: fn(&Fetched) -> [f64; 2]| -> Vec<[f64; 2]> {
            let short = |at: f64| (at * 1e4).round() / 1e4;
            self.objects.iter().map(|object| of(object).map(short)).collect()
        };
        let phases = [
            phase(|object| [object.wanted, object.asked]),
            phase(|object| [object.asked, object.first]),
            phase(|object| [object.first, object.last]),
        ];
        outcome.series = PHASES.map(str::to_owned).into_iter().zip(phases).collect();
        Ok(outcome)
    }
}

/// What a tunnel's near end sent upwards meanwhile: payload, and how much of it again. Uplinks are thin.
pub(crate) fn tell_up(then: [f64; 2], now: [f64; 2], outcome: &mut Outcome) {
    let [sent, copied] = [0, 1].map(|n| (now[n] - then[n]) / 1e3);
    outcome.add_figures([("sent_up_kb", sent), ("copied_up_kb", copied)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_response_is_set_beside_the_floor() {
        let cell = Cell::new("pages", [("rtt", "600 ms"), ("downlink", "20 Mbit/s")]);
        let object = |wanted, last| Fetched { wanted, asked: wanted, first: wanted + 0.6, last };
        let objects = vec![object(0.0, 1.3), object(2.0, 2.7), object(1.3, 4.0)];
        let loaded = Loaded { objects, paint: Some(1.4) };
        let outcome = loaded.outcome(&cell, &Page::small()).unwrap();
        assert_eq!((outcome.value, outcome.figures[PAINT]), (4.0, 1.4));
        assert_eq!(outcome.figures["first_byte_s"], 0.6);
        let floor = outcome.figures[FLOOR];
        assert!((outcome.figures["over_floor"] - 4.0 / floor).abs() < 1e-9 && floor > 2.4);
        assert_eq!(outcome.series["receiving"], [[0.6, 1.3], [1.9, 4.0], [2.6, 2.7]]);
    }

    #[test]
    fn bytes_upwards_are_those_of_the_load_alone() {
        let mut outcome = Outcome::default();
        tell_up([5_000.0, 1_000.0], [17_000.0, 4_000.0], &mut outcome);
        let figure = |name: &str| outcome.figures[name];
        assert_eq!((figure("sent_up_kb"), figure("copied_up_kb")), (12.0, 3.0));
    }
}
