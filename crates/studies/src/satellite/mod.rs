//! The satellite study: load on a long link with loss, over TCP, a pair of relays with a tunnel, and hysteria2
//! (algorithms/satellite).

mod axes;
mod kernel;
mod outcome;
mod sim;

use crate::long_link;
use crate::thin_client;
use ekiden_lab::cell::Cell;
use ekiden_lab::cell::axis::Axis;
use ekiden_lab::chart::Panel;
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_lab::evaluation::CellResult;
use ekiden_lab::plan::Figure;
use ekiden_lab::study::{KernelRun, Open, Packets, PlanFile, Recorded, SimRun, Study};

pub(crate) struct Satellite;

impl Study for Satellite {
    fn name(&self) -> &'static str {
        "satellite"
    }

    fn plan(&self) -> PlanFile {
        plan_file!("satellite")
    }

    fn axes(&self) -> &'static [Axis] {
        axes::AXES
    }

    long_link::over_long_link!();

    fn sim(&self, run: &SimRun<'_>) -> Result<Outcome, EngineError> {
        sim::run(run.cell, run.seed)
    }

    fn record(&self, _run: &SimRun<'_>, _open: Open<'_>) -> Result<Recorded, EngineError> {
        Err(long_link::not_recorded())
    }

    fn shapes(&self) -> &'static [&'static str] {
        &["delays"]
    }

    fn panels(&self, _shape: &str, figure: &Figure, cells: &[&CellResult]) -> Vec<Panel> {
        thin_client::figures::delays::panels(figure, cells)
    }
}
