//! The study's network and its TCP.

use super::client::Client;
use super::{Knowledge, Proxy, ProxyConfig, ProxyResult};
use crate::network::connection::ConnectionConfig;
use crate::network::flow::{FlowConfig, Source};
use crate::network::topology::{Node, Topology};
use crate::observer::Observer;
use crate::random::Substreams;
use crate::simulator::{BuildError, Simulator};
use ekiden_model::control::formula::Path;
use ekiden_model::network::link::{Bound, Config, Discipline, Serialiser};
use ekiden_model::network::tcp::preset::{Era, Flavour};
use ekiden_model::network::tcp::{Acknowledging, ReceiverConfig};
use ekiden_model::resources::buffers::Allocator;
use ekiden_model::resources::idle::{self, Register};
use ekiden_model::resources::overload::{Admission, AdmissionConfig, Pressure, Watermarks};
use ekiden_model::rng::Rng;
use ekiden_model::units::{Rate, Share, Span, Time};

/// What ends of connections have that are not the proxy's: more than any path of the study takes.
const PLENTY: u64 = 4 << 20;
/// Windows beyond 64 KiB (RFC 1323).
const SCALE: u8 = 7;
/// Each link's queue: long enough that what is lost is lost by p.
const QUEUE: Bound = Bound::Packets(1_000);

/// A client or server as seen from the proxy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FarHost {
    pub(super) node: Node,
    /// Routes of its connections: from the one who opens, and back.
    pub(super) routes: [u32; 2],
    pub(super) delay: Span,
    /// λ of its path, as an equation has it that knows loss and round trip.
    pub(super) rate: Rate,
}

impl FarHost {
    /// To it and back.
    pub(super) fn round_trip(&self) -> Span {
        self.delay + self.delay
    }
}

/// A network with a proxy in it, its clients about to begin; with clients and servers it never
/// fails.
pub fn build<O: Observer>(config: &ProxyConfig, observer: O) -> Result<Simulator<O>, BuildError> {
    let streams = Substreams::new(config.seed);
    let mut topology = Topology::new();
    let host = topology.host();
    let mut lay = |name: &str, count: u32, delays: [Span; 2]| -> Vec<(Node, Span, f64)> {
        (0..count)
            .map(|number| {
                let mut rng = streams.of(name, number.into());
                let delay = between(&mut rng, delays);
                let drawn = rng.below(config.losses.len().max(1) as u64) as usize;
                let loss = config.losses.get(drawn).copied().unwrap_or(Share::NONE);
                let node = topology.host();
                let [there, back] = [0, 1].map(|_| link(config.rate, delay, loss, rng.next_u64()));
                topology.link(node, host, there, back);
                (node, delay, loss.as_parts_per_billion() as f64 / 1e9)
            })
            .collect()
    };
    let clients = lay("client's path", config.clients, config.client_delay);
    let servers = lay("server's path", config.servers, config.server_delay);
    let mut net = Simulator::new(topology, observer);
    let flow = flow(config.era);
    let mut far = |(node, delay, loss): (Node, Span, f64), opens: bool| {
        let [from, to] = if opens { [node, host] } else { [host, node] };
        let rate = known_rate(config, &flow, delay, loss);
        Ok(FarHost { node, routes: net.routes(from, to)?, delay, rate })
    };
    let clients = clients.into_iter().map(|one| far(one, true));
    let clients: Vec<FarHost> = clients.collect::<Result<_, BuildError>>()?;
    let servers = servers.into_iter().map(|one| far(one, false));
    let servers: Vec<FarHost> = servers.collect::<Result<_, BuildError>>()?;
    let person = |(number, far): (u64, FarHost)| {
        Client::new(far, &config.surge, streams.of("client", number))
    };
    let mut proxy =
        Proxy::new(config, host, (0..).zip(clients).map(person).collect(), servers, flow);
    proxy.begin(&mut net);
    net.put_proxy(proxy);
    Ok(net)
}

fn between(rng: &mut Rng, [from, to]: [Span; 2]) -> Span {
    let wide = to.as_nanos().saturating_sub(from.as_nanos());
    Span::from_nanos(from.as_nanos() + rng.below(wide.max(1)))
}

