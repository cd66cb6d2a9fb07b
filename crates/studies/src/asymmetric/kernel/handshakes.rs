//! A short download whose first SYNs are lost, on the real kernel (algorithms/asymmetric D.5). Only SYNs are
//! lost, because the server's own timer would repeat a lost answer; its loss is in the probability.

use crate::asymmetric::handshakes::{self, Depth, Took};
use crate::asymmetric::kernel::network;
use crate::asymmetric::thin_link::Thin;
use crate::download::testbed::SetUp;
use crate::kernel::{files, verdict};
use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{EngineError, Fidelity, Outcome};
use ekiden_lab::study::KernelRun;
use ekiden_model::network::link::Loss;
use ekiden_model::units::{Bytes, Span};
use std::sync::Arc;

/// So many failures cost 1, 2, 3, 4, 5 s in all (Linux 6.5); at 20 % one handshake in 200 fails more often.
const DEPTH: Depth = Depth { most: 5, least: 1e-4 };
/// Longer than any of them takes.
const PATIENCE: Span = Span::from_secs(60);
/// What every Linux waits for the answer to its first SYN (RFC 6298 §2.1).
const FIRST_WAIT: Span = Span::from_secs(1);

pub(crate) fn lacks(cell: &Cell) -> Option<&'static str> {
    let wait = handshakes::first_wait(cell).ok()?;
    (wait != FIRST_WAIT).then_some("the kernel's first time-out is 1 s and cannot be set")
}

pub(crate) fn run(run: &KernelRun<'_>) -> Result<Outcome, EngineError> {
    let (mut fidelity, mut reasons) = (Fidelity::default(), Vec::new());
    let mut outcome = handshakes::run(run.cell, DEPTH, |failures| {
        let (took, of_links, why) = download(run, failures)?;
        fidelity = fidelity.max(of_links);
        reasons.extend(why);
        Ok(took)
    })?;
    reasons.sort();
    reasons.dedup();
    (outcome.fidelity, outcome.reasons) = (fidelity, reasons);
    Ok(outcome)
}

fn download(
    run: &KernelRun<'_>,
    failures: u32,
) -> Result<(Took, Fidelity, Vec<String>), EngineError> {
    let cell = run.cell;
    let thin = Thin::of(cell)?;
    let size = cell.value::<Bytes>("file")?.as_u64();
    let file = files::file(run.files, size)?;
    let mut network =
        network(cell, &thin, cell.value("uplink")?, run.seed, run.window.map(|made| made.buffer))?;
    // the client's packets before its handshake are its SYNs alone
    if let Some(link) = network.plan.links.first_mut() {
        link.forward.loss = Loss::Listed(Arc::new((0..u64::from(failures)).collect()));
    }
    let mut set_up = SetUp::build(run, network)?;
    let _before = set_up.topology.look();
    let transfer = set_up.download(&file, size, PATIENCE)?;
    if transfer.was_cut() {
        return Err(EngineError(format!("not done after {PATIENCE}")));
    }
    let (fidelity, reasons) = verdict::of_links(set_up.topology.look());
    let took = Took { whole: transfer.seconds * 1e3, first_byte: transfer.first_byte * 1e3 };
    Ok((took, fidelity, reasons))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_first_time_out_is_left_out() {
        let lacked = |wait: &str| lacks(&Cell::new("set-up", [("initial-rto", wait)]));
        assert_eq!(lacked("1 s"), None);
        assert!(lacked("3 s").is_some_and(|why| why.contains("1 s")));
        // of cells about anything else, nothing is lacking
        assert_eq!(lacks(&Cell::new("jam", [])), None);
    }
}
