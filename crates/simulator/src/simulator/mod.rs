//! The run: events in order, and what each does.

mod chains;
mod handshakes;
#[cfg(test)]
mod laws;
mod limits;
mod lookahead;
mod packets;
mod proxies;
mod streams;

use crate::applications::chain::Chain;
use crate::applications::proxy::Proxy;
use crate::events::Events;
use crate::network::carrier::Carrier;
use crate::network::connection::{Connection, ConnectionConfig};
use crate::network::flow::{ENDLESS, Flow, FlowConfig, Source};
use crate::network::packet::Arena;
use crate::network::topology::{LinkDirection, Node, Topology};
use crate::observer::Observer;
use ekiden_model::network::link::Snapshot;
use ekiden_model::network::tcp::{ReceiverSnapshot, SenderSnapshot};
use ekiden_model::units::Time;
use ekiden_record::fingerprint::Fingerprint;
use lookahead::{Feed, Inbox};
use std::fmt;
use streams::Running;

pub use streams::CrossTraffic;

/// What happens; the number says to what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A packet comes to the end of a link.
    Arrive(u32),
    /// A link wants to be asked.
    Wake(u32),
    Sender(u32),
    Receiver(u32),
    /// A connection begins, or its SYN is waited for long enough.
    Open(u32),
    Write(u32),
    Stream(u32),
    /// A client of the proxy's, or the proxy itself, wanted to be called.
    Proxy(u32),
    /// Somebody's turn comes at the relays.
    Limits(u32),
    /// A link takes what has come to it.
    Gather(u32),
}

impl Event {
    const fn word(self) -> u64 {
        let (kind, number) = match self {
            Self::Arrive(number) => (1, number),
            Self::Wake(number) => (2, number),
            Self::Sender(number) => (3, number),
            Self::Receiver(number) => (4, number),
            Self::Open(number) => (5, number),
            Self::Write(number) => (6, number),
            Self::Stream(number) => (7, number),
            Self::Proxy(number) => (8, number),
            Self::Limits(number) => (9, number),
            Self::Gather(number) => (10, number),
        };
        (kind << 32) | number as u64
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hop {
    way: u32,
    /// Whether packets wait for it in a router.
    in_router: bool,
    feed: Feed,
}

const END: Hop = Hop { way: u32::MAX, in_router: false, feed: Feed::Event };

/// What cannot be built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildError {
    /// There is no way from one node to the other.
    NoRoute(Node, Node),
    /// The connection has such a flow already, or there is no such connection.
    NoPlace(u32),
    /// A script's writes are not in order, or one is empty: which.
    Script(usize),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoute(from, to) => {
                write!(f, "no link leads from node {} to node {}", from.0, to.0)
            }
            Self::NoPlace(connection) => {
                write!(f, "connection {connection} is not there, or has such a flow already")
            }
            Self::Script(nth) => {
                write!(f, "write {nth} of the script is empty or earlier than the one before it")
            }
        }
    }
}

impl std::error::Error for BuildError {}

/// Which way a flow goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the one who opened the connection.
    FromOpener,
    /// To the one who opened it.
    ToOpener,
}

/// Packets and events of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Events taken from the queue.
    pub events: u64,
    /// Packets that left a host: payload, acknowledgements, handshakes.
    pub packets: u64,
    /// Packets that a full queue dropped.
    pub dropped: u64,
    /// Packets lost on a link.
    pub lost: u64,
}

/// A number for what can be observed, independent of the order of reports.
#[derive(Debug, Clone, Copy, Default)]
struct Results(u64);

impl Results {
    fn add(&mut self, words: [u64; 2]) {
        let mut one = Fingerprint::new();
        one.add_all(words);
        self.0 = self.0.wrapping_add(one.value());
    }
}

/// A network in motion.
///
/// ```text
/// let mut simulator = Simulator::new(topology, observer);
/// let connection = simulator.connect(…)?;
/// let flow = simulator.flow(connection, Direction::…, …)?;
/// simulator.run(until);
/// simulator.sender(flow), .receiver(flow), .way(…), .totals(), .fingerprints()
/// ```
/// The same calls and seeds give the same events, in debug and release builds, on every machine.
#[derive(Debug)]
pub struct Simulator<O> {
    events: Events<Event>,
    packets: Arena,
    topology: Topology,
    carriers: Vec<Carrier>,
    /// By link: what has come to it, where it is asked late.
    inboxes: Vec<Inbox>,
    /// Routes one after the other, each with [`END`] behind it.
    hops: Vec<Hop>,
    connections: Vec<Connection>,
    flows: Vec<Flow>,
    chains: Vec<Chain>,
    streams: Vec<Running>,
    /// Connections that are closed, whose numbers are free.
    closed: Vec<u32>,
    proxy: Option<Box<Proxy>>,
    limited: Option<Box<limits::Limited>>,
    totals: Totals,
    /// How far the present run goes.
    until: Time,
    /// The latest time at which something has happened without an event.
    reached: Time,
    all: Fingerprint,
    results: Results,
    /// The observer.
    pub observer: O,
}

impl<O: Observer> Simulator<O> {
    /// A network at rest, at time 0.
    pub fn new(topology: Topology, observer: O) -> Self {
        let now = Time::ZERO;
        Self {
            events: Events::new(now),
            packets: Arena::default(),
            carriers: topology.ways.iter().map(|way| Carrier::new(&way.config, now)).collect(),
            topology,
            inboxes: Vec::new(),
            hops: Vec::new(),
            connections: Vec::new(),
            flows: Vec::new(),
            chains: Vec::new(),
            streams: Vec::new(),
            closed: Vec::new(),
            proxy: None,
            limited: None,
            totals: Totals::default(),
            until: now,
            reached: now,
            all: Fingerprint::new(),
            results: Results::default(),
            observer,
        }
    }

