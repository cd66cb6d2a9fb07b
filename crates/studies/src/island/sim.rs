//! A download over legs: the island study's cells.

use crate::download::tcp::{self, MSS};
use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_lab::path::{self, Leg};
use ekiden_lab::study::Sights;
use ekiden_model::control::congestion::{Algorithm, SlowStart};
use ekiden_model::network::link::{Config, Discipline, Loss, LossUnit, QueueLength, Serialiser};
use ekiden_model::network::tcp::{Offload, SenderConfig};
use ekiden_model::units::{Bytes, Rate, Share, Span, Time};
use ekiden_simulator::applications::chain::ChainResult;
use ekiden_simulator::network::topology::Topology;
use ekiden_simulator::observer::Observer;
use ekiden_simulator::random::Substreams;
use ekiden_simulator::recorder::packets::Side;
use ekiden_simulator::simulator::Simulator;

/// Segments in a super-packet: 65,535 bytes of them.
const SUPER: u32 = 44;

/// A cell's run beside an observer. Errors: the cell lacks a value, or the observer's.
pub(crate) fn record<O: Observer>(
    cell: &Cell,
    seed: u64,
    observer: impl FnOnce(&Sights) -> Result<O, EngineError>,
) -> Result<(Outcome, O), EngineError> {
    let size = cell.value::<Bytes>("file")?.as_u64();
    let cut: Span = cell.value("cut")?;
    let (result, fingerprint, observer) = download(cell, seed, size, cut, observer)?;
    let seconds = result.finished.unwrap_or(Time::ZERO + cut).as_nanos() as f64 / 1e9;
    let mut outcome = Outcome::of(result.bytes as f64 * 8.0 / seconds / 1e6);
    outcome.add_figures([("bytes", result.bytes as f64), ("seconds", seconds)]);
    outcome.add_figures(result.first_byte.map(|at| ("first_byte_ms", at.as_nanos() as f64 / 1e6)));
    outcome.add_fact("cut", if result.finished.is_none() { "yes" } else { "no" });
    outcome.add_fact("fingerprint", format!("{fingerprint:016x}"));
    Ok((outcome, observer))
}

fn download<O: Observer>(
    cell: &Cell,
    seed: u64,
    size: u64,
    cut: Span,
    observer: impl FnOnce(&Sights) -> Result<O, EngineError>,
) -> Result<(ChainResult, u64, O), EngineError> {
    let legs = path::legs(cell)?;
    let streams = Substreams::new(seed);
    let mut topology = Topology::new();
    let mut watched = None;
    let nodes: Vec<_> = (0..=legs.len()).map(|_| topology.host()).collect();
    for (number, (pair, leg)) in nodes.windows(2).zip(&legs).enumerate() {
        let [a, b] = pair else { continue };
        let [there, back] = [0, 1].map(|direction| {
            let seed = streams.of("loss", 2 * number as u64 + direction).next_u64();
            link(cell, leg, seed)
        });
        let [_, from_server] = topology.link(*a, *b, there?, back?);
        watched = Some(from_server);
    }
    // a client opens what the server's bytes come back on
    let flows = 2 * legs.len() as u32;
    let observer = observer(&Sights { watched, server: Side::Acceptor, flows, kinds: &[] })?;
    let mut simulator = Simulator::new(topology, observer);
    let flow = tcp::flow_of(cell, sender(cell)?, MSS)?;
    let chain = tcp::chain(&mut simulator, &nodes, size, |_| Ok(flow.clone()))?;
    simulator.run(Time::ZERO + cut);
    let result = simulator.result(chain).unwrap_or_default();
    let [_, fingerprint] = simulator.fingerprints();
    Ok((result, fingerprint, simulator.observer))
}

fn sender(cell: &Cell) -> Result<SenderConfig, EngineError> {
    let mut sender = tcp::sender(MSS);
    sender.congestion.algorithm = match cell.text("congestion")? {
        "reno" => Algorithm::Reno,
        "cubic" => sender.congestion.algorithm,
        "westwood" => Algorithm::WestwoodPlus,
        other => {
            let what = format!("`{other}` is not in the simulator; reno, cubic and westwood are");
            return Err(cell.error("congestion", &what).into());
        }
    };
    // HyStart is CUBIC's in Linux
    if !matches!(sender.congestion.algorithm, Algorithm::Cubic(_)) {
        sender.congestion.slow_start = SlowStart::Standard;
    }
    // as on the kernel: single packets only where single packets are lost
    sender.offload = if cell.text("unit")? == "super-packet" {
        Offload::Third(SUPER)
    } else if cell.value::<Share>("loss")? == Share::NONE {
        Offload::Millisecond(SUPER)
    } else {
        Offload::None
    };
    Ok(sender)
}

fn link(cell: &Cell, leg: &Leg, seed: u64) -> Result<Config, EngineError> {
    let rate: Rate = cell.value("rate")?;
    let queue: Span = cell.value("queue")?;
    let serialiser = Serialiser::Rate(rate);
    let bound = QueueLength::Time(queue).bound(&serialiser);
    let bound = bound.map_err(|error| cell.error("queue", &error.to_string()))?;
    let share = Share::from_parts_per_billion((leg.loss * 1e9).round() as u64)
        .ok_or_else(|| cell.error("loss", "it is more than everything"))?;
    let together = cell.text("unit")? == "super-packet";
    let unit = if together { LossUnit::SuperPacket } else { LossUnit::Packet };
    Ok(Config {
        discipline: Discipline::DropTail(bound),
        serialiser,
        delay: Span::from_nanos(leg.rtt.as_nanos() / 2),
        loss: Loss::from(share).per(unit),
        seed,
        ..Config::default()
    })
}
