//! A download over a thin uplink: seed 3's cells.
//!
//! ```text
//! client ══ thin link ══ server            or, with a relay on each side,
//! client ── relay ══ thin link ══ relay ── server
//!    └ jam ┘ shares the uplink with the ACKs
//! ```

use crate::asymmetry::{self, Care, HEADER, Passage, Thin};
use crate::cell::Cell;
use crate::engine::{EngineError, Outcome};
use crate::path;
use crate::sim::Sights;
use ekiden_model::congestion::{Algorithm, SlowStart};
use ekiden_model::link::{Config, Serialiser};
use ekiden_model::tcp::preset::{Era, Flavour};
use ekiden_model::tcp::{Acknowledging, ReceiverConfig, SenderConfig};
use ekiden_model::units::{Bytes, Rate, Span, Time};
use ekiden_simulator::chain::ChainConfig;
use ekiden_simulator::connection::ConnectionConfig;
use ekiden_simulator::flow::{FlowConfig, Source};
use ekiden_simulator::observer::{Body, Observer, Passing};
use ekiden_simulator::random::Substreams;
use ekiden_simulator::recorder::packets::Side;
use ekiden_simulator::simulator::{BuildError, CrossTraffic, Direction, Simulator};
use ekiden_simulator::topology::{Node, Topology};

/// Nothing disturbs a download.
const CARE: Care = Care { precision: 1.005, tries: 1 };
/// What of Linux's default buffers (4 MiB) is payload (ALGORITHMS C.3).
const DEFAULT_WINDOW: u64 = 3 << 20;
/// What a relay holds of its own: a pipe.
const HELD: u64 = 64 << 10;
/// The longest wait for a segment to be acknowledged with others: BSD's, of the study's time.
const DELAY: Span = Span::from_millis(100);
/// More than any run moves.
const WHOLE: u64 = 1 << 40;

/// A cell's run.
///
/// # Errors
/// The cell lacks a value, or has one that makes no network.
pub(super) fn run(cell: &Cell, seed: u64) -> Result<Outcome, EngineError> {
    Ok(search(cell, seed)?.0)
}

/// The last of its downloads again, beside an observer.
///
/// # Errors
/// As [`run`], and the observer's.
pub(super) fn record<O: Observer>(
    cell: &Cell,
    seed: u64,
    observer: impl FnOnce(&Sights) -> Result<O, EngineError>,
) -> Result<(Outcome, O), EngineError> {
    let (outcome, last) = search(cell, seed)?;
    let (_, _, observer) = download(cell, last, seed, observer)?;
    Ok((outcome, observer))
}

/// The outcome, and the uplink of the last download.
fn search(cell: &Cell, seed: u64) -> Result<(Outcome, Rate), EngineError> {
    let (mut last, mut fingerprint) = (Rate::default(), 0);
    let mut outcome = asymmetry::run(cell, CARE, |uplink| {
        let (passage, print, ()) = download(cell, uplink, seed, |_| Ok(()))?;
        (last, fingerprint) = (uplink, print);
        Ok(passage)
    })?;
    outcome.facts.insert("fingerprint".to_owned(), format!("{fingerprint:016x}"));
    Ok((outcome, last))
}

fn download<O: Observer>(
    cell: &Cell,
    uplink: Rate,
    seed: u64,
    observer: impl FnOnce(&Sights) -> Result<O, EngineError>,
) -> Result<(Passage, u64, O), EngineError> {
    let thin = Thin::of(cell)?;
    let cut: Span = cell.value("cut")?;
    let legs = path::legs(cell)?;
    // a relay on each side: the leg in the middle
    let thin_at = legs.len() / 2;
    let streams = Substreams::new(seed);
    let mut topology = Topology::new();
    let nodes: Vec<Node> = (0..=legs.len()).map(|_| topology.host()).collect();
    let mut watched = None;
    for (number, pair) in nodes.windows(2).enumerate() {
        let [near, far] = pair else { continue };
        let (mut up, mut down) = if number == thin_at {
            (thin.up(uplink), thin.down())
        } else {
            let lan = Serialiser::Rate(cell.value("rate")?);
            let lan = Config { serialiser: lan, ..Config::default() };
            (lan.clone(), lan)
        };
        up.seed = streams.of("loss", 2 * number as u64).next_u64();
        down.seed = streams.of("loss", 2 * number as u64 + 1).next_u64();
        let [up, _] = topology.link(*near, *far, up, down);
        if number == thin_at {
            watched = Some(up);
        }
    }
    let flows = 2 * legs.len() as u32;
    let observer = observer(&Sights { watched, server: Side::Acceptor, flows, kinds: &[] })?;
    let counting = Counting { connection: thin_at as u32, ..Counting::default() };
    let mut simulator = Simulator::new(topology, (counting, observer));
    if let Some((stream, bytes)) = asymmetry::jam(cell, uplink, streams.of("jam", 0).next_u64())?
        && let (Some(from), Some(to)) = (nodes.get(thin_at), nodes.get(thin_at + 1))
    {
        let (from, to, start) = (*from, *to, Time::ZERO);
        let jam = CrossTraffic { from, to, start, stream, bytes, class: 1 };
        simulator.cross_traffic(jam).map_err(|error| failed(&error))?;
    }
    let chain = chain(&mut simulator, cell, &thin, thin_at, &nodes)?;
    simulator.run(Time::ZERO + cut);
    let result = simulator.result(chain).unwrap_or_default();
    let [_, fingerprint] = simulator.fingerprints();
    let (counting, observer) = simulator.observer;
    let seconds = cut.as_nanos() as f64 / 1e9;
    let passage = Passage {
        goodput: result.bytes as f64 * 8.0 / seconds / 1e6,
        seconds,
        segments: counting.segments,
        acks: counting.acks,
        ack_bytes: counting.ack_bytes,
        ..Passage::default()
    };
    Ok((passage, fingerprint, observer))
}

