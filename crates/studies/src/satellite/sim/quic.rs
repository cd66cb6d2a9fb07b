//! A download by QUIC: quinn's protocol with CUBIC at both ends, straight over the link or through the tunnel's own core.

use crate::long_link::PAYLOAD;
use crate::long_link::changes::{self, through};
use crate::long_link::network;
use crate::long_link::tunnel_pair::{FAR, NEAR, Pair};
use bytes::{Bytes, BytesMut};
use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{During, EngineError, Outcome};
use ekiden_lab::statistics::quantile;
use ekiden_model::network::link::{Link, Packet};
use ekiden_model::units::{Rate, Span, Time};
use ekiden_testbed::quic::configs;
use ekiden_tunnel::core::FlowId;
use ekiden_tunnel::frame::Carries;
use quinn_proto::congestion::{BbrConfig, CubicConfig};
use quinn_proto::{
    Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, Event, StreamEvent,
    StreamId,
};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NAME: &str = "server.example";
/// Of IPv4 and UDP.
const HEADERS: u32 = 28;
/// Bytes of a packet that tell it from others: ciphertext.
const MARK: usize = 24;

static PAGE: [u8; 1 << 16] = [0; 1 << 16];

/// A client or a server, and its one connection.
struct End {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    address: SocketAddr,
    stream: Option<StreamId>,
    serves: bool,
    came: u64,
    buffer: Vec<u8>,
}

impl End {
    fn on_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        let mut reply = Vec::new();
        let data = BytesMut::from(datagram);
        match self.endpoint.handle(now, from, None, None, data, &mut reply) {
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                if let Some((_, connection)) = &mut self.connection {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                let accepted = self.endpoint.accept(incoming, now, &mut reply, None);
                self.connection = self.connection.take().or(accepted.ok());
            }
            Some(DatagramEvent::Response(_)) | None => {}
        }
    }

    /// Handles what is due, reads and writes; whether the connection still stands.
    fn go_on(&mut self, now: Instant) -> Result<(), EngineError> {
        let Some((handle, connection)) = &mut self.connection else { return Ok(()) };
        if connection.poll_timeout().is_some_and(|due| due <= now) {
            connection.handle_timeout(now);
        }
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        while let Some(event) = connection.poll() {
            match event {
                Event::Connected if !self.serves => {
                    self.stream = connection.streams().open(Dir::Bi);
                    if let Some(id) = self.stream {
                        let mut stream = connection.send_stream(id);
                        let _ = stream.write(b"all of it");
                        let _ = stream.finish();
                    }
                }
                Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) if self.serves => {
                    self.stream = connection.streams().accept(Dir::Bi);
                }
                Event::ConnectionLost { reason } => {
                    return Err(EngineError(format!("QUIC's connection was lost: {reason}")));
                }
                _ => {}
            }
        }
        let Some(id) = self.stream else { return Ok(()) };
        if self.serves {
            // without end
            while connection.send_stream(id).write(&PAGE).is_ok() {}
        } else {
            let mut stream = connection.recv_stream(id);
            if let Ok(mut chunks) = stream.read(true) {
                while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
                    self.came += chunk.bytes.len() as u64;
                }
                let _ = chunks.finalize();
            }
        }
        Ok(())
    }

    fn transmit(&mut self, now: Instant) -> Option<Bytes> {
        let (_, connection) = self.connection.as_mut()?;
        self.buffer.clear();
        let transmit = connection.poll_transmit(now, 1, &mut self.buffer)?;
        Some(Bytes::copy_from_slice(self.buffer.get(..transmit.size)?))
    }

    fn due(&mut self) -> Option<Instant> {
        self.connection.as_mut().and_then(|(_, connection)| connection.poll_timeout())
    }
}

/// Client and server.
struct Ends {
    origin: Instant,
    /// By the end of the tunnel that each is at.
    ends: [End; 2],
    sent: HashMap<Vec<u8>, Time>,
    /// From the server to the client, beyond half a round trip, ms.
    delays: Vec<f64>,
    bytes: u64,
    half: Span,
}

