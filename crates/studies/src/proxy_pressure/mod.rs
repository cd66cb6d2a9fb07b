//! The proxy-pressure study: a proxy with few slots and little memory for buffers (algorithms/buffers).

mod axes;
mod downloads;
mod figures;
pub(crate) mod kernel;
pub(crate) mod sim;

use ekiden_lab::cell::Cell;
use ekiden_lab::cell::axis::Axis;
use ekiden_lab::chart::Panel;
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_lab::evaluation::CellResult;
use ekiden_lab::plan::Figure;
use ekiden_lab::study::{KernelRun, Open, Packets, PlanFile, Recorded, SimRun, Study};

pub(crate) struct ProxyPressure;

impl Study for ProxyPressure {
    fn name(&self) -> &'static str {
        "proxy-pressure"
    }

    fn plan(&self) -> PlanFile {
        plan_file!("proxy_pressure")
    }

    fn axes(&self) -> &'static [Axis] {
        axes::AXES
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

    fn packets(&self, _cell: &Cell) -> Option<Packets> {
        None // its hosts have buffers of their own
    }

    fn facts(&self, engine: &str) -> Vec<(&'static str, &'static str)> {
        let text = if engine == crate::kernel::NAME {
            "hosts have Linux's own tcp_rmem and tcp_wmem, not this machine's values. 200 slots are 200 \
             clients with the connections that their requests open. For squid they are 400 descriptors and \
             those it has at rest. Nothing is cached"
        } else {
            "TCP as in ns-2.1b9 (NewReno, minimum RTO 1 s), a persistent connection keeps its window. Ends \
             other than the proxy's have 4 MiB. Links hold 1,000 packets and lose by chance alone. FINs are \
             not sent: the other end learns of a close half a round trip later"
        };
        vec![("the proxy under pressure", text)]
    }

    fn shapes(&self) -> &'static [&'static str] {
        &["sizes"]
    }

    fn panels(&self, _shape: &str, figure: &Figure, cells: &[&CellResult]) -> Vec<Panel> {
        figures::panels(figure, cells)
    }
}
