//! An HTTP proxy between clients and servers, as in the proxy-pressure study (algorithms/buffers
//! A.7 and §A.8). The values that the real proxy runs decide on buffers, evictions and waiting.
//!
//! ```text
//! client 1 … N ── 100 Mbit/s, 10–100 ms ── proxy ── 100 Mbit/s, 10–200 ms ── server 1 … 50
//!                  p each way         200 connections        p each way
//! ```
//! A client asks for a page's documents one after the other over one connection, then it thinks.
//! Half of them are in the cache; for the rest the proxy asks a server over an idle or a new
//! connection. Every connection takes one of the proxy's places from its SYN on.
//!
//! Each packet is simulated, handshakes too, but not FINs: a client whose idle connection the proxy
//! closes hears of it half a round trip later, and repeats its requests over a new one. Parsing
//! takes no time, and heads are counted with the documents.

mod client;
mod driver;
mod exchange;
#[cfg(test)]
mod laws;
mod leg;
mod result;
mod set_up;

use crate::applications::proxy::client::Client;
use crate::applications::proxy::leg::Leg;
use crate::network::flow::FlowConfig;
use crate::network::topology::Node;
use ekiden_model::network::tcp::preset::Era;
use ekiden_model::network::workload::surge::Surge;
use ekiden_model::resources::buffers::{Allocator, Scheme};
use ekiden_model::resources::idle::{Pool, Register};
use ekiden_model::resources::overload::{Admission, Pressure};
use ekiden_model::units::{Bytes, Rate, Share, Span, Time};
pub use result::{CLASSES, Class, ProxyResult};
pub use set_up::build;
use std::hash::{BuildHasherDefault, DefaultHasher};

/// What the proxy knows of a connection's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knowledge {
    /// Its true loss and round trip, as the study assumes.
    Perfect,
    /// What its counters say, as on a real machine.
    Estimated,
}

/// The study's parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxyConfig {
    /// Of all that is drawn.
    pub seed: u64,
    /// How many.
    pub clients: u32,
    /// How many.
    pub servers: u32,
    /// The proxy's places.
    pub most_connections: u64,
    /// Which of the study's schemes.
    pub scheme: Scheme,
    /// All buffers together, but in scheme 1.
    pub pool: Bytes,
    /// Between two ticks.
    pub period: Span,
    /// How long an idle connection is kept.
    pub persist: Span,
    /// T_h: how often idle connections' buffers are halved in scheme 4.
    pub halve_every: Span,
    /// How long somebody waits for a place.
    pub patience: Span,
    /// What is known of paths.
    pub knowledge: Knowledge,
    /// Share of requests that the cache has.
    pub hits: Share,
    /// What is asked for.
    pub surge: Surge,
    /// Whose TCP.
    pub era: Era,
    /// Of each link.
    pub rate: Rate,
    /// Between a client and the proxy, one way: from, to.
    pub client_delay: [Span; 2],
    /// Between the proxy and a server, one way: from, to.
    pub server_delay: [Span; 2],
    /// Each link has one of these losses, in both directions.
    pub losses: Vec<Share>,
}

impl ProxyConfig {
    /// The study's setting, else algorithms/buffers A.4 to §A.8's: a pool of 200 × 16 KiB, a tick
    /// each second, a persistent time-out of 15 s, a halving each second; patience by scheme.
    pub fn study(scheme: Scheme, clients: u32, seed: u64) -> Self {
        let ppm = |n: u64| Share::from_parts_per_billion(n * 1_000).unwrap_or(Share::NONE);
        let pool = Bytes::kib(200 * 16);
        Self {
            seed,
            clients,
            servers: 50,
            most_connections: 200,
            scheme,
            pool,
            period: scheme.buffers(pool).period,
            persist: scheme.idle().persist,
            halve_every: Span::from_secs(1),
            patience: scheme.admission().patience,
            knowledge: Knowledge::Perfect,
            hits: Share::from_percent(50).unwrap_or(Share::NONE),
            surge: Surge::published(),
            era: Era::Ns21b9,
            rate: Rate::from_bits_per_second(100_000_000),
            client_delay: [Span::from_millis(10), Span::from_millis(100)],
            server_delay: [Span::from_millis(10), Span::from_millis(200)],
            losses: [100, 500, 1_000, 5_000, 10_000].map(ppm).to_vec(),
        }
    }
}

/// Keys of idle connections: a client's own, by the connection's number; a server's, by the server's.
type Key = Pool<u32, u32>;

/// A hasher that is the same in every run.
type Hasher = BuildHasherDefault<DefaultHasher>;

/// Waits for a place: a client's SYN, or a request that needs a server, by its connection's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Client(u32),
    Server(u32),
}

#[derive(Debug)]
pub(crate) struct Proxy {
    config: ProxyConfig,
    host: Node,
    clients: Vec<Client>,
    servers: Vec<set_up::FarHost>,
    flow: FlowConfig,
    legs: Vec<Option<Leg>>,
    register: Register<Key, u32, Hasher>,
    pressure: Pressure,
    admission: Admission<Waiting>,
    allocator: Allocator,
    open: u64,
    /// The next look at connections, where paths are estimated.
    look: Time,
    /// When the next event of the proxy's own is due.
    wake: Time,
    result: ProxyResult,
}
