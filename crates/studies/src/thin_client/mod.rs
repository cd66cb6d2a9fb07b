//! The thin-client study: interactive and bulk writes behind one bottleneck (algorithms/thin-client).

mod axes;
pub(crate) mod delays;
pub(crate) mod figures;
pub(crate) mod kernel;
pub(crate) mod sim;

use crate::long_link;
use ekiden_lab::cell::Cell;
use ekiden_lab::cell::axis::Axis;
use ekiden_lab::chart::Panel;
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_lab::evaluation::CellResult;
use ekiden_lab::plan::Figure;
use ekiden_lab::study::{KernelRun, Open, Packets, PlanFile, Recorded, SimRun, Study};

pub(crate) struct ThinClient;

impl Study for ThinClient {
    fn name(&self) -> &'static str {
        "thin-client"
    }

    fn plan(&self) -> PlanFile {
        plan_file!("thin_client")
    }

    fn axes(&self) -> &'static [Axis] {
        axes::AXES
    }

    long_link::over_long_link!();

    fn sim(&self, run: &SimRun<'_>) -> Result<Outcome, EngineError> {
        if is_study(run.cell) {
            return sim::run(run.cell, run.repetition, run.seed);
        }
        sim::over_link(run.cell, run.seed)
    }

    fn record(&self, run: &SimRun<'_>, open: Open<'_>) -> Result<Recorded, EngineError> {
        if is_study(run.cell) {
            return sim::record(run.cell, run.seed, open);
        }
        Err(long_link::not_recorded())
    }

    fn shapes(&self) -> &'static [&'static str] {
        &["ccdf", "timeline", "delays"]
    }

    fn panels(&self, shape: &str, figure: &Figure, cells: &[&CellResult]) -> Vec<Panel> {
        let first = |panels: fn(&CellResult) -> Vec<Panel>| {
            cells.first().map_or_else(Vec::new, |cell| panels(cell))
        };
        match shape {
            "ccdf" => first(figures::distribution::panels),
            "timeline" => first(figures::time_line::panels),
            _ => figures::delays::panels(figure, cells),
        }
    }
}

/// Whether a cell is one of the published scenarios; the others put the same writes on a long link.
fn is_study(cell: &Cell) -> bool {
    cell.values.contains_key("scenario")
}
