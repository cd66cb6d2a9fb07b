//! The model's TCP over the same link: a download or an upload.

use crate::download::tcp::{self, MSS};
use crate::long_link::PAYLOAD;
use crate::long_link::changes::{self, through};
use crate::long_link::network;
use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_model::network::tcp::Offload;
use ekiden_model::units::{Rate, Share, Span, Time};
use ekiden_simulator::network::topology::Topology;
use ekiden_simulator::simulator::Simulator;

/// A cell's run: the side that is asked sends.
pub(crate) fn run(cell: &Cell, seed: u64) -> Result<Outcome, EngineError> {
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
    let mut sender = tcp::sender(MSS);
    // single packets are lost, so single packets are sent
    if cell.value::<Share>("loss")? != Share::NONE {
        sender.offload = Offload::None;
    }
    let flow = tcp::flow_of(cell, sender, MSS)?;
    // more than the link takes in all the time
    let rate: Rate = cell.value(if down { "downlink" } else { "uplink" })?;
    let response = rate.as_bytes_per_second() * (lasts.as_nanos() / 1_000_000_000 + 1);
    let chain = tcp::chain(&mut simulator, &[asks, serves], response, |_| Ok(flow.clone()))?;
    let mut came = |until: Time| {
        simulator.run(until);
        simulator.result(chain).unwrap_or_default().bytes
    };
    let (from, end) = (Time::ZERO + settle, Time::ZERO + lasts);
    let before = if settle == Span::ZERO { 0 } else { came(from) };
    let bytes = came(end) - before;
    let counted = end.since(from);
    let mut outcome = Outcome::of(bytes as f64 * 8e3 / counted.as_nanos() as f64);
    let configured: Rate = cell.value(if down { "told-down" } else { "told-up" })?;
    let [up_link, down_link] = changes::links(cell, seed)?;
    let phases = if down { down_link } else { up_link };
    let ceiling = through(&phases, configured, settle, lasts) * PAYLOAD;
    outcome.add_figures([("of_ceiling", bytes as f64 * 8.0 / ceiling)]);
    Ok(outcome)
}
