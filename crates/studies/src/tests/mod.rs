//! Tests of several studies together, and of the framework with real plans.

mod commands;
mod plans;
mod recordings;
mod reports;
mod simulations;

use ekiden_lab::cell::Cell;
use ekiden_lab::evaluation::CellResult;
use ekiden_lab::plan::{self, Choice, Figure, Selection, Shape};
use std::collections::BTreeMap;

/// The first cell of a part of a built-in plan that has these values.
pub(crate) fn planned(plan: &str, engine: &str, part: &str, wanted: &[(&str, &str)]) -> Cell {
    crate::register();
    let engine = Some(engine.to_owned());
    let choice = Choice { engine, only: vec![part.to_owned()], ..Choice::default() };
    let cells = plan::find(plan).unwrap().cells(&choice);
    let fits = |cell: &Cell| wanted.iter().all(|(axis, value)| cell.text(axis) == Ok(*value));
    cells.into_iter().map(|(cell, _)| cell).find(fits).unwrap()
}

/// A figure of a study's own shape, of all cells of `part`.
pub(crate) fn figure(
    shape: &'static str,
    part: &str,
    series: &str,
    panels: Option<&str>,
) -> Figure {
    Figure {
        name: shape.to_owned(),
        title: String::new(),
        caption: String::new(),
        shape: Shape::Own(shape),
        x: String::new(),
        series: series.to_owned(),
        panels: panels.map(str::to_owned),
        of: Selection { part: part.to_owned(), cells: BTreeMap::new() },
        log: true,
    }
}

pub(crate) fn result(values: &[(&str, &str)]) -> CellResult {
    CellResult { cell: Cell::new("row", values.iter().copied()), ..CellResult::default() }
}
