//! What the accelerator was told, as plain data: no file, no place in a file, nothing to look up.
//! `ekiden` makes one of these from arguments and a configuration; a reload makes another, and
//! connections that are already running keep the one they began with.

mod accounts;
mod households;
mod resources;
mod tls;
mod tunnel;
mod udp;

pub use accounts::Accounts;
pub use households::{Allowance, Household, Households, Limits, Strangers, Then};
pub use resources::{Buffers, Cache, Pool, Pressure};
pub use tls::Tls;
pub use tunnel::{Carrier, Tunnel};
pub use udp::Udp;

use ekiden_linux::options::SocketOptions;
use ekiden_model::units::{Bytes, Rate, Span};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Everything `ekiden serve` was told.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Where the one port for all protocols listens. Default `127.0.0.1:3128`.
    pub listen: Vec<SocketAddr>,
    /// Where else this process listens, for its operator: no client is relayed there, whatever rules say.
    pub closed: Vec<SocketAddr>,
    /// The pseudonym in `Via` (RFC 9110 §7.6.3), unique per relay: loops are found by it. A token;
    /// default `ekiden-` and 8 random hexadecimal digits drawn at start.
    pub name: String,
    /// The local socket on which the daemon answers `status` and `top`; `None` for none.
    pub control: Option<PathBuf>,
    /// Leg profiles by name. `client` (accepted connections) and `direct` (connections to the
    /// destination itself) are always there.
    pub legs: BTreeMap<String, Leg>,
    /// Upstream proxies by name.
    pub upstreams: BTreeMap<String, Upstream>,
    /// First match decides; none: direct, over leg `direct`.
    pub routes: Vec<Route>,
    /// Who may come in and where they may go.
    pub access: Access,
    /// Households.
    pub accounts: Accounts,
    /// How long each phase may take.
    pub timeouts: Timeouts,
    /// How much may be spent.
    pub budgets: Budgets,
    /// Name resolution.
    pub dns: Dns,
    /// How bytes are moved.
    pub relay: Relay,
    /// Socket buffers.
    pub buffers: Buffers,
    /// When newcomers are more than there is room for.
    pub pressure: Pressure,
    /// Connections kept for the next request.
    pub pool: Pool,
    /// The HTTP cache.
    pub cache: Cache,
    /// TLS for clients.
    pub tls: Tls,
    /// Tunnels to other relays.
    pub tunnel: Tunnel,
    /// UDP ASSOCIATE of SOCKS5.
    pub udp: Udp,
    /// Households, and what all share.
    pub households: Households,
    /// The access log.
    pub access_log: AccessLog,
}

/// A leg's profile: what its sockets are asked, and its own time-outs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leg {
    /// Asked of each socket; the answers are in `status`.
    pub socket: SocketOptions,
    /// For the TCP connection of this leg, all addresses together. Default 10 s.
    pub connect_timeout: Span,
    /// For each address of those: it is given up then, whatever time-outs data have. Default: only
    /// `connect_timeout` ends it.
    pub establish_timeout: Option<Span>,
    /// How long a first SYN is waited for before another is sent. Default [`InitialRto::Cached`].
    pub initial_rto: InitialRto,
    /// Whether a second SYN follows the first where handshakes are lost. Default no.
    pub second_syn: bool,
    /// Whether what CUBIC and Reno send over a long path is spread over the round trip. Default yes.
    pub spread: bool,
    /// What all its connections together send where `hold` is their congestion control, bits a second of IP
    /// packets. Default none, and `hold` is not to be asked for then.
    pub rate: Option<Rate>,
    /// The rate of the line that carries that, where it is the operator's own. Default: it is shared.
    pub line: Option<Rate>,
    /// Nothing moved on this leg in either direction for so long: closed. Default 1 h. The shorter
    /// of a connection's two legs counts.
    pub idle_timeout: Span,
    /// One direction ended and nothing moved in the other for so long: closed. Default 2 min.
    pub half_closed_timeout: Span,
}

/// How long a first SYN is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitialRto {
    /// As the destination's own round-trip time demands, where it is known: 200 ms to 1 s.
    Cached,
    /// 1 s, as the kernel does.
    Kernel,
}

