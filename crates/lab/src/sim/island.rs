//! A download over legs: the island study's cells.

use crate::cell::Cell;
use crate::engine::{EngineError, Outcome};
use crate::path::{self, Leg};
use crate::sim::Sights;
use ekiden_model::congestion::{Algorithm, SlowStart};
use ekiden_model::link::{Config, Discipline, Loss, LossUnit, QueueLength, Serialiser};
use ekiden_model::tcp::preset::{Era, Flavour};
use ekiden_model::tcp::{Acknowledging, Offload, ReceiverConfig, SenderConfig};
use ekiden_model::units::{Bytes, Rate, Share, Span, Time};
use ekiden_simulator::chain::{ChainConfig, ChainResult};
use ekiden_simulator::connection::ConnectionConfig;
use ekiden_simulator::flow::{FlowConfig, Source};
use ekiden_simulator::observer::Observer;
use ekiden_simulator::random::Substreams;
use ekiden_simulator::recorder::packets::Side;
use ekiden_simulator::simulator::{BuildError, Direction, Simulator};
use ekiden_simulator::topology::Topology;

/// Payload of a segment with timestamps in a packet of 1,500 bytes.
pub(super) const MSS: u32 = 1448;
pub(super) const HEADER: u32 = 52;
/// What of Linux's default buffers (4 MiB) is payload (ALGORITHMS C.3).
pub(super) const DEFAULT_WINDOW: u64 = 3 << 20;
/// What a relay holds of its own: a pipe.
pub(super) const HELD: u64 = 64 << 10;
/// Segments in a super-packet: 65,535 bytes of them.
const SUPER: u32 = 44;

/// A cell's run.
///
/// # Errors
/// The cell lacks a value, or has one that makes no network.
pub(super) fn run(cell: &Cell, seed: u64) -> Result<Outcome, EngineError> {
    record(cell, seed, |_| Ok(())).map(|(outcome, ())| outcome)
}

/// The same beside an observer.
///
/// # Errors
/// As [`run`], and the observer's.
pub(super) fn record<O: Observer>(
    cell: &Cell,
    seed: u64,
    observer: impl FnOnce(&Sights) -> Result<O, EngineError>,
) -> Result<(Outcome, O), EngineError> {
    let size = cell.value::<Bytes>("file")?.as_u64();
    let cut: Span = cell.value("cut")?;
    let (result, fingerprint, observer) = download(cell, seed, size, cut, observer)?;
    let seconds = result.finished.unwrap_or(Time::ZERO + cut).as_nanos() as f64 / 1e9;
    let mut outcome =
        Outcome { value: result.bytes as f64 * 8.0 / seconds / 1e6, ..Outcome::default() };
    let first = result.first_byte.map_or(f64::NAN, |at| at.as_nanos() as f64 / 1e6);
    let figures = [("bytes", result.bytes as f64), ("seconds", seconds), ("first_byte_ms", first)];
    let finite = figures.into_iter().filter(|(_, value)| value.is_finite());
    outcome.figures.extend(finite.map(|(name, value)| (name.to_owned(), value)));
    let was_cut = if result.finished.is_none() { "yes" } else { "no" };
    outcome.facts.insert("cut".to_owned(), was_cut.to_owned());
    outcome.facts.insert("fingerprint".to_owned(), format!("{fingerprint:016x}"));
    Ok((outcome, observer))
}

fn download<O: Observer>(
    cell: &Cell,
    seed: u64,
    size: u64,
    cut: Span,
    observer: impl FnOnce(&Sights) -> Result<O, EngineError>,
) -> Result<(ChainResult, u64, O), EngineError> {
    let built = EngineError::during("building the network");
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
    let chain = chain(&mut simulator, &flow(cell)?, &nodes, size);
    let chain = chain.map_err(|error| built(&error))?;
    simulator.run(Time::ZERO + cut);
    let result = simulator.result(chain).unwrap_or_default();
    let [_, fingerprint] = simulator.fingerprints();
    Ok((result, fingerprint, simulator.observer))
}

type Nodes = [ekiden_simulator::topology::Node];

fn chain<O: Observer>(
    simulator: &mut Simulator<O>,
    flow: &FlowConfig,
    nodes: &Nodes,
    size: u64,
) -> Result<u32, BuildError> {
    let mut connections = Vec::new();
    for (number, pair) in nodes.windows(2).enumerate() {
        let [a, b] = pair else { continue };
        let start = if number == 0 { Time::ZERO } else { Time::NEVER };
        let connection = simulator.connect(ConnectionConfig {
            opener: *a,
            acceptor: *b,
            start,
            opening: Era::Linux.opening(),
            three_way: true,
            handshake_bytes: HEADER + 8,
        })?;
        for direction in [Direction::FromOpener, Direction::ToOpener] {
            let mut config = flow.clone();
            // the client reads what comes; a relay reads what it can hand on
            config.receiver.read_at_once = number == 0 || direction == Direction::FromOpener;
            simulator.flow(connection, direction, config)?;
        }
        connections.push(connection);
    }
    let config = ChainConfig { connections, request: 100, response: size, held: HELD };
    simulator.chain(config)
}

fn flow(cell: &Cell) -> Result<FlowConfig, EngineError> {
    flow_from(cell, sender(cell)?)
}

/// From this sender to Linux's receiver with the cell's window.
pub(super) fn flow_from(cell: &Cell, sender: SenderConfig) -> Result<FlowConfig, EngineError> {
    let window = match cell.text("window")? {
        "defaults" => DEFAULT_WINDOW,
        _ => cell.value::<Bytes>("window")?.as_u64(),
    };
    Ok(FlowConfig {
        sender,
        receiver: ReceiverConfig {
            mss: MSS,
            buffer: window,
            scale: 7,
            acknowledging: Acknowledging::LINUX,
            selective: true,
            duplicates: true,
            read_at_once: true,
        },
        header: HEADER,
        selective_header: 4,
        ecn: false,
        ack_class: 0,
        source: Source::Application,
    })
}

fn sender(cell: &Cell) -> Result<SenderConfig, EngineError> {
    let mut sender = Era::Linux.sender(Flavour::Sack, MSS, f64::INFINITY, Span::ZERO);
    sender.congestion.algorithm = match cell.text("congestion")? {
        "reno" => Algorithm::Reno,
        "cubic" => sender.congestion.algorithm,
        "westwood" => Algorithm::WestwoodPlus,
        other => {
            let what = format!("«{other}» is not in the simulator; reno, cubic and westwood are");
            return Err(cell.error("congestion", &what).into());
        }
    };
    sender.buffer = DEFAULT_WINDOW;
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
    let unit = match cell.text("unit")? {
        "super-packet" => LossUnit::SuperPacket,
        _ => LossUnit::Packet,
    };
    Ok(Config {
        discipline: Discipline::DropTail(bound),
        serialiser,
        delay: Span::from_nanos(leg.rtt.as_nanos() / 2),
        loss: if share == Share::NONE { Loss::None } else { Loss::Independent(share, unit) },
        seed,
        ..Config::default()
    })
}