fn chain<O: Observer>(
    simulator: &mut Simulator<O>,
    cell: &Cell,
    thin: &Thin,
    thin_at: usize,
    nodes: &[Node],
) -> Result<u32, EngineError> {
    let mut connections = Vec::new();
    for (number, pair) in nodes.windows(2).enumerate() {
        let [near, far] = pair else { continue };
        let mtu = if number == thin_at { thin.mtu } else { cell.value("lan-mtu")? };
        let flow = flow(cell, mtu, thin.every)?;
        let opened = ConnectionConfig {
            opener: *near,
            acceptor: *far,
            start: if number == 0 { Time::ZERO } else { Time::NEVER },
            opening: Era::Linux.opening(),
            three_way: true,
            handshake_bytes: HEADER + 8,
        };
        let connection = simulator.connect(opened).map_err(|error| failed(&error))?;
        for direction in [Direction::FromOpener, Direction::ToOpener] {
            let mut config = flow.clone();
            // the client reads what comes; a relay reads what it can hand on
            config.receiver.read_at_once = number == 0 || direction == Direction::FromOpener;
            simulator.flow(connection, direction, config).map_err(|error| failed(&error))?;
        }
        connections.push(connection);
    }
    let config = ChainConfig { connections, request: 100, response: WHOLE, held: HELD };
    simulator.chain(config).map_err(|error| failed(&error))
}

fn failed(error: &BuildError) -> EngineError {
    EngineError::during("building the network")(error)
}

/// One direction of a leg with packets of this size and an ACK for so many segments.
///
/// # Errors
/// The cell lacks a value.
pub(super) fn flow(cell: &Cell, mtu: u32, every: u32) -> Result<FlowConfig, EngineError> {
    let mss = mtu.saturating_sub(HEADER).max(1);
    let buffer = match cell.text("window")? {
        "defaults" => DEFAULT_WINDOW,
        _ => cell.value::<Bytes>("window")?.as_u64(),
    };
    Ok(FlowConfig {
        sender: sender(cell, mss)?,
        receiver: ReceiverConfig {
            mss,
            buffer,
            scale: 7,
            acknowledging: Acknowledging { every, delay: DELAY, quick: 0 },
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

fn sender(cell: &Cell, mss: u32) -> Result<SenderConfig, EngineError> {
    let mut sender = Era::Linux.sender(Flavour::Sack, mss, f64::INFINITY, Span::ZERO);
    match cell.text("congestion")? {
        "cubic" => {}
        "reno" => {
            sender.congestion.algorithm = Algorithm::Reno;
            sender.congestion.slow_start = SlowStart::Standard; // HyStart is CUBIC's in Linux
        }
        other => {
            let what = format!("«{other}» is not known here; reno and cubic are");
            return Err(cell.error("congestion", &what).into());
        }
    }
    sender.buffer = DEFAULT_WINDOW;
    sender.nagle = false; // a web server's last segment waits for nothing
    Ok(sender)
}

/// Counts the packets of the connection over the thin link as they leave their hosts.
#[derive(Debug, Default)]
struct Counting {
    connection: u32,
    segments: u64,
    acks: u64,
    ack_bytes: u64,
}

impl Observer for Counting {
    const PACKETS: bool = true;

    fn passed(&mut self, passing: &Passing<'_>) {
        if passing.arrives || passing.connection != self.connection {
            return;
        }
        match passing.body {
            Body::Data(_) if !passing.from_opener => self.segments += 1,
            Body::Ack(ack) if passing.from_opener => {
                let blocks = ack.blocks.as_slice().len() as u64;
                let selective = if blocks > 0 { 4 + 8 * blocks } else { 0 };
                self.acks += 1;
                self.ack_bytes += u64::from(HEADER) + selective;
            }
            _ => {}
        }
    }
}