fn link(rate: Rate, delay: Span, loss: Share, seed: u64) -> Config {
    Config {
        discipline: Discipline::DropTail(QUEUE),
        serialiser: Serialiser::Rate(rate),
        delay,
        loss: loss.into(),
        seed,
        ..Config::default()
    }
}

impl Proxy {
    fn new(
        config: &ProxyConfig,
        host: Node,
        clients: Vec<Client>,
        servers: Vec<FarHost>,
        flow: FlowConfig,
    ) -> Self {
        let scheme = config.scheme;
        let mut buffers = scheme.buffers(config.pool);
        buffers.period = config.period;
        // where paths are known, nothing is to be corrected by how full a buffer is
        buffers.by_use = config.knowledge == Knowledge::Estimated;
        let halve_every = scheme.idle().halve_every.map(|_| config.halve_every);
        let idle = idle::Config { persist: config.persist, halve_every };
        let admission = AdmissionConfig { patience: config.patience, ..scheme.admission() };
        // `when 200 connections are open` (algorithms/buffers A.7)
        let when_full = Watermarks { high: Share::ALL, low: Share::ALL };
        Self {
            host,
            clients,
            servers,
            legs: Vec::new(),
            register: Register::new(idle, super::Hasher::default()),
            pressure: Pressure::new(when_full),
            admission: Admission::new(admission),
            allocator: Allocator::new(buffers, Time::ZERO),
            open: 0,
            look: Time::NEVER,
            wake: Time::NEVER,
            result: ProxyResult::default(),
            flow,
            config: config.clone(),
        }
    }

    pub(super) fn connection(&self, opener: Node, acceptor: Node) -> ConnectionConfig {
        let (start, handshake_bytes) = (Time::NEVER, self.flow.header + 8);
        let base = ConnectionConfig::new(opener, acceptor, self.config.era);
        ConnectionConfig { start, three_way: true, handshake_bytes, ..base }
    }

    /// Flows of requests and answers. With a `receive_buffer` the proxy reads answers when it can
    /// hand them on.
    pub(super) fn flows(&self, receive_buffer: Option<u64>) -> [FlowConfig; 2] {
        let mut answers = self.flow.clone();
        if let Some(buffer) = receive_buffer {
            answers.receiver.buffer = buffer;
            answers.receiver.read_at_once = false;
        }
        [self.flow.clone(), answers]
    }
}

/// Payload of a full segment, and headers: with timestamps in Linux.
const fn sizes(era: Era) -> (u32, u32) {
    if let Era::Linux = era { (1_448, 52) } else { (1_460, 40) }
}

pub(super) fn flow(era: Era) -> FlowConfig {
    let linux = era == Era::Linux;
    let (mss, header) = sizes(era);
    let flavour = if linux { Flavour::Sack } else { Flavour::NewReno };
    let mut sender = era.sender(flavour, mss, f64::INFINITY, Span::ZERO);
    sender.buffer = PLENTY;
    // a persistent connection keeps its window: that is what it is kept for (the proxy-pressure study)
    sender.restart_after_idle = false;
    sender.nagle = false;
    let receiver = ReceiverConfig {
        acknowledging: if linux { Acknowledging::LINUX } else { Acknowledging::DELAYED },
        selective: linux,
        duplicates: linux,
        ..ReceiverConfig::linux(mss, PLENTY, SCALE)
    };
    FlowConfig { header, ..FlowConfig::new(sender, receiver, Source::Application) }
}

/// λ of a path whose loss and round trip are known; no more than its link's rate.
fn known_rate(config: &ProxyConfig, flow: &FlowConfig, delay: Span, loss: f64) -> Rate {
    let rtt = delay + delay;
    let path = Path {
        rtt,
        // without variance the time-out is a round trip, or the shortest there is
        timeout: rtt.max(flow.sender.rto.minimum),
        loss,
        segments_per_ack: 2.0,
        window: f64::INFINITY,
    };
    let bits = path.rate() * f64::from(flow.sender.mss) * 8.0;
    Rate::from_bits_per_second(bits as u64).min(config.rate)
}
