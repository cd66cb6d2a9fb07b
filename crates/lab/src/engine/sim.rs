//! The engine whose TCP is the model's, on virtual time: [`ekiden_simulator`]. All relays are alike in it: they
//! read a request, open the next connection and forward the answer.

use super::{Calibration, Engine, EngineError, Outcome};
use crate::cell::Cell;
use crate::study::{SimRun, Study};
use std::collections::BTreeMap;
use std::thread::available_parallelism;

/// As in `--engine`.
pub const NAME: &str = "sim";

/// Runs the cells of one study in the simulator.
#[derive(Debug, Clone, Copy)]
pub struct Simulated(pub &'static dyn Study);

impl Engine for Simulated {
    fn name(&self) -> &'static str {
        NAME
    }

    fn most_jobs(&self) -> usize {
        available_parallelism().map_or(1, usize::from)
    }

    fn is_deterministic(&self) -> bool {
        true
    }

    fn lacks(&self, cell: &Cell) -> Option<&'static str> {
        let bbr = cell.text("congestion") == Ok("bbr");
        bbr.then_some("BBR is not in the simulator").or_else(|| self.0.lacks(NAME, cell))
    }

    fn facts(&mut self) -> BTreeMap<String, String> {
        let common = [
            ("time", "virtual: equal seeds give equal results on every machine"),
            (
                "relays",
                "all alike: they copy and parse in no time, and hold 64 KiB besides their sockets' buffers",
            ),
            (
                "ACKs",
                "packets like any other: they queue, take the time of their bytes, and are dropped",
            ),
            (
                "super-packets",
                "where super-packets are lost, senders hand over at most 44 segments or a third of the \
                 window at once, and a link drops or delivers them together. Without loss, they hand over \
                 at most the data of one millisecond",
            ),
        ];
        let all = common.into_iter().chain(self.0.facts(NAME));
        all.map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
    }

    fn calibrate(&mut self) -> Result<Calibration, EngineError> {
        Ok(Calibration::default())
    }

    fn run(&mut self, cell: &Cell, repetition: u32, seed: u64) -> Result<Outcome, EngineError> {
        self.0.sim(&SimRun { cell, repetition, seed })
    }
}
