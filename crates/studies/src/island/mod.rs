//! Downloads over legs: the island study (algorithms/split-connections), the agreement study of the simulator's
//! TCP with Linux's, and the demonstration over a long, lossy link.

pub(crate) mod kernel;
pub(crate) mod sim;

use crate::download::closed_form;
use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_lab::study::{KernelRun, Open, PlanFile, Recorded, SimRun, Study};

/// A study of downloads over legs: its plan alone tells it from the others.
pub(crate) struct Downloads {
    name: &'static str,
    plan: PlanFile,
}

pub(crate) static ISLAND: Downloads = Downloads { name: "island", plan: plan_file!("island") };
pub(crate) static AGREEMENT: Downloads =
    Downloads { name: "agreement", plan: plan_file!("agreement") };
pub(crate) static DEMO: Downloads = Downloads { name: "demo", plan: plan_file!("demo") };

impl Study for Downloads {
    fn name(&self) -> &'static str {
        self.name
    }

    fn plan(&self) -> PlanFile {
        self.plan
    }

    fn sim(&self, run: &SimRun<'_>) -> Result<Outcome, EngineError> {
        sim::record(run.cell, run.seed, |_| Ok(())).map(|(outcome, ())| outcome)
    }

    fn record(&self, run: &SimRun<'_>, open: Open<'_>) -> Result<Recorded, EngineError> {
        sim::record(run.cell, run.seed, open)
    }

    fn kernel(&self, run: &KernelRun<'_>) -> Result<Outcome, EngineError> {
        kernel::run(run)
    }

    fn facts(&self, engine: &str) -> Vec<(&'static str, &'static str)> {
        crate::download::facts(engine)
    }

    fn closed_form(&self, cell: &Cell) -> Option<f64> {
        closed_form::of_cell(cell)
    }
}
