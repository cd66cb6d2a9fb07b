//! Linux's TCP between hosts of the simulator, and a chain of its connections.

use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{During, EngineError};
use ekiden_model::network::tcp::preset::{Era, Flavour};
use ekiden_model::network::tcp::{ReceiverConfig, SenderConfig};
use ekiden_model::units::{Bytes, Span, Time};
use ekiden_simulator::applications::chain::ChainConfig;
use ekiden_simulator::network::connection::ConnectionConfig;
use ekiden_simulator::network::flow::{FlowConfig, Source};
use ekiden_simulator::network::topology::Node;
use ekiden_simulator::observer::Observer;
use ekiden_simulator::simulator::{Direction, Simulator};

/// Payload of a segment with timestamps in a packet of 1,500 bytes.
pub(crate) const MSS: u32 = 1448;
/// IP and TCP headers with timestamps, bytes.
pub(crate) const HEADER: u32 = 52;
/// Payload share of Linux's default buffers of 4 MiB (algorithms/split-connections C.3).
pub(crate) const DEFAULT_WINDOW: u64 = 3 << 20;
/// What a relay holds of its own: a pipe.
pub(crate) const HELD: u64 = 64 << 10;

/// Linux's sender with a buffer of [`DEFAULT_WINDOW`].
pub(crate) fn sender(mss: u32) -> SenderConfig {
    let mut sender = Era::Linux.sender(Flavour::Sack, mss, f64::INFINITY, Span::ZERO);
    sender.buffer = DEFAULT_WINDOW;
    sender
}

/// From this sender to Linux's receiver with `buffer` bytes, whose window is shifted by `scale` bits.
pub(crate) fn flow(sender: SenderConfig, mss: u32, buffer: u64, scale: u8) -> FlowConfig {
    let receiver = ReceiverConfig::linux(mss, buffer, scale);
    FlowConfig { header: HEADER, ..FlowConfig::new(sender, receiver, Source::Application) }
}

/// From this sender to Linux's receiver with the cell's window.
pub(crate) fn flow_of(
    cell: &Cell,
    sender: SenderConfig,
    mss: u32,
) -> Result<FlowConfig, EngineError> {
    let window = match cell.text("window")? {
        "defaults" => DEFAULT_WINDOW,
        _ => cell.value::<Bytes>("window")?.as_u64(),
    };
    Ok(flow(sender, mss, window, 7))
}

/// A connection that is opened at `start` by Linux's SYNs.
pub(crate) fn connection(opener: Node, acceptor: Node, start: Time) -> ConnectionConfig {
    let base = ConnectionConfig::new(opener, acceptor, Era::Linux);
    ConnectionConfig { start, handshake_bytes: HEADER + 8, ..base }
}

/// Starts a download of `response` bytes over connections from each node to the next, with flows by `flow` of
/// the connection's number; returns the chain's number.
pub(crate) fn chain<O: Observer>(
    simulator: &mut Simulator<O>,
    nodes: &[Node],
    response: u64,
    flow: impl Fn(usize) -> Result<FlowConfig, EngineError>,
) -> Result<u32, EngineError> {
    const BUILDING: &str = "building the network";
    let mut connections = Vec::new();
    for (number, pair) in nodes.windows(2).enumerate() {
        let [near, far] = pair else { continue };
        let start = if number == 0 { Time::ZERO } else { Time::NEVER };
        let connection = simulator.connect(connection(*near, *far, start)).during(BUILDING)?;
        for direction in [Direction::FromOpener, Direction::ToOpener] {
            let mut config = flow(number)?;
            // the client reads what comes; a relay reads what it can hand on
            config.receiver.read_at_once = number == 0 || direction == Direction::FromOpener;
            simulator.flow(connection, direction, config).during(BUILDING)?;
        }
        connections.push(connection);
    }
    let config = ChainConfig { connections, request: 100, response, held: HELD };
    simulator.chain(config).during(BUILDING)
}