/// An upstream proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// What it speaks.
    pub protocol: UpstreamProtocol,
    /// Its host name or address; for a tunnel, the name of the relay at its other end.
    pub host: String,
    /// Its port; 0 for a tunnel.
    pub port: u16,
    /// User and password for it, if it asks.
    pub credentials: Option<Credentials>,
    /// Name of the leg profile for connections to it.
    pub leg: String,
}

/// What an upstream proxy speaks.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamProtocol {
    /// HTTP/1.1 with CONNECT; plain `http://` requests go to it in absolute form.
    Http,
    /// SOCKS5 (RFC 1928), with RFC 1929 user/password.
    Socks5,
    /// It is another ekiden, at the other end of a tunnel.
    Tunnel,
}

/// A user name and password. Never printed: `Debug` shows the user alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name; no colon.
    pub user: String,
    /// The password.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Which way destinations go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Matches when any of these does; empty matches everything.
    pub to: Vec<Pattern>,
    /// Tried in order until one answers: each is a chain of upstream names, nearest first. An empty
    /// chain is «direct».
    pub through: Vec<Vec<String>>,
    /// Leg profile of direct connections on this route.
    pub leg: String,
    /// Leg profile laid over the client's connection once the route is known.
    pub client_leg: String,
}

/// Matches destinations: `example.org` (that name), `*.example.org` (names below it, and itself),
/// `10.0.0.0/8`, `2001:db8::/32`, `192.0.2.1`, each with `:port` or `:from-to`, or a port alone as `:22`.
/// An IPv6 prefix with a port is written in brackets: `[2001:db8::/32]:443`.
///
/// CIDR patterns match a destination given as an address. For routes, names are not resolved in
/// order to match; for access rules they are, and every candidate address is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// The host part.
    pub host: HostPattern,
    /// Ports, inclusive; `None` is any.
    pub ports: Option<(u16, u16)>,
}

/// The host part of a [`Pattern`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    /// Any host.
    Any,
    /// This name: lower case, no trailing dot.
    Name(String),
    /// This name and every name below it.
    Below(String),
    /// Addresses in this prefix.
    Net(IpNet),
}

/// Who may come in, and where they may go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// First match decides. A client on loopback that no rule matches is allowed, any other refused.
    pub rules: Vec<Rule>,
    /// Prefixes opened to everybody who may come in, although they are loopback, private,
    /// link-local or the like (`--allow-destination`).
    pub allow_destinations: Vec<IpNet>,
}

/// One access rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Matches clients in any of these. Empty, and `relays` too: everybody.
    pub from: Vec<IpNet>,
    /// Matches what comes out of the tunnels of these relays; `*` is all of them.
    pub relays: Vec<String>,
    /// Matches destinations; empty matches all.
    pub to: Vec<Pattern>,
    /// Whether what it matches may pass.
    pub allow: bool,
    /// Special prefixes that clients of this rule may reach.
    pub allow_destinations: Vec<IpNet>,
}

/// How long each phase may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From a connection's first byte (or a kept-alive connection's next) to the end of the request
    /// head or SOCKS request. Default 30 s.
    pub request_head: Span,
    /// Between accept and the first byte. Default 30 s.
    pub first_byte: Span,
    /// Between requests of a kept-alive client connection. Default 75 s.
    pub keep_alive: Span,
    /// Resolving a name. Default 5 s.
    pub resolve: Span,
    /// For an upstream proxy's answer to CONNECT or the SOCKS request, each hop. Default 30 s.
    pub handshake: Span,
    /// From the end of a request to the head of its response. Default 5 min.
    pub response: Span,
    /// How long a graceful stop waits for live connections. Default 30 s.
    pub stop: Span,
}

/// How much may be spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budgets {
    /// Connections at once: a client's, together with what it leads to, and each one that is pooled. At
    /// the limit the longest idle is closed for a newcomer, which waits where none is. Default 20,000,
    /// and never more than the descriptor limit allows.
    pub connections: u32,
    /// Bytes of one request or response head. Default 64 KiB.
    pub head: Bytes,
    /// Header fields in one head. Default 128.
    pub fields: u16,
    /// Pipes for `splice`, open at once; beyond them bytes are copied. Default 256.
    pub pipes: u32,
    /// Size of each pipe. Default 256 KiB.
    pub pipe_size: Bytes,
    /// User-space memory for bytes waiting to be written, all connections together. Default 64 MiB.
    pub memory: Bytes,
}

