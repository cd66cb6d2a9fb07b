//! The accelerator's settings as plain data; `ekiden` makes them from arguments and a configuration
//! file. A reload makes new ones; running connections keep the old.

mod accounts;
mod dns;
mod forward;
mod gateway;
mod pac;
mod resources;
mod sharing;
#[cfg(test)]
mod tests;
mod tls;
mod tunnel;
mod udp;
mod wireguard;

pub use accounts::{Accounts, KnownAccount};
pub use dns::{Dns, DnsServer, Family};
pub use ekiden_model::control::copy_mode::CopyMode;
pub use forward::{ForwardProtocol, PortForward, SendProxy};
pub use gateway::{Gateway, GoTo, Quic};
pub use pac::Pac;
pub use resources::{Buffers, Cache, Pool, Pressure};
pub use sharing::{Account, Allowance, ExceededAction, Limits, Sharing, Unclaimed};
pub use tls::{Acme, Tls, UpstreamTls};
pub use tunnel::{TransportMode, Tunnel, TunnelAnswer};
pub use udp::Udp;
pub use wireguard::Wireguard;

use ekiden_linux::sockets::options::SocketOptions;
use ekiden_model::units::{Bytes, Rate, Span};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

/// All settings of `ekiden serve`.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Listening addresses of the one port for all protocols. Default `127.0.0.1:3128`.
    pub listen: Vec<SocketAddr>,
    /// Other listening addresses of this process, for its operator: no client is relayed there.
    pub closed: Vec<SocketAddr>,
    /// The pseudonym in `Via` (RFC 9110 §7.6.3), a token unique per relay, to detect loops; default
    /// `ekiden-` and 8 random hexadecimal digits.
    pub name: String,
    /// The control socket for `status` and `top`; `None`: no socket.
    pub control: Option<PathBuf>,
    /// Leg profiles by name; `client` (accepted) and `direct` (to destinations) always exist.
    pub legs: BTreeMap<String, Leg>,
    /// Upstream proxies by name.
    pub upstreams: BTreeMap<String, Upstream>,
    /// The first match decides; without a match: direct, over leg `direct`.
    pub routes: Vec<Route>,
    /// Who may come in and where they may go.
    pub access: Access,
    /// Accounts in a database.
    pub accounts: Accounts,
    /// How long each phase may take.
    pub timeouts: Timeouts,
    /// Limits on memory and descriptors.
    pub budgets: Budgets,
    /// Name resolution.
    pub dns: Dns,
    /// How bytes move between two legs.
    pub relay: Relay,
    /// Socket buffers.
    pub buffers: Buffers,
    /// Overload: more clients than there is room for.
    pub pressure: Pressure,
    /// Idle connections kept for the next request.
    pub pool: Pool,
    /// The HTTP cache.
    pub cache: Cache,
    /// TLS for clients.
    pub tls: Tls,
    /// Certificates that are ordered; [`Tls`] then names the file that they are written to.
    pub acme: Acme,
    /// Tunnels to peers.
    pub tunnel: Tunnel,
    /// UDP ASSOCIATE of SOCKS5, and UDP over HTTP.
    pub udp: Udp,
    /// Ports that lead to one destination each.
    pub forwards: Vec<Arc<PortForward>>,
    /// Connections diverted to this relay.
    pub gateway: Gateway,
    /// Clients that come by WireGuard. Its device is one of the gateway's, too.
    pub wireguard: Wireguard,
    /// The script for browsers.
    pub pac: Pac,
    /// Accounts in the configuration, and the relay's own rates.
    pub sharing: Sharing,
    /// The access log.
    pub access_log: AccessLog,
}

