//! The pages study on the kernel: the pages' [`site`], a browser that [`load`]s them, the [`steps`] of a connection, a
//! browser's download ([`fetch`]), QUIC that is [`blocked`], and [`names`] near and far.

mod blocked;
mod curl;
mod fetch;
mod load;
mod names;
mod site;
mod steps;
mod timings;

use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_lab::study::KernelRun;
use ekiden_testbed::chromium;
use ekiden_testbed::peers::find;

pub(super) fn run(run: &KernelRun<'_>) -> Result<Outcome, EngineError> {
    match run.cell.text("load")? {
        "steps" => steps::run(run),
        "page" => load::run(run),
        "fetch" => fetch::run(run),
        "blocked" => blocked::run(run),
        "names" => names::run(run),
        other => Err(run.cell.error("load", &format!("`{other}` is not known here")).into()),
    }
}

/// Programs that are not there.
pub(super) fn lacks(cell: &Cell) -> Option<&'static str> {
    let lacking = [
        (find("nginx", "nginx").is_err(), "nginx, which serves the pages, is not installed"),
        (find("curl", "curl").is_err(), "curl, which warms the way, is not installed"),
        (
            cell.text("load") != Ok("steps") && chromium::program().is_err(),
            "Chromium is not installed; on Debian: apt-get install chromium",
        ),
        (
            cell.text("load") == Ok("names") && find("unbound", "unbound").is_err(),
            "unbound, the far resolver, is not installed; on Debian: apt-get install unbound",
        ),
    ];
    lacking.into_iter().find_map(|(is_lacking, why)| is_lacking.then_some(why))
}
