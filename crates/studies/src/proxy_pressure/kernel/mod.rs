//! A proxy with few slots and little memory for buffers on the real kernel: people at browsers, servers, and
//! between them `ekiden serve` or squid.
//!
//! - [`slots`]: 500 clients and 200 slots.
//! - [`memory`]: 200 downloads out of 16 MiB of socket buffers.
//! - [`long`]: one stream over a path whose window is beyond what the kernel tunes to.

mod long;
mod memory;
mod slots;
mod sockets;
mod star;
mod watch;

use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_lab::study::KernelRun;

/// What a cell is about.
enum About {
    /// People who want places.
    Places,
    /// Downloads that want buffers.
    Memory,
    /// One stream.
    Long,
}

fn about(cell: &Cell) -> Result<About, EngineError> {
    Ok(match cell.text("scheme")? {
        "1" | "2" | "3" | "4" | "squid" => About::Places,
        "fixed 20 KiB" | "fixed 64 KiB" | "kernel" | "E2-ATBT" => About::Memory,
        "defaults" => About::Long,
        other => {
            let what = format!("`{other}` is not on the kernel");
            return Err(cell.error("scheme", &what).into());
        }
    })
}

pub(crate) fn run(run: &KernelRun<'_>) -> Result<Outcome, EngineError> {
    let (cell, seed, ekiden) = (run.cell, run.seed, run.ekiden);
    match about(cell)? {
        About::Places => slots::run(cell, seed, ekiden),
        About::Memory => memory::run(cell, seed, ekiden),
        About::Long => long::run(cell, seed, ekiden),
    }
}

/// The network of a cell, for a test of all plans.
#[cfg(test)]
pub(crate) fn network(
    cell: &Cell,
    seed: u64,
) -> Result<ekiden_emulator::topology::TopologyPlan, EngineError> {
    Ok(match about(cell)? {
        About::Places => slots::network(cell, seed)?,
        About::Memory => memory::network(seed),
        About::Long => long::network(cell, seed)?.plan,
    })
}