/// A leg's profile: socket options and time-outs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leg {
    /// Requested for each socket; the status shows the kernel's answers.
    pub socket: SocketOptions,
    /// For the TCP connection, all addresses together. Default 10 s.
    pub connect_timeout: Span,
    /// For the TCP handshake with each address. Default: only `connect_timeout` applies.
    pub establish_timeout: Option<Span>,
    /// How long to wait for the first SYN's answer before another SYN. Default [`InitialRto::Cached`].
    pub initial_rto: InitialRto,
    /// Whether to send a second SYN where handshakes are lost. Default no.
    pub second_syn: bool,
    /// Whether to pace CUBIC and Reno over the round trip on long paths, from 16 KiB of a connection on. Default yes.
    pub spread: bool,
    /// The rate of all connections together, with congestion control `hold`, bits per second of IP
    /// packets. Default none; `hold` must not be requested then.
    pub rate: Option<Rate>,
    /// The rate of the link below, where the operator owns it. Default: the link is shared.
    pub line: Option<Rate>,
    /// The connection closes after this long without progress; the shorter of two legs' applies.
    /// Default 1 h.
    pub idle_timeout: Span,
    /// The same when one direction has ended and the other makes no progress. Default 2 min.
    pub half_closed_timeout: Span,
}

/// How long to wait for the answer to a first SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitialRto {
    /// By the destination's measured round-trip time, if known: 200 ms to 1 s.
    Cached,
    /// 1 s, the kernel's own value.
    Kernel,
}

/// An upstream proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Its protocol.
    pub protocol: UpstreamProtocol,
    /// Its host name or address; for a tunnel, the name of the peer.
    pub host: String,
    /// Its port; 0 for a tunnel.
    pub port: u16,
    /// User name and password, if it needs them.
    pub credentials: Option<Credentials>,
    /// Name of the leg profile for connections to it.
    pub leg: String,
    /// How its certificate is checked.
    pub tls: UpstreamTls,
    /// Whether the greeting of SOCKS5 names the relays that a request has passed, among the methods for private use
    /// (RFC 1928 §3), so that a ring is noticed at its first turn.
    pub private_methods: bool,
}

impl Upstream {
    /// One that needs no log-in, on the leg `direct`, and all else as where the configuration says nothing.
    pub fn new(protocol: UpstreamProtocol, host: impl Into<String>, port: u16) -> Self {
        Self {
            protocol,
            host: host.into(),
            port,
            credentials: None,
            leg: "direct".to_owned(),
            tls: UpstreamTls::default(),
            private_methods: true,
        }
    }
}

/// An upstream proxy's protocol.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamProtocol {
    /// HTTP/1.1 with CONNECT; plain `http://` requests go to it in absolute form.
    Http,
    /// The same within TLS.
    Https,
    /// SOCKS5 (RFC 1928), with RFC 1929 user/password.
    Socks5,
    /// A tunnel to another ekiden.
    Tunnel,
}

impl UpstreamProtocol {
    /// Whether it is an HTTP proxy, with or without TLS.
    pub const fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }
}

/// A user name and password. `Debug` shows only the user name.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user name, without a colon.
    pub user: String,
    /// The password.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// How to reach destinations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Matches when any of these does; empty matches everything.
    pub to: Vec<Pattern>,
    /// Chains of upstream names, nearest first, tried in order until one answers. An empty chain is direct.
    pub through: Vec<Vec<String>>,
    /// Leg profile of direct connections on this route.
    pub leg: String,
    /// Leg profile for the client's connection once the route is known.
    pub client_leg: String,
}

/// Matches destinations: `example.org` (that name), `*.example.org` (names below it, and itself),
/// `10.0.0.0/8`, `2001:db8::/32`, `192.0.2.1`, each with `:port` or `:from-to`, or a port alone as
/// `:22`. An IPv6 prefix with a port needs brackets: `[2001:db8::/32]:443`.
///
/// CIDR patterns match addresses. Routes do not resolve names to match; access rules do, and check
/// every address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// The host part.
    pub host: HostPattern,
    /// Ports, inclusive; `None` is any.
    pub ports: Option<(u16, u16)>,
}

impl Pattern {
    /// Whether these match every destination; none at all do, too.
    pub fn match_all(patterns: &[Self]) -> bool {
        let all_ports =
            |ports: Option<(u16, u16)>| ports.is_none_or(|(from, to)| from <= 1 && to == u16::MAX);
        let all = |one: &Self| one.host == HostPattern::Any && all_ports(one.ports);
        patterns.is_empty() || patterns.iter().any(all)
    }
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
    /// The first match decides. Without a match, clients on loopback are allowed and all others refused.
    pub rules: Vec<Rule>,
    /// Special prefixes (loopback, private, link-local) and addresses of this machine that admitted clients may reach
    /// (`--allow-destination`).
    pub allow_destinations: Vec<IpNet>,
    /// Proxies whose connections begin with a header of the PROXY protocol; the client in it counts.
    pub proxy_protocol_from: Vec<IpNet>,
}