    /// Adds a connection and returns its number. Fails without a way there and back.
    pub fn connect(&mut self, config: ConnectionConfig) -> Result<u32, BuildError> {
        let there = self.add_route(config.opener, config.acceptor)?;
        let back = self.add_route(config.acceptor, config.opener)?;
        let number = self.connections.len() as u32;
        if config.start != Time::NEVER {
            self.events.push(config.start.max(self.events.now()), Event::Open(number));
        }
        self.connections.push(Connection::new(config, there, back));
        Ok(number)
    }

    /// Adds a flow and returns its number. Fails if the direction is taken or the script out of
    /// order.
    pub fn flow(
        &mut self,
        connection: u32,
        direction: Direction,
        config: FlowConfig,
    ) -> Result<u32, BuildError> {
        if let Source::Script(script) = &config.source {
            check(script)?;
        }
        let number = self.flows.len() as u32;
        let now = self.events.now();
        let no_place = BuildError::NoPlace(connection);
        let Some(of) = self.connections.get_mut(connection as usize) else { return Err(no_place) };
        let slot = usize::from(direction == Direction::ToOpener);
        let routes = if slot == 0 { [of.there, of.back] } else { [of.back, of.there] };
        match of.flows.get_mut(slot) {
            Some(place @ None) => *place = Some(number),
            _ => return Err(no_place),
        }
        let mut flow = Flow::new(config, now, connection, routes);
        match &flow.config.source {
            Source::Endless { .. } => flow.sender.on_write(now, ENDLESS),
            Source::Script(script) => {
                if let Some(first) = script.first() {
                    self.events.push(first.at.max(now), Event::Write(number));
                }
            }
            Source::Application | Source::Filled => {}
        }
        self.flows.push(flow);
        Ok(number)
    }

    /// Runs until `until`, that moment included, or until nothing is left to happen.
    pub fn run(&mut self, until: Time) {
        self.until = until;
        self.plan();
        self.run_as_it_is(until);
        self.catch_up(until);
    }

    fn run_as_it_is(&mut self, until: Time) {
        while let Some((now, event)) = self.events.pop_by(until) {
            self.totals.events += 1;
            self.all.add(now.as_nanos());
            self.all.add(event.word());
            self.happen(now, event);
        }
    }

    fn happen(&mut self, now: Time, event: Event) {
        match event {
            Event::Arrive(packet) => self.arrive(now, packet),
            Event::Wake(way) => self.wake(now, way),
            Event::Sender(flow) => self.on_sender_event(now, flow),
            Event::Receiver(flow) => self.on_receiver_event(now, flow),
            Event::Open(connection) => self.on_open_event(now, connection),
            Event::Write(flow) => self.on_write_event(now, flow),
            Event::Stream(stream) => self.on_stream_event(now, stream),
            Event::Proxy(number) => self.on_proxy_event(now, number),
            Event::Limits(_) => self.on_limits_event(now),
            Event::Gather(way) => self.on_gather_event(now, way),
        }
    }

    /// Now, in the run.
    pub fn now(&self) -> Time {
        self.events.now()
    }

    /// What a flow's sender shows.
    pub fn sender(&self, flow: u32) -> Option<SenderSnapshot> {
        self.flows.get(flow as usize).map(|flow| flow.sender.snapshot())
    }

    /// What a flow's receiver shows.
    pub fn receiver(&self, flow: u32) -> Option<ReceiverSnapshot> {
        self.flows.get(flow as usize).map(|flow| flow.receiver.snapshot())
    }

    /// What a link shows. What is cascaded at once may already count what will only come to it.
    pub fn way(&mut self, way: LinkDirection) -> Option<Snapshot> {
        let now = self.events.now();
        self.carriers.get_mut(way.0 as usize).map(|carrier| carrier.snapshot(now))
    }

    /// Counts of the run.
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// Packets on their way now.
    pub fn under_way(&self) -> usize {
        self.packets.len()
    }

    /// Two fingerprints: of all events, and of what can be observed (deliveries, losses).
    pub const fn fingerprints(&self) -> [u64; 2] {
        [self.all.value(), self.results.0]
    }

    fn add_route(&mut self, from: Node, to: Node) -> Result<u32, BuildError> {
        let route = self.topology.route(from, to).ok_or(BuildError::NoRoute(from, to))?;
        let first = self.hops.len() as u32;
        let hop = |way: LinkDirection| Hop {
            way: way.0,
            in_router: self.topology.is_from_router(way),
            feed: Feed::Event,
        };
        self.hops.extend(route.into_iter().map(hop));
        self.hops.push(END);
        Ok(first)
    }

    fn on_write_event(&mut self, now: Time, number: u32) {
        let Some(flow) = self.flows.get_mut(number as usize) else { return };
        let Source::Script(script) = &flow.config.source else { return };
        while let Some(write) = script.get(flow.cursor).filter(|write| write.at <= now) {
            flow.writes.push(now, write.bytes, write.kind);
            flow.sender.on_write(now, write.bytes.into());
            flow.cursor += 1;
        }
        if let Some(next) = script.get(flow.cursor) {
            self.events.push(next.at, Event::Write(number));
        }
        self.send(now, number);
    }
}

fn check(script: &[crate::network::flow::Scripted]) -> Result<(), BuildError> {
    let mut before = Time::ZERO;
    for (nth, write) in script.iter().enumerate() {
        if write.bytes == 0 || write.at < before {
            return Err(BuildError::Script(nth));
        }
        before = write.at;
    }
    Ok(())
}
