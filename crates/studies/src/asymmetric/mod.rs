//! The asymmetric study: downloads over a thin uplink, and handshakes that are lost (algorithms/asymmetric).

mod axes;
mod handshakes;
mod kernel;
pub(crate) mod sim;
pub(crate) mod thin_link;

use crate::download::testbed::window_figure;
use ekiden_lab::cell::Cell;
use ekiden_lab::cell::axis::Axis;
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_lab::study::{KernelRun, Open, Packets, PlanFile, Recorded, SimRun, Study};

pub(crate) struct Asymmetric;

impl Study for Asymmetric {
    fn name(&self) -> &'static str {
        "asymmetric"
    }

    fn plan(&self) -> PlanFile {
        plan_file!("asymmetric")
    }

    fn axes(&self) -> &'static [Axis] {
        axes::AXES
    }

    fn lacks(&self, engine: &str, cell: &Cell) -> Option<&'static str> {
        if engine == crate::kernel::NAME { kernel::handshakes::lacks(cell) } else { None }
    }

    fn sim(&self, run: &SimRun<'_>) -> Result<Outcome, EngineError> {
        if handshakes::is_about(run.cell) {
            return sim::handshakes::run(run.cell);
        }
        sim::run(run.cell, run.seed)
    }

    fn record(&self, run: &SimRun<'_>, open: Open<'_>) -> Result<Recorded, EngineError> {
        if handshakes::is_about(run.cell) {
            return sim::handshakes::record(run.cell, open);
        }
        sim::record(run.cell, run.seed, open)
    }

    fn kernel(&self, run: &KernelRun<'_>) -> Result<Outcome, EngineError> {
        let mut outcome = if handshakes::is_about(run.cell) {
            kernel::handshakes::run(run)?
        } else {
            kernel::run(run)?
        };
        let buffer = run.window.map(|made| format!("{} bytes", made.buffer));
        outcome.add_fact("receive buffer", buffer.unwrap_or("the machine's default".to_owned()));
        window_figure(run, &mut outcome);
        Ok(outcome)
    }

    fn packets(&self, cell: &Cell) -> Option<Packets> {
        Some(Packets { mtu: cell.value("mtu").ok()?, together: cell.text("offload") == Ok("on") })
    }

    fn facts(&self, engine: &str) -> Vec<(&'static str, &'static str)> {
        if engine != crate::kernel::NAME {
            return Vec::new();
        }
        let thin = "single packets: sent, carried and received one by one where offload is off. Where it is on, \
                    the kernel cuts and joins them in batches. The links beside a relay carry super-packets";
        vec![("thin links", thin), crate::download::METHOD]
    }

    fn closed_form(&self, cell: &Cell) -> Option<f64> {
        thin_link::expected(cell)
    }
}

/// The network of a cell with the widest uplink, for a test of all plans.
#[cfg(test)]
pub(crate) fn network(cell: &Cell) -> Result<crate::download::network::Network, EngineError> {
    let thin = thin_link::Thin::of(cell)?;
    kernel::network(cell, &thin, thin.downlink, 1, Some(1))
}
