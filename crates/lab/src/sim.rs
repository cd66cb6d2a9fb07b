//! The engine whose TCP is the model's, on virtual time: [`ekiden_simulator`].
//!
//! What tells programs apart, copying and parsing, is not in it: every relay is the same one, which
//! reads a request, opens the next connection, and hands on what comes back.

mod asymmetric;
mod island;
mod proxy_pressure;
mod satellite;
mod set_up;
pub(crate) mod thin_client;

use crate::asymmetry::{self, handshakes};
use crate::cell::Cell;
use crate::engine::{Calibration, Engine, EngineError, Outcome};
use ekiden_simulator::observer::Observer;
use ekiden_simulator::recorder::packets::Side;
use ekiden_simulator::topology::Way;
use ekiden_simulator::trace::Kind;
use std::collections::BTreeMap;
use std::thread::available_parallelism;

/// As in `--engine`.
pub const NAME: &str = "sim";

/// Runs cells in the simulator.
#[derive(Debug, Default)]
pub struct Simulated;

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
        if satellite::is_meant(cell) {
            return satellite::lacks(cell);
        }
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
                "ACKs",
                "packets like any other: they wait in queues, take the time of their bytes, and are dropped",
            ),
            fact(
                "the proxy under pressure",
                "TCP as ns-2.1b9 had it (NewReno, shortest time-out 1 s), a persistent connection keeps its \
                 window; ends other than the proxy's have 4 MiB; links hold 1,000 packets and lose by chance \
                 alone; FINs are not sent: who is closed hears of it half a round trip later",
            ),
            fact(
                "tunnels",
                "the tunnel's own core at both ends, which is given no time for its work; keys are drawn anew, and \
                 nothing that is measured depends on them",
            ),
            fact(
                "super-packets",
                "where super-packets are lost, senders hand over at most 44 segments or a third of the \
                 window at once, and a link loses or delivers them together; where nothing is lost, at \
                 most what a millisecond takes",
            ),
        ])
    }

    fn calibrate(&mut self) -> Result<Calibration, EngineError> {
        Ok(Calibration::default())
    }

    fn run(&mut self, cell: &Cell, repetition: u32, seed: u64) -> Result<Outcome, EngineError> {
        if satellite::is_meant(cell) {
            satellite::run(cell, seed)
        } else if has_thin_clients(cell) {
            thin_client::run(cell, repetition, seed)
        } else if handshakes::is_meant(cell) {
            set_up::run(cell)
        } else if asymmetry::is_meant(cell) {
            asymmetric::run(cell, seed)
        } else if proxy_pressure::is_meant(cell) {
            proxy_pressure::run(cell, seed)
        } else {
            island::run(cell, seed)
        }
    }
}

fn has_thin_clients(cell: &Cell) -> bool {
    cell.values.contains_key("scenario")
}

/// What somebody who records a cell's run has to know of its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sights {
    /// The link whose queue is of interest: the bottleneck; of a path in legs, the server's own.
    pub watched: Option<Way>,
    /// The side that serves, which is also the one that sends most.
    pub server: Side,
    /// How many flows there are, those of handshakes and requests too.
    pub flows: u32,
    /// What the kinds of writes are called, from 0.
    pub kinds: &'static [Kind],
}

/// Runs a cell once, as [`Engine::run`] does, beside an observer that is made for its network.
///
/// # Errors
/// The cell lacks a value, or has one that makes no network; the observer cannot be made.
pub fn record<O: Observer>(
    cell: &Cell,
    seed: u64,
    observer: impl FnOnce(&Sights) -> Result<O, EngineError>,
) -> Result<(Outcome, O), EngineError> {
    if let Some(why) = Simulated.lacks(cell) {
        return Err(EngineError(why.to_owned()));
    }
    if satellite::is_meant(cell) {
        return Err(EngineError(
            "packets of a tunnel cannot be recorded in the simulator".to_owned(),
        ));
    }
    if has_thin_clients(cell) {
        thin_client::record(cell, seed, observer)
    } else if handshakes::is_meant(cell) {
        set_up::record(cell, observer)
    } else if asymmetry::is_meant(cell) {
        asymmetric::record(cell, seed, observer)
    } else if proxy_pressure::is_meant(cell) {
        proxy_pressure::record(cell, seed, observer)
    } else {
        island::record(cell, seed, observer)
    }
}

#[cfg(test)]
mod tests;
