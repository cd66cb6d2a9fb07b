//! A short download whose first handshakes are lost (algorithms/asymmetric D.5).

use crate::asymmetric::handshakes::{self, Depth, Took};
use crate::asymmetric::sim;
use crate::asymmetric::thin_link::Thin;
use crate::download::tcp;
use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{During, EngineError, Outcome};
use ekiden_lab::study::Sights;
use ekiden_model::network::link::{Config, Loss};
use ekiden_model::network::tcp::HandshakeConfig;
use ekiden_model::units::{Bytes, Rate, Span, Time};
use ekiden_simulator::applications::chain::{ChainConfig, ChainResult};
use ekiden_simulator::network::connection::ConnectionConfig;
use ekiden_simulator::network::topology::Topology;
use ekiden_simulator::observer::Observer;
use ekiden_simulator::recorder::packets::Side;
use ekiden_simulator::simulator::{Direction, Simulator};
use std::collections::BTreeSet;
use std::sync::Arc;

/// More failures in a row than this count as so many: at 10 % loss one handshake in 10¹⁵.
const MOST: u32 = 20;

pub(crate) fn run(cell: &Cell) -> Result<Outcome, EngineError> {
    let depth = Depth { most: MOST, least: 0.0 };
    handshakes::run(cell, depth, |failures| {
        let (result, ()) = download(cell, failures, |_| Ok(()))?;
        let milliseconds = |at: Option<Time>| at.map_or(f64::NAN, |at| at.as_nanos() as f64 / 1e6);
        Ok(Took {
            whole: milliseconds(result.finished),
            first_byte: milliseconds(result.first_byte),
        })
    })
}

/// The download whose first attempt fails, beside an observer. Errors: as [`run`], and the observer's.
pub(crate) fn record<O: Observer>(
    cell: &Cell,
    observer: impl FnOnce(&Sights) -> Result<O, EngineError>,
) -> Result<(Outcome, O), EngineError> {
    let outcome = run(cell)?;
    let (_, observer) = download(cell, 1, observer)?;
    Ok((outcome, observer))
}

/// A download whose first attempts fail: by a lost SYN, then by a lost answer, and so on in turn.
fn download<O: Observer>(
    cell: &Cell,
    failures: u32,
    observer: impl FnOnce(&Sights) -> Result<O, EngineError>,
) -> Result<(ChainResult, O), EngineError> {
    let thin = Thin::of(cell)?;
    let uplink: Rate = cell.value("uplink")?;
    let mut topology = Topology::new();
    let (client, server) = (topology.host(), topology.host());
    let [syns, answers] = lost(failures);
    let up = Config { loss: Loss::Listed(Arc::new(syns)), ..thin.up(uplink) };
    let down = Config { loss: Loss::Listed(Arc::new(answers)), ..thin.down() };
    let [up, _] = topology.link(client, server, up, down);
    let watched = Some(up);
    let observer = observer(&Sights { watched, server: Side::Acceptor, flows: 2, kinds: &[] })?;
    let mut simulator = Simulator::new(topology, observer);
    const BUILDING: &str = "building the network";
    let opening = HandshakeConfig {
        initial: handshakes::first_wait(cell)?,
        most: Span::from_secs(1 << 30), // the formula's time-out doubles without end
        again: MOST,
    };
    let opened = ConnectionConfig { opening, ..tcp::connection(client, server, Time::ZERO) };
    let connection = simulator.connect(opened).during(BUILDING)?;
    for direction in [Direction::FromOpener, Direction::ToOpener] {
        let flow = sim::flow(cell, thin.mtu, thin.every)?;
        simulator.flow(connection, direction, flow).during(BUILDING)?;
    }
    let response = cell.value::<Bytes>("file")?.as_u64();
    let chain = ChainConfig { connections: vec![connection], request: 100, response, held: 0 };
    let chain = simulator.chain(chain).during(BUILDING)?;
    simulator.run(Time::NEVER);
    Ok((simulator.result(chain).unwrap_or_default(), simulator.observer))
}

/// Which of the packets up and down are lost, by their numbers, so that so many attempts fail.
fn lost(failures: u32) -> [BTreeSet<u64>; 2] {
    let mut lost = [BTreeSet::new(), BTreeSet::new()];
    let mut answers = 0;
    for attempt in 0..u64::from(failures) {
        // a SYN that comes is answered
        if attempt % 2 == 0 {
            lost[0].insert(attempt);
        } else {
            lost[1].insert(answers);
            answers += 1;
        }
    }
    lost
}
