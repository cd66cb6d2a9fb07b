//! A download over legs on the kernel.

use crate::download::network;
use crate::download::testbed::{SetUp, window_figure};
use crate::kernel::{files, verdict};
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_lab::study::KernelRun;
use ekiden_model::units::{Bytes, Span};
use std::time::Instant;

pub(crate) fn run(run: &KernelRun<'_>) -> Result<Outcome, EngineError> {
    let cell = run.cell;
    let size = cell.value::<Bytes>("file")?.as_u64();
    let cut: Span = cell.value("cut")?;
    let file = files::file(run.files, size)?;
    let mut network = network::of(cell, run.seed, run.window.map(|made| made.buffer))?;
    if let Some(name) = run.congestion {
        for host in &mut network.plan.hosts {
            host.congestion = Some(name.to_owned());
        }
    }
    let begun = Instant::now();
    let mut set_up = SetUp::build(run, network)?;
    let took = begun.elapsed().as_secs_f64();
    // what came late while programs were started is nobody's loss
    let _before = set_up.topology.look();
    let transfer = set_up.download(&file, size, cut)?;
    let (fidelity, reasons) = verdict::of_links(set_up.topology.look());
    let mut outcome = Outcome { fidelity, reasons, ..Outcome::of(transfer.goodput()) };
    outcome.add_figures([
        ("bytes", transfer.bytes),
        ("seconds", transfer.seconds),
        ("connect_ms", transfer.connect * 1e3),
        ("first_byte_ms", transfer.first_byte * 1e3),
        ("set_up_s", took),
    ]);
    window_figure(run, &mut outcome);
    let mode = if set_up.super_packets { "super-packets" } else { "single packets" };
    outcome.add_fact("links see", mode);
    outcome.add_fact("cut", if transfer.was_cut() { "yes" } else { "no" });
    outcome.add_fact("congestion", set_up.congestion.clone());
    Ok(outcome)
}
