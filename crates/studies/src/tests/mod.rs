//! Tests of several studies together, and of the framework with real plans.

mod commands;
mod plans;
mod recordings;
mod reports;
mod simulations;

use ekiden_lab::cell::Cell;
use ekiden_lab::evaluation::CellResult;
use ekiden_lab::plan::{self, Choice};

/// The first cell of a part of a built-in plan that has these values.
pub(crate) fn planned(plan: &str, engine: &str, part: &str, wanted: &[(&str, &str)]) -> Cell {
    crate::register();
    let engine = Some(engine.to_owned());
    let choice = Choice { engine, only: vec![part.to_owned()], ..Choice::default() };
    let cells = plan::find(plan).unwrap().cells(&choice);
    let fits = |cell: &Cell| wanted.iter().all(|(axis, value)| cell.text(axis) == Ok(*value));
    cells.into_iter().map(|(cell, _)| cell).find(fits).unwrap()
}

pub(crate) fn result(values: &[(&str, &str)]) -> CellResult {
    CellResult { cell: Cell::new("row", values.iter().copied()), ..CellResult::default() }
}
