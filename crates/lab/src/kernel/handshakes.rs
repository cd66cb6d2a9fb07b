//! A short download whose first SYNs are lost, on the real kernel (ALGORITHMS D.5).
//!
//! Each failed attempt is one lost SYN. That its answer could be lost as well is in the probability, not in
//! what is made: a SYN that came would be answered again and again by the server's own timer.

use super::asymmetric::{Ground, network};
use super::set_up::SetUp;
use super::verdict;
use crate::asymmetry::Thin;
use crate::asymmetry::handshakes::{self, Depth, Took};
use crate::cell::Cell;
use crate::engine::{EngineError, Fidelity, Outcome};
use ekiden_model::link::Loss;
use ekiden_model::units::{Bytes, Span};
use std::sync::Arc;

/// The kernel waits 1, 2, 3, 4, 5 s in all after so many (Linux 6.5), so that a run takes 15 s; at 20 % one
/// handshake in two hundred fails more often.
const DEPTH: Depth = Depth { most: 5, least: 1e-4 };
/// Longer than any of them takes.
const PATIENCE: Span = Span::from_secs(60);
/// What every Linux waits for the answer to its first SYN (RFC 6298 §2.1).
const FIRST_WAIT: Span = Span::from_secs(1);

/// Why a cell cannot be run.
pub(super) fn lacks(cell: &Cell) -> Option<&'static str> {
    let wait = handshakes::first_wait(cell).ok()?;
    (wait != FIRST_WAIT).then_some("the kernel's first time-out is 1 s and cannot be set")
}

/// A cell's run.
///
/// # Errors
/// The cell lacks a value, or a download failed.
pub(super) fn run(cell: &Cell, seed: u64, ground: &mut Ground<'_>) -> Result<Outcome, EngineError> {
    let (mut fidelity, mut reasons) = (Fidelity::default(), Vec::new());
    let mut outcome = handshakes::run(cell, DEPTH, |failures| {
        let (took, of_links, why) = download(cell, failures, seed, ground)?;
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
    cell: &Cell,
    failures: u32,
    seed: u64,
    ground: &mut Ground<'_>,
) -> Result<(Took, Fidelity, Vec<String>), EngineError> {
    let thin = Thin::of(cell)?;
    let size = cell.value::<Bytes>("file")?.as_u64();
    let file = ground.files.of(size)?;
    let mut network = network(cell, &thin, cell.value("uplink")?, seed, ground.buffer)?;
    // the client's packets before its handshake are its SYNs alone
    if let Some(link) = network.plan.links.first_mut() {
        link.forward.loss = Loss::Listed(Arc::new((0..u64::from(failures)).collect()));
    }
    let mut set_up = SetUp::build(cell, network, ground.files.folder(), ground.ekiden)?;
    let _before = set_up.topology.look();
    let transfer = set_up.download(&file, size, PATIENCE)?;
    if transfer.was_cut() {
        return Err(EngineError(format!("not done after {PATIENCE}")));
    }
    let (fidelity, reasons) = verdict(set_up.topology.look());
    let took = Took { whole: transfer.seconds * 1e3, first_byte: transfer.first_byte * 1e3 };
    Ok((took, fidelity, reasons))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_first_time_out_is_left_out() {
        let lacked = |wait: &str| {
            let values = [("initial-rto".to_owned(), wait.to_owned())].into();
            lacks(&Cell { part: "set-up".to_owned(), values })
        };
        assert_eq!(lacked("1 s"), None);
        assert!(lacked("3 s").is_some_and(|why| why.contains("1 s")));
        // of cells about anything else, nothing is lacking
        assert_eq!(lacks(&Cell { part: "jam".to_owned(), values: [].into() }), None);
    }
}
