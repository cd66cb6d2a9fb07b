//! The satellite study on the kernel: [`bulk`] load, [`short_flows`], and a [`streaming`] load with its stalls.

pub(crate) mod bulk;
pub(crate) mod short_flows;
pub(crate) mod streaming;

use crate::thin_client;
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_lab::study::KernelRun;

pub(crate) fn run(run: &KernelRun<'_>) -> Result<Outcome, EngineError> {
    match run.cell.text("load")? {
        "screens" => thin_client::kernel::run(run),
        "download" | "upload" | "echo" | "pace" => bulk::run(run),
        "file" | "first byte" | "page" => short_flows::run(run),
        "stream" => streaming::run(run),
        other => Err(run.cell.error("load", &format!("\"{other}\" is not known")).into()),
    }
}