impl Ends {
    fn new(half: Span, way: &str) -> Result<Self, EngineError> {
        let (server, client) = match way {
            "bbr" => configs(NAME, Arc::new(BbrConfig::default())),
            _ => configs(NAME, Arc::new(CubicConfig::default())),
        }
        .during("QUIC's ends")?;
        let end = |nth: u8, server| {
            let config = Arc::new(EndpointConfig::default());
            let serves = nth == 2;
            End {
                endpoint: Endpoint::new(config, server, true, Some([nth; 32])),
                connection: None,
                address: SocketAddr::from(([100, 64, 1, nth], 443)),
                stream: None,
                serves,
                came: 0,
                buffer: Vec::new(),
            }
        };
        let (mut near, far) = (end(1, None), end(2, Some(server)));
        let origin = Instant::now();
        let connected = near.endpoint.connect(origin, client, far.address, NAME);
        near.connection = Some(connected.map_err(|error| EngineError(error.to_string()))?);
        let (sent, delays) = (HashMap::new(), Vec::new());
        Ok(Self { origin, ends: [near, far], sent, delays, bytes: 0, half })
    }

    fn instant(&self, now: Time) -> Instant {
        self.origin + Duration::from_nanos(now.as_nanos())
    }

    /// What both ends send now.
    fn transmit(
        &mut self,
        now: Time,
        mut send: impl FnMut(usize, Bytes),
    ) -> Result<(), EngineError> {
        let clock = self.instant(now);
        for nth in [NEAR, FAR] {
            let Some(end) = self.ends.get_mut(nth) else { continue };
            end.go_on(clock)?;
            while let Some(packet) = end.transmit(clock) {
                if nth == FAR {
                    self.bytes += packet.len() as u64;
                    self.sent.insert(mark(&packet), now);
                }
                send(nth, packet);
            }
        }
        Ok(())
    }

    fn on_packet(&mut self, now: Time, to: usize, packet: &[u8]) {
        let clock = self.instant(now);
        if to == NEAR
            && let Some(sent) = self.sent.remove(&mark(packet))
        {
            let took = now.since(sent).as_secs_f64() - self.half.as_secs_f64();
            self.delays.push(took * 1e3);
        }
        let from = self.ends[1 - to].address;
        self.ends[to].on_datagram(clock, from, packet);
    }

    fn due(&mut self) -> Time {
        let origin = self.origin;
        let due = self.ends.iter_mut().filter_map(End::due).min();
        let nanos = due.map(|due| due.saturating_duration_since(origin).as_nanos() as u64);
        nanos.map_or(Time::NEVER, Time::from_nanos)
    }
}

fn mark(packet: &[u8]) -> Vec<u8> {
    packet[packet.len().saturating_sub(MARK)..].to_vec()
}

/// What carries datagrams between both.
enum Between {
    Link { links: Box<[Link; 2]>, inside: BTreeMap<u64, Bytes>, number: u64 },
    Tunnel { pair: Box<Pair>, flow: FlowId },
}

