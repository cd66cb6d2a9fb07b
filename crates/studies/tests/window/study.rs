//! How the goodput of a download depends on its window.

use ekiden_lab::cell::Cell;
use ekiden_lab::cell::axis::{Axis, ValueKind, axis};
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_lab::study::{PlanFile, SimRun, Study};
use ekiden_model::network::link::{Config, Serialiser};
use ekiden_model::network::tcp::preset::{Era, Flavour};
use ekiden_model::network::tcp::{Acknowledging, ReceiverConfig};
use ekiden_model::units::{Bytes, Rate, Span, Time};
use ekiden_simulator::applications::chain::ChainConfig;
use ekiden_simulator::network::connection::ConnectionConfig;
use ekiden_simulator::network::flow::{FlowConfig, Source};
use ekiden_simulator::network::topology::Topology;
use ekiden_simulator::simulator::{Direction, Simulator};

const MSS: u32 = 1448;
const HEADER: u32 = 52;

pub(crate) struct Window;

impl Study for Window {
    fn name(&self) -> &'static str {
        "window"
    }

    fn plan(&self) -> PlanFile {
        PlanFile { path: "window/plan.toml", text: include_str!("plan.toml") }
    }

    fn axes(&self) -> &'static [Axis] {
        static AXES: &[Axis] = &[axis(
            "ack-every",
            "segments per ACK",
            ValueKind::Whole,
            "that a receiver acknowledges",
        )];
        AXES
    }

    fn sim(&self, run: &SimRun<'_>) -> Result<Outcome, EngineError> {
        let size = run.cell.value::<Bytes>("file")?.as_u64();
        let seconds = download(run.cell, size)?;
        let mut outcome = Outcome { value: size as f64 * 8e-6 / seconds, ..Outcome::default() };
        outcome.figures.insert("seconds".to_owned(), seconds);
        Ok(outcome)
    }

    fn closed_form(&self, cell: &Cell) -> Option<f64> {
        let window: Bytes = cell.value("window").ok()?;
        let rtt: Span = cell.value("rtt").ok()?;
        Some(window.as_u64() as f64 * 8e3 / rtt.as_nanos() as f64)
    }
}

/// Seconds from the first SYN to the last byte.
fn download(cell: &Cell, size: u64) -> Result<f64, EngineError> {
    let rtt: Span = cell.value("rtt")?;
    let link = Config {
        serialiser: Serialiser::Rate(cell.value::<Rate>("rate")?),
        delay: Span::from_nanos(rtt.as_nanos() / 2),
        ..Config::default()
    };
    let mut topology = Topology::new();
    let (client, server) = (topology.host(), topology.host());
    topology.link(client, server, link.clone(), link);
    let mut simulator = Simulator::new(topology, ());
    let connection = ConnectionConfig::new(client, server, Era::Linux);
    let connection =
        simulator.connect(ConnectionConfig { handshake_bytes: HEADER + 8, ..connection })?;
    let every = cell.value("ack-every")?;
    let sender = Era::Linux.sender(Flavour::Sack, MSS, f64::INFINITY, Span::ZERO);
    let receiver = ReceiverConfig {
        acknowledging: Acknowledging { every, ..Acknowledging::LINUX },
        ..ReceiverConfig::linux(MSS, cell.value::<Bytes>("window")?.as_u64(), 7)
    };
    let flow = FlowConfig::new(sender, receiver, Source::Application);
    let flow = FlowConfig { header: HEADER, ..flow };
    simulator.flow(connection, Direction::FromOpener, flow.clone())?;
    simulator.flow(connection, Direction::ToOpener, flow)?;
    let chain =
        ChainConfig { connections: vec![connection], request: 100, response: size, held: 0 };
    let chain = simulator.chain(chain)?;
    simulator.run(Time::ZERO + Span::from_secs(60));
    let finished = simulator.result(chain).and_then(|result| result.finished);
    let finished = finished.ok_or_else(|| EngineError("not done after 60 s".to_owned()))?;
    Ok(finished.as_nanos() as f64 / 1e9)
}
