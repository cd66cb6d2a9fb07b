//! A proxy with few places and little memory for buffers, on the real kernel (seed 2): people at browsers
//! behind it, servers before it, and in the middle `ekiden serve` or squid as a user would start them.
//!
//! - [`places`]: 500 people and 200 places.
//! - [`memory`]: 200 downloads out of 16 MiB of socket buffers.
//! - [`long`]: one stream over a path whose window is beyond what the kernel tunes to.

mod cost;
mod long;
mod memory;
mod places;
mod sockets;
mod star;
mod watch;

pub(super) use cost::{Processors, judge};

use crate::cell::Cell;
use crate::engine::{EngineError, Outcome};
use std::path::Path;

/// Linux's own limits of buffers, whatever this machine's are set to.
pub(super) const BUFFERS_OF_LINUX: [(&str, &str); 2] =
    [("net.ipv4.tcp_rmem", "4096 131072 6291456"), ("net.ipv4.tcp_wmem", "4096 16384 4194304")];

/// Whether a cell is of this study.
pub(super) fn is_meant(cell: &Cell) -> bool {
    cell.values.contains_key("scheme")
}

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
            let what = format!("«{other}» is not on the kernel");
            return Err(cell.error("scheme", &what).into());
        }
    })
}

/// A cell's run, with the ekiden at this path.
///
/// # Errors
/// The cell lacks a value, or something did not start or broke.
pub(super) fn run(cell: &Cell, seed: u64, ekiden: &Path) -> Result<Outcome, EngineError> {
    match about(cell)? {
        About::Places => places::run(cell, seed, ekiden),
        About::Memory => memory::run(cell, seed, ekiden),
        About::Long => long::run(cell, seed, ekiden),
    }
}

/// The network of a cell, for a test of all plans.
///
/// # Errors
/// The cell lacks a value or has one that makes no network.
#[cfg(test)]
pub(super) fn network(
    cell: &Cell,
    seed: u64,
) -> Result<ekiden_emulator::topology::TopologyPlan, EngineError> {
    Ok(match about(cell)? {
        About::Places => places::network(cell, seed)?,
        About::Memory => memory::network(seed),
        About::Long => long::network(cell, seed)?.plan,
    })
}