/// Name resolution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dns {
    /// Servers to ask; empty: those of `/etc/resolv.conf`.
    pub servers: Vec<SocketAddr>,
    /// Answers kept. Default 4096.
    pub cache: u32,
    /// Answers are kept at least this long. Default 0 s.
    pub min_ttl: Span,
    /// And at most this long. Default 1 h.
    pub max_ttl: Span,
    /// Negative answers are kept at most this long. Default 30 s.
    pub negative_ttl: Span,
    /// Whether `/etc/hosts` is read. Default true.
    pub hosts_file: bool,
    /// Which family happy eyeballs tries first (RFC 8305 §4). Default IPv6.
    pub prefer: Family,
    /// Between two connection attempts (RFC 8305 §5 and §8: 100 ms … 2 s, recommended 250 ms).
    pub attempt_delay: Span,
    /// How long an IPv4 answer waits for the IPv6 one (RFC 8305 §3). Default 50 ms.
    pub resolution_delay: Span,
}

/// An address family, or only one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv6 first.
    Ipv6,
    /// IPv4 first.
    Ipv4,
    /// IPv6 and nothing else.
    Ipv6Only,
    /// IPv4 and nothing else.
    Ipv4Only,
}

/// How bytes are moved between two legs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relay {
    /// Splice, copy, or by what the connection does.
    pub movement: Movement,
}

/// How bytes are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Movement {
    /// Copy at first, splice once a direction moves much at a time. The default.
    Auto,
    /// `splice` wherever bytes are not looked at.
    Splice,
    /// `read` and `write` only.
    Copy,
    /// Switch at random between the two, for tests: seeded.
    Random(u64),
}

/// Where the access log goes: one JSON object a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessLog {
    /// Nowhere. The default.
    Off,
    /// To standard error.
    Stderr,
    /// Appended to this file; reopened on SIGHUP.
    File(PathBuf),
}

impl Default for Leg {
    fn default() -> Self {
        Self {
            // a relay must not wait for bytes it cannot see coming
            socket: SocketOptions { no_delay: Some(true), ..SocketOptions::default() },
            connect_timeout: Span::from_secs(10),
            establish_timeout: None,
            initial_rto: InitialRto::Cached,
            second_syn: false,
            spread: true,
            rate: None,
            line: None,
            idle_timeout: Span::from_secs(3600),
            half_closed_timeout: Span::from_secs(120),
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            request_head: Span::from_secs(30),
            first_byte: Span::from_secs(30),
            keep_alive: Span::from_secs(75),
            resolve: Span::from_secs(5),
            handshake: Span::from_secs(30),
            response: Span::from_secs(300),
            stop: Span::from_secs(30),
        }
    }
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            connections: 20_000,
            head: Bytes::kib(64),
            fields: 128,
            pipes: 256,
            pipe_size: Bytes::kib(256),
            memory: Bytes::mib(64),
        }
    }
}

impl Default for Dns {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            cache: 4096,
            min_ttl: Span::ZERO,
            max_ttl: Span::from_secs(3600),
            negative_ttl: Span::from_secs(30),
            hosts_file: true,
            prefer: Family::Ipv6,
            attempt_delay: Span::from_millis(250),
            resolution_delay: Span::from_millis(50),
        }
    }
}

impl Default for Settings {
    /// What `ekiden serve` does with nothing configured, but for `name`, which is to be unique, and
    /// `control`, which depends on who runs it.
    fn default() -> Self {
        let legs = ["client", "direct"].map(|name| (name.to_owned(), Leg::default()));
        Self {
            listen: vec![SocketAddr::new(IpAddr::from([127, 0, 0, 1]), 3128)],
            closed: Vec::new(),
            name: "ekiden".to_owned(),
            control: None,
            legs: legs.into(),
            upstreams: BTreeMap::new(),
            routes: Vec::new(),
            access: Access::default(),
            accounts: Accounts::default(),
            timeouts: Timeouts::default(),
            budgets: Budgets::default(),
            dns: Dns::default(),
            relay: Relay { movement: Movement::Auto },
            buffers: Buffers::default(),
            pressure: Pressure::default(),
            pool: Pool::default(),
            cache: Cache::default(),
            tls: Tls::default(),
            tunnel: Tunnel::default(),
            udp: Udp::default(),
            households: Households::default(),
            access_log: AccessLog::Off,
        }
    }
}