/// A cell's run.
pub(super) fn run(cell: &Cell, seed: u64) -> Result<Outcome, EngineError> {
    let (lasts, settle): (Span, Span) = (cell.value("duration")?, cell.value("settle")?);
    let rtt: Span = cell.value("rtt")?;
    let mut ends = Ends::new(Span::from_nanos(rtt.as_nanos() / 2), cell.text("way")?)?;
    let mut between = match cell.text("way")? {
        "cubic" | "bbr" => {
            let link = network(cell, seed, None)?.links.into_iter().next();
            let link = link.ok_or_else(|| EngineError("the network has no link".to_owned()))?;
            let links =
                Box::new([&link.forward, &link.backward].map(|it| Link::new(it, Time::ZERO)));
            Between::Link { links, inside: BTreeMap::new(), number: 0 }
        }
        way => {
            let carries = if way == "unrepaired" { Carries::Packets } else { Carries::Coded };
            let mut pair = Box::new(Pair::up(cell, seed)?);
            let flow = pair.open_packets(carries)?;
            Between::Tunnel { pair, flow }
        }
    };
    let begin = match &between {
        Between::Link { .. } => Time::ZERO,
        Between::Tunnel { pair, .. } => pair.now,
    };
    // QUIC's clock begins with the run
    ends.origin -= Duration::from_nanos(begin.as_nanos());
    let (from, end) = (begin + settle, begin + lasts);
    let mut now = begin;
    let mut counted = None;
    while now < end {
        if now >= from && counted.is_none() {
            ends.delays.clear();
            ends.bytes = 0;
            counted = Some((ends.ends[NEAR].came, between.repair_bytes()));
        }
        let until = if now < from { from } else { end };
        now = between.step(now, until, &mut ends)?;
    }
    let (before, repaired) = counted.unwrap_or_default();
    let bytes = ends.ends[NEAR].came - before;
    let seconds = end.since(from).as_secs_f64();
    let mut outcome = Outcome::of(bytes as f64 * 8e-6 / seconds);
    let configured: Rate = cell.value("told-down")?;
    let [_, down] = changes::links(cell, seed)?;
    let since = |time: Time| time.since(Time::ZERO);
    let ceiling = through(&down, configured, since(from), since(end)) * PAYLOAD;
    let delay = |share| quantile(&ends.delays, share).unwrap_or(0.0);
    let repairs = (between.repair_bytes() - repaired) as f64 * 100.0 / ends.bytes.max(1) as f64;
    outcome.add_figures([
        ("of_ceiling", bytes as f64 * 8.0 / ceiling),
        ("delay_p50_ms", delay(0.5)),
        ("delay_p99_ms", delay(0.99)),
        ("repairs_percent", repairs),
    ]);
    Ok(outcome)
}

impl Between {
    /// Bytes of repairs that the far end has sent.
    fn repair_bytes(&self) -> u64 {
        match self {
            Self::Link { .. } => 0,
            Self::Tunnel { pair, .. } => pair.snapshot(FAR).map_or(0, |seen| seen.repair_bytes),
        }
    }

    /// Does all that is due now, and goes on to the next instant, at most `until`.
    fn step(&mut self, now: Time, until: Time, ends: &mut Ends) -> Result<Time, EngineError> {
        match self {
            Self::Link { links, inside, number } => {
                ends.transmit(now, |nth, packet| {
                    *number += 1;
                    let size = packet.len() as u32 + HEADERS;
                    inside.insert(*number, packet);
                    let _told_by_gone = links[nth].offer(now, Packet::new(*number, size));
                })?;
                let mut any = false;
                for nth in [NEAR, FAR] {
                    while let Some(came) = links[nth].poll(now) {
                        if let Some(packet) = inside.remove(&came.packet.id) {
                            ends.on_packet(now, 1 - nth, &packet);
                            any = true;
                        }
                    }
                    links[nth].gone(|id, _| drop(inside.remove(&id)));
                }
                if any {
                    return Ok(now);
                }
                let next = links.iter_mut().map(|link| link.next()).min().unwrap_or(until);
                Ok(next.min(ends.due()).max(now + Span::from_nanos(1)).min(until))
            }
            Self::Tunnel { pair, flow } => {
                let flow = *flow;
                ends.transmit(now, |nth, packet| pair.send_packet(nth, flow, packet))?;
                pair.settle()?;
                let mut any = false;
                for nth in [NEAR, FAR] {
                    while let Some(packet) = pair.packet(nth, flow) {
                        ends.on_packet(now, nth, &packet);
                        any = true;
                    }
                }
                if any {
                    return Ok(now);
                }
                let next = ends.due().max(now + Span::from_nanos(1)).min(until);
                pair.advance(next);
                Ok(pair.now)
            }
        }
    }
}
