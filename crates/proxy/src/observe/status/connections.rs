//! A connection and its legs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// A live connection.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionStatus {
    /// Number of the connection since the start.
    pub id: u64,
    /// `http`, `connect`, `socks5`, `socks4a`, `tunnel` (out of another relay's tunnel), `tls` (nothing is within it
    /// yet: connections within TLS are shown instead of it); `new` before anything was read.
    pub protocol: String,
    /// `reading`, `connecting`, `relaying`, `half-closed`, `idle` (kept alive between requests), `closing`.
    pub state: String,
    /// `interactive` or `bulk`, by bytes and pauses so far; `unknown` at first.
    pub class: String,
    /// Where the client is.
    pub client: SocketAddr,
    /// The account it belongs to; absent when no account claims it and no limit applies to it.
    #[serde(default)]
    pub account: Option<String>,
    /// For what it waits by its account's limits, in words; absent when it does not.
    #[serde(default)]
    pub waits: Option<String>,
    /// `host:port` as the client asked.
    pub destination: Option<String>,
    /// Names of the upstream proxies it goes through; empty when direct.
    pub through: Vec<String>,
    /// Seconds since it was accepted.
    pub age_seconds: f64,
    /// Seconds since bytes last moved.
    pub idle_seconds: f64,
    /// Requests begun on it.
    pub requests: u64,
    /// Payload bytes from the client.
    pub bytes_up: u64,
    /// Payload bytes to the client.
    pub bytes_down: u64,
    /// Bytes moved by `splice`, both directions.
    pub bytes_spliced: u64,
    /// Payload from the client over the last two seconds, bits per second.
    #[serde(default)]
    pub rate_up: u64,
    /// Payload to the client over the last two seconds, bits per second.
    #[serde(default)]
    pub rate_down: u64,
    /// The client leg first, then the upstream leg if there is one.
    pub legs: Vec<LegStatus>,
}

impl ConnectionStatus {
    /// The peer out of whose tunnel it came, if it did.
    pub fn peer(&self) -> Option<&str> {
        let leg = self.legs.iter().find(|leg| leg.side == "client")?;
        leg.tunnel.as_deref()
    }
}

/// Which connections are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConnectionQuery {
    /// Letters of the account, the destination or the client, in any case; empty: all.
    pub find: String,
    /// Which come first.
    pub order: ConnectionOrder,
    /// So many of them are passed over.
    pub offset: usize,
    /// The most connections in the answer, at most 200.
    pub count: usize,
}

/// Which connections come first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionOrder {
    /// The quickest over the last two seconds.
    #[default]
    Rate,
    /// Those that moved most.
    Bytes,
    /// The oldest.
    Age,
    /// The newest.
    New,
}

/// A page of connections.
#[derive(Debug, Clone, Serialize)]
pub struct ConnectionPage {
    /// Live connections, but those that others within them stand for.
    pub total: usize,
    /// Of those, the ones that were asked for.
    pub found: usize,
    /// Those on the page.
    pub lines: Vec<ConnectionLine>,
}

/// A connection on a page: what a line shows of it.
#[derive(Debug, Clone, Serialize)]
pub struct ConnectionLine {
    /// Number of the connection since the start.
    pub id: u64,
    /// `host:port` as the client asked.
    pub destination: Option<String>,
    /// Where the client is.
    pub client: SocketAddr,
    /// The account it belongs to.
    pub account: Option<String>,
    /// `interactive` or `bulk`; `unknown` at first.
    pub class: String,
    /// Payload to the client, bits per second.
    pub rate_down: u64,
    /// Payload from the client, bits per second.
    pub rate_up: u64,
    /// Payload bytes to the client.
    pub bytes_down: u64,
    /// Payload bytes from the client.
    pub bytes_up: u64,
    /// Seconds since it was accepted.
    pub age_seconds: f64,
    /// What holds its bytes back, as `ekiden explain` says it.
    pub slowest: String,
}

