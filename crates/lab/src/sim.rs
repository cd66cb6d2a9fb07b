//! The engine whose TCP is the model's, on virtual time: [`ekiden_simulator`].
//!
//! What tells programs apart, copying and parsing, is not in it: every relay is the same one, which
//! reads a request, opens the next connection, and hands on what comes back.

mod island;
mod thin_client;

use crate::cell::Cell;
use crate::engine::{Calibration, Engine, EngineError, Outcome};
use std::collections::BTreeMap;
use std::thread::available_parallelism;

/// Runs cells in the simulator.
#[derive(Debug, Default)]
pub struct Simulated;

impl Engine for Simulated {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn most_jobs(&self) -> usize {
        available_parallelism().map_or(1, usize::from)
    }

    fn lacks(&self, cell: &Cell) -> Option<&'static str> {
        let congestion = cell.values.get("congestion").map(String::as_str);
        (congestion == Some("bbr")).then_some("BBR is not in the simulator")
    }

    fn facts(&mut self) -> BTreeMap<String, String> {
        let fact = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        BTreeMap::from([
            fact("time", "virtual: equal seeds give equal results on every machine"),
            fact(
                "relays",
                "all alike: they copy and parse in no time, and hold 64 KiB beside what their sockets \
                 hold",
            ),
            fact(
                "super-packets",
                "senders hand over at most 44 segments or a third of the window at once, and a link \
                 loses or delivers them together",
            ),
        ])
    }

    fn calibrate(&mut self) -> Result<Calibration, EngineError> {
        Ok(Calibration::default())
    }

    fn run(&mut self, cell: &Cell, repetition: u32, seed: u64) -> Result<Outcome, EngineError> {
        if cell.values.contains_key("scenario") {
            thin_client::run(cell, seed, repetition == 0)
        } else {
            island::run(cell, seed)
        }
    }
}
