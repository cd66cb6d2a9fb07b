//! A download over a thin uplink: the asymmetric study's cells.
//!
//! ```text
//! client ══ thin link ══ server            or, with a relay on each side,
//! client ── relay ══ thin link ══ relay ── server
//!    └ jam ┘ shares the uplink with the ACKs
//! ```

pub(crate) mod handshakes;
use crate::asymmetric::thin_link::{self, Care, Passage, Thin};
use crate::download::tcp::{self, HEADER};
use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{During, EngineError, Outcome};
use ekiden_lab::path;
use ekiden_lab::study::Sights;
use ekiden_model::control::congestion::{Algorithm, SlowStart};
use ekiden_model::network::link::{Config, Serialiser};
use ekiden_model::network::tcp::Acknowledging;
use ekiden_model::units::{Rate, Span, Time};
use ekiden_simulator::network::flow::FlowConfig;
use ekiden_simulator::network::topology::{Node, Topology};
use ekiden_simulator::observer::{Body, Observer, Passing};
use ekiden_simulator::random::Substreams;
use ekiden_simulator::recorder::packets::Side;
use ekiden_simulator::simulator::{CrossTraffic, Simulator};

/// Nothing disturbs a download.
const CARE: Care = Care { precision: 1.005, tries: 1 };
/// The longest wait for a segment to be acknowledged with others: BSD's, of the study's time.
const DELAY: Span = Span::from_millis(100);
/// More than any run moves.
const WHOLE: u64 = 1 << 40;

pub(crate) fn run(cell: &Cell, seed: u64) -> Result<Outcome, EngineError> {
    Ok(search(cell, seed)?.0)
}

/// Repeats the last of its downloads beside an observer.
pub(crate) fn record<O: Observer>(
    cell: &Cell,
    seed: u64,
    observer: impl FnOnce(&Sights) -> Result<O, EngineError>,
) -> Result<(Outcome, O), EngineError> {
    let (outcome, last) = search(cell, seed)?;
    let (_, _, observer) = download(cell, last, seed, observer)?;
    Ok((outcome, observer))
}

fn search(cell: &Cell, seed: u64) -> Result<(Outcome, Rate), EngineError> {
    let (mut last, mut fingerprint) = (Rate::default(), 0);
    let mut outcome = thin_link::run(cell, CARE, |uplink| {
        let (passage, print, ()) = download(cell, uplink, seed, |_| Ok(()))?;
        (last, fingerprint) = (uplink, print);
        Ok(passage)
    })?;
    outcome.add_fact("fingerprint", format!("{fingerprint:016x}"));
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
    if let Some((stream, bytes)) = thin_link::jam(cell, uplink, streams.of("jam", 0).next_u64())?
        && let (Some(from), Some(to)) = (nodes.get(thin_at), nodes.get(thin_at + 1))
    {
        let (from, to, start) = (*from, *to, Time::ZERO);
        let jam = CrossTraffic { from, to, start, stream, bytes, class: 1 };
        simulator.cross_traffic(jam).during("building the network")?;
    }
    let chain = tcp::chain(&mut simulator, &nodes, WHOLE, |number| {
        let mtu = if number == thin_at { thin.mtu } else { cell.value("lan-mtu")? };
        flow(cell, mtu, thin.every)
    })?;
    simulator.run(Time::ZERO + cut);
    let result = simulator.result(chain).unwrap_or_default();
    let [_, fingerprint] = simulator.fingerprints();
    let (counting, observer) = simulator.observer;
    let seconds = cut.as_secs_f64();
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

/// One direction of a leg with packets of this size and an ACK for so many segments.
pub(crate) fn flow(cell: &Cell, mtu: u32, every: u32) -> Result<FlowConfig, EngineError> {
    let mss = mtu.saturating_sub(HEADER).max(1);
    let mut sender = tcp::sender(mss);
    match cell.text("congestion")? {
        "cubic" => {}
        "reno" => {
            sender.congestion.algorithm = Algorithm::Reno;
            sender.congestion.slow_start = SlowStart::Standard; // HyStart is CUBIC's in Linux
        }
        other => {
            let what = format!("`{other}` is not known here; reno and cubic are");
            return Err(cell.error("congestion", &what).into());
        }
    }
    sender.nagle = false; // a web server's last segment waits for nothing
    let mut flow = tcp::flow_of(cell, sender, mss)?;
    flow.receiver.acknowledging = Acknowledging { every, delay: DELAY, quick: 0 };
    Ok(flow)
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