/// One access rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// Matches clients in any of these. Empty together with `peers`: all clients.
    pub from: Vec<IpNet>,
    /// Matches flows of these peers; `*` matches all peers.
    pub peers: Vec<String>,
    /// Matches destinations; empty matches all.
    pub to: Vec<Pattern>,
    /// Whether a match is allowed.
    pub allow: bool,
    /// Special prefixes and addresses of this machine that clients of this rule may reach.
    pub allow_destinations: Vec<IpNet>,
}

/// How long each phase may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From a connection's first byte, or a kept-alive request's, to the end of its head. Default
    /// 30 s.
    pub request_head: Span,
    /// Between accept and the first byte. Default 30 s.
    pub first_byte: Span,
    /// Between requests of a kept-alive client connection. Default 75 s.
    pub keep_alive: Span,
    /// Resolution of a name. Default 5 s.
    pub resolve: Span,
    /// An upstream proxy's answer to CONNECT or the SOCKS request, each hop. Default 30 s.
    pub handshake: Span,
    /// From the end of a request to the head of its response. Default 5 min.
    pub response: Span,
    /// How long a graceful stop waits for live connections. Default 30 s.
    pub stop: Span,
}

/// Limits on memory and descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budgets {
    /// Connections at once; a client's with its upstream leg is one, and each pooled one too. At
    /// the limit the longest idle one is closed for a new client, or the client waits. Default
    /// 20,000; never above the descriptor limit.
    pub connections: u32,
    /// Bytes of one request or response head. Default 64 KiB.
    pub head: Bytes,
    /// Header fields in one head. Default 128.
    pub fields: u16,
    /// Pipes for `splice` at once; beyond, bytes are copied. Default 256; fewer where descriptors are few.
    pub pipes: u32,
    /// Size of each pipe. Default 256 KiB.
    pub pipe_size: Bytes,
    /// User-space memory for unsent bytes of all connections. Default 64 MiB.
    pub memory: Bytes,
    /// User-space memory for heads, TLS and HTTP/2 of all connections. Default 192 MiB: with all
    /// other budgets used up, a relay of 512 MiB is not killed.
    pub sessions: Bytes,
    /// Names of clients' destinations that are looked up at once, beside [`Self::own_lookups`]; others wait. Default 256;
    /// fewer where descriptors are few.
    pub lookups: u32,
    /// Refusals on their way at once; beyond, connections are closed without one. Default 256; fewer
    /// where descriptors are few.
    pub rejections: u32,
}

impl Budgets {
    /// Names that are looked up at once for this relay itself, such as those of its upstreams: a quarter of
    /// clients', and 16 at least.
    pub fn own_lookups(&self) -> u32 {
        (self.lookups / 4).max(16)
    }
}

/// How bytes move between two legs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relay {
    /// Splice, copy, or automatic.
    pub copy_mode: CopyMode,
}

/// Where the access log goes: one JSON object per line.
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
            // a relay must not delay small writes
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
            sessions: Bytes::mib(192),
            lookups: 256,
            rejections: 256,
        }
    }
}

impl Default for Settings {
    /// The settings of `ekiden serve` without a configuration, but for the unique `name` and the
    /// user's `control`.
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
            relay: Relay { copy_mode: CopyMode::Auto },
            buffers: Buffers::default(),
            pressure: Pressure::default(),
            pool: Pool::default(),
            cache: Cache::default(),
            tls: Tls::default(),
            acme: Acme::default(),
            tunnel: Tunnel::default(),
            udp: Udp::default(),
            forwards: Vec::new(),
            gateway: Gateway::default(),
            wireguard: Wireguard::default(),
            pac: Pac::default(),
            sharing: Sharing::default(),
            access_log: AccessLog::Off,
        }
    }
}
