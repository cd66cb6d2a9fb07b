//! The model's TCP over the same link: a download or an upload.

use crate::cell::Cell;
use crate::engine::{EngineError, Outcome};
use crate::kernel::satellite::bulk::PAYLOAD;
use crate::kernel::satellite::changes::{self, through};
use crate::kernel::satellite::network;
use crate::sim::island::{DEFAULT_WINDOW, HEADER, HELD, MSS, flow_from};
use ekiden_model::tcp::Offload;
use ekiden_model::tcp::preset::{Era, Flavour};
use ekiden_model::units::{Rate, Share, Span, Time};
use ekiden_simulator::chain::ChainConfig;
use ekiden_simulator::connection::ConnectionConfig;
use ekiden_simulator::flow::FlowConfig;
use ekiden_simulator::simulator::{Direction, Simulator};
use ekiden_simulator::topology::Topology;

/// A cell's run: the side that sends is the one that was asked.
///
/// # Errors
/// The cell lacks a value, or makes no network.
pub(super) fn run(cell: &Cell, seed: u64) -> Result<Outcome, EngineError> {
    let built = |error: &dyn std::fmt::Display| EngineError::during("building the network")(error);
    let (lasts, settle): (Span, Span) = (cell.value("duration")?, cell.value("settle")?);
    let down = cell.text("load")? != "upload";
    let link = network(cell, seed, None)?.links.into_iter().next();
    let link = link.ok_or_else(|| EngineError("the network has no link".to_owned()))?;
    let mut topology = Topology::new();
    let [asks, serves] = [topology.host(), topology.host()];
    let [there, back] =
        if down { [link.forward, link.backward] } else { [link.backward, link.forward] };
    topology.link(asks, serves, there, back);
    let mut simulator = Simulator::new(topology, ());
    let connection = simulator.connect(ConnectionConfig {
        opener: asks,
        acceptor: serves,
        start: Time::ZERO,
        opening: Era::Linux.opening(),
        three_way: true,
        handshake_bytes: HEADER + 8,
    });
    let connection = connection.map_err(|error| built(&error))?;
    let flow = flow(cell)?;
    for direction in [Direction::FromOpener, Direction::ToOpener] {
        let made = simulator.flow(connection, direction, flow.clone());
        made.map_err(|error| built(&error))?;
    }
    // more than the link takes in all the time
    let rate: Rate = cell.value(if down { "downlink" } else { "uplink" })?;
    let response = rate.as_bytes_per_second() * (lasts.as_nanos() / 1_000_000_000 + 1);
    let config = ChainConfig { connections: vec![connection], request: 100, response, held: HELD };
    let chain = simulator.chain(config).map_err(|error| built(&error))?;
    let mut came = |until: Time| {
        simulator.run(until);
        simulator.result(chain).unwrap_or_default().bytes
    };
    let (from, end) = (Time::ZERO + settle, Time::ZERO + lasts);
    let before = if settle == Span::ZERO { 0 } else { came(from) };
    let bytes = came(end) - before;
    let counted = end.since(from);
    let value = bytes as f64 * 8e3 / counted.as_nanos() as f64;
    let mut outcome = Outcome { value, ..Outcome::default() };
    let told: Rate = cell.value(if down { "told-down" } else { "told-up" })?;
    let [up_link, down_link] = changes::links(cell, seed)?;
    let phases = if down { down_link } else { up_link };
    let ceiling = through(&phases, told, settle, lasts) * PAYLOAD;
    outcome.figures.insert("of_ceiling".to_owned(), bytes as f64 * 8.0 / ceiling);
    Ok(outcome)
}

fn flow(cell: &Cell) -> Result<FlowConfig, EngineError> {
    let mut sender = Era::Linux.sender(Flavour::Sack, MSS, f64::INFINITY, Span::ZERO);
    sender.buffer = DEFAULT_WINDOW;
    // single packets are lost, so single packets are sent
    if cell.value::<Share>("loss")? != Share::NONE {
        sender.offload = Offload::None;
    }
    flow_from(cell, sender)
}
