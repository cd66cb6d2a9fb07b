//! Pages by HTTPS over a satellite link: a browser, and the steps of a connection, through a tunnel, through
//! hysteria2, and over the link by plain TCP.

mod axes;
mod kernel;
mod outcome;
mod page;
mod sim;
mod steps;
mod waterfall;

use crate::long_link;
use ekiden_lab::cell::Cell;
use ekiden_lab::cell::axis::Axis;
use ekiden_lab::chart::Panel;
use ekiden_lab::engine::{EngineError, Outcome, WHOLE};
use ekiden_lab::evaluation::CellResult;
use ekiden_lab::plan::Figure;
use ekiden_lab::study::{KernelRun, Open, Packets, PlanFile, Recorded, SimRun, Study};

pub(crate) struct Pages;

impl Study for Pages {
    fn name(&self) -> &'static str {
        "pages"
    }

    fn plan(&self) -> PlanFile {
        plan_file!("pages")
    }

    fn axes(&self) -> &'static [Axis] {
        axes::AXES
    }

    fn lacks(&self, engine: &str, cell: &Cell) -> Option<&'static str> {
        match engine {
            crate::kernel::NAME => long_link::kernel_lacks(cell).or_else(|| kernel::lacks(cell)),
            _ => long_link::sim_lacks(cell),
        }
    }

    fn kernel(&self, run: &KernelRun<'_>) -> Result<Outcome, EngineError> {
        kernel::run(run)
    }

    fn packets(&self, _cell: &Cell) -> Option<Packets> {
        Some(crate::kernel::SINGLE)
    }

    fn weight(&self, cell: &Cell) -> u32 {
        // a browser takes what there is; clients of a few steps leave room for another run
        if cell.text("load") == Ok("steps") { WHOLE / 2 } else { WHOLE }
    }

    fn facts(&self, engine: &str) -> Vec<(&'static str, &'static str)> {
        let mut facts = long_link::facts(engine);
        if engine == crate::kernel::NAME {
            let text = "nginx serves by TLS 1.3 and HTTP/2 at the far end, with a certificate for each host. Only \
                        the far end knows the names; over plain TCP and behind a gateway they take no time. Each load has a Chromium with \
                        a fresh profile, which uses Ekiden by HTTP CONNECT and hysteria2 by SOCKS5. Steps are curl's, \
                        by HTTP CONNECT. A megabyte goes each way before anything is measured";
            facts.push(("pages", text));
        }
        facts
    }

    fn sim(&self, run: &SimRun<'_>) -> Result<Outcome, EngineError> {
        sim::run(run.cell, run.seed)
    }

    fn record(&self, _run: &SimRun<'_>, _open: Open<'_>) -> Result<Recorded, EngineError> {
        Err(long_link::not_recorded())
    }

    fn shapes(&self) -> &'static [&'static str] {
        &["waterfall"]
    }

    fn panels(&self, _shape: &str, figure: &Figure, cells: &[&CellResult]) -> Vec<Panel> {
        waterfall::panels(figure, cells)
    }
}