/// One leg of a connection: the kernel's figures for its socket. Within TLS the client's socket carries other
/// connections too, and an upstream's figures are those of the TLS connection. With `tunnel` the round trip, losses, rates and packet size are the tunnel's, which all its flows share.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LegStatus {
    /// `client` or `upstream`.
    pub side: String,
    /// Name of its profile.
    pub profile: String,
    /// The peer whose tunnel carries the leg; absent where the leg is a connection of its own.
    #[serde(default)]
    pub tunnel: Option<String>,
    /// This connection's part of that tunnel; absent without one, and once it has ended.
    #[serde(default)]
    pub flow: Option<FlowStatus>,
    /// Whether bytes wait because the other end's receive window is full: it reads more slowly than they come.
    #[serde(default)]
    pub window_full: bool,
    /// Version and cipher of the TLS to an upstream proxy, and whether a session was resumed; absent without.
    #[serde(default)]
    pub tls: Option<String>,
    /// Our address on it.
    pub local: Option<SocketAddr>,
    /// The other end.
    pub peer: Option<SocketAddr>,
    /// Kernel's state, as `ESTABLISHED`.
    pub state: String,
    /// Congestion control in use.
    pub congestion: String,
    /// Smoothed round-trip time, microseconds.
    pub rtt_us: u32,
    /// Its mean deviation, microseconds.
    pub rtt_var_us: u32,
    /// Smallest seen, microseconds.
    pub min_rtt_us: u32,
    /// Share of what was sent that was lost, 0 to 1; absent where nothing was sent, or the kernel does not count it.
    #[serde(default)]
    pub loss: Option<f64>,
    /// Segments retransmitted.
    pub retransmits: u32,
    /// Bytes retransmitted.
    pub bytes_retransmitted: u64,
    /// Delivery rate, bits per second.
    pub delivery_rate: u64,
    /// Pacing rate, bits per second; absent when not paced.
    pub pacing_rate: Option<u64>,
    /// Congestion window, segments.
    pub cwnd: u32,
    /// Largest segment sent, bytes.
    pub mss: u32,
    /// Largest packet of the path, bytes, as the kernel knows it.
    #[serde(default)]
    pub path_mtu: u32,
    /// Largest segment announced to the peer, bytes.
    #[serde(default)]
    pub announced_mss: u32,
    /// Largest segment received, bytes, as the kernel estimates.
    #[serde(default)]
    pub received_mss: u32,
    /// `fine`, `smaller` or `black hole`: whether full-sized packets pass.
    #[serde(default)]
    pub path: String,
    /// Send buffer, bytes, as the kernel counts.
    pub send_buffer: u32,
    /// Receive buffer, bytes, as the kernel counts.
    pub receive_buffer: u32,
    /// Written and not yet sent, bytes: with `tunnel` those of this connection.
    pub unsent: u32,
    /// Sent and not yet acknowledged, segments.
    pub unacked: u32,
    /// Options asked of this socket, and what the kernel said.
    pub options: Vec<OptionStatus>,
}

/// A connection's part of a tunnel, as it is seen at this end.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct FlowStatus {
    /// Whether the other relay has reached the destination, as far as is known here.
    pub answered: bool,
    /// Bytes that wait here to be sent, in all buffers.
    pub waiting: u64,
    /// Whether they wait because the other relay takes no more of this connection until its own client reads.
    pub full: bool,
    /// Whether they wait because the other relay has no memory for more of any connection.
    pub all_full: bool,
    /// Whether no more is taken of it here, because its account has its part of the memory for bytes that wait for the other relay.
    pub short: bool,
    /// Bytes received and not taken here yet.
    pub held: u64,
}

/// What became of one option asked of a socket.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct OptionStatus {
    /// The configuration's key, as `send_buffer`.
    pub option: String,
    /// As asked.
    pub asked: String,
    /// As granted, when it was.
    pub granted: Option<String>,
    /// Why not, when it was not, or not wholly.
    pub refused: Option<String>,
}
