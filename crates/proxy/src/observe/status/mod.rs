//! What `ekiden status --json` says: plain structs, one document.
//!
//! Sizes are in bytes, times in microseconds or seconds as the field's name says, rates in bits per
//! second. Fields are only ever added.

mod accounts;
mod acme;
mod alerts;
mod certificate;
mod connections;
mod dns;
mod explanation;
mod gateway;
mod resources;
mod traces;
mod wireguard;

pub use accounts::{AccountStatus, SharingStatus};
pub use acme::AcmeStatus;
pub use alerts::{AlertReceiverStatus, AlertStatus, AlertsStatus};
pub use certificate::CertificateStatus;
pub use connections::{
    ConnectionLine, ConnectionOrder, ConnectionPage, ConnectionQuery, ConnectionStatus, FlowStatus,
    LegStatus, OptionStatus,
};
pub use dns::{DnsPortStatus, DnsServerStatus, DnsStatus};
pub use explanation::{AccountExplanation, Explanation, LegExplanation};
pub use gateway::{GatewayDevice, GatewayStatus};
pub use resources::{
    BuffersStatus, CacheStatus, EvictedStatus, GrantStatus, IdleStatus, LevelStatus, MemoryStatus,
    PressureStatus, UdpStatus,
};
pub use traces::TracesStatus;
pub use wireguard::{WireguardPeerStatus, WireguardStatus};

use crate::settings::UpstreamProtocol;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// The status without connections, and with the busiest accounts alone.
#[derive(Debug, Clone)]
pub struct Summary {
    /// The status. Of buffers it has refusals only.
    pub status: Status,
    /// Accounts in all.
    pub accounts: usize,
}

/// One look at a running relay.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Version of `ekiden`.
    pub version: String,
    /// Its name in `Via`.
    pub name: String,
    /// Process id.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_seconds: f64,
    /// Whether it is stopping: no new connections, live ones finish.
    pub stopping: bool,
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// How often the configuration was reloaded.
    pub reloads: u64,
    /// How often a configuration was refused, and the one before stayed in effect.
    #[serde(default)]
    pub reloads_refused: u64,
    /// The last reload, where it was refused: the configuration before it is in effect. Absent where it was not.
    #[serde(default)]
    pub refused_reload: Option<RefusedReload>,
    /// Sums since it started.
    pub totals: Totals,
    /// What is spent of what may be.
    pub budgets: Vec<BudgetStatus>,
    /// Memory of the process, up to ten seconds ago; absent where the system does not tell it.
    #[serde(default)]
    pub memory: Option<MemoryStatus>,
    /// Socket buffers.
    #[serde(default)]
    pub buffers: BuffersStatus,
    /// Idle connections.
    #[serde(default)]
    pub idle: IdleStatus,
    /// What may run out, and what was done about it.
    #[serde(default)]
    pub pressure: PressureStatus,
    /// The HTTP cache; absent where there is none.
    #[serde(default)]
    pub cache: Option<CacheStatus>,
    /// Accounts and their limits; absent where there are none.
    #[serde(default)]
    pub sharing: Option<SharingStatus>,
    /// Accounts; absent where there are no accounts.
    #[serde(default)]
    pub accounts: Option<AccountsStatus>,
    /// The certificate that this relay orders; absent where it orders none.
    #[serde(default)]
    pub acme: Option<AcmeStatus>,
    /// The certificate that clients see who connect by TLS, from files or ordered; empty where there is none.
    #[serde(default)]
    pub certificates: Vec<CertificateStatus>,
    /// Why the file of operators cannot be used; those known before stay. Absent while it can.
    #[serde(default)]
    pub operators: Option<String>,
    /// What needs attention, and who is told of it; absent while nobody looks.
    #[serde(default)]
    pub alerts: Option<AlertsStatus>,
    /// Traces of connections; absent while they are off.
    #[serde(default)]
    pub traces: Option<TracesStatus>,
    /// Datagrams of SOCKS5 clients.
    #[serde(default)]
    pub udp: UdpStatus,
    /// Connections diverted to this relay; absent where none are.
    #[serde(default)]
    pub gateway: Option<GatewayStatus>,
    /// Clients that come by WireGuard; absent where none may.
    #[serde(default)]
    pub wireguard: Option<WireguardStatus>,
    /// Clients' questions for names; absent where none are answered.
    #[serde(default)]
    pub dns: Option<DnsStatus>,
    /// Upstream proxies and whether they answer.
    pub upstreams: Vec<UpstreamStatus>,
    /// Tunnels to other relays.
    #[serde(default)]
    pub tunnels: Vec<TunnelStatus>,
    /// Leg profiles by name, and what was learnt on them.
    #[serde(default)]
    pub legs: Vec<ProfileStatus>,
    /// Every live connection, oldest first.
    pub connections: Vec<ConnectionStatus>,
}

/// A reload that was refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedReload {
    /// For how long it has been so, seconds.
    pub for_seconds: f64,
    /// Why: the errors of the configuration, or what could not be had.
    pub errors: Vec<String>,
}

/// Accounts, and the database they are kept in.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AccountsStatus {
    /// Accounts that are known.
    pub known: u64,
    /// Accounts in the database that cannot be read; they are not served.
    #[serde(default)]
    pub unreadable: u64,
    /// The first of them: its name, the column, and why.
    #[serde(default)]
    pub unreadable_first: Option<String>,
    /// `sqlite` or `postgresql`.
    pub database: String,
    /// Why the database is not there; accounts stay as they were known then.
    pub away: Option<String>,
    /// Seconds since the database was heard of last; absent when it was not since the start.
    pub heard_seconds_ago: Option<f64>,
    /// Sums of usage that the database has perhaps not heard of yet.
    pub unsettled: u64,
    /// Why usage cannot be written to disk; it is kept in memory meanwhile.
    #[serde(default)]
    pub unwritten: Option<String>,
    /// The relays that use the database, this one too.
    pub relays: Vec<FleetStatus>,
    /// Attempts to log in since the start.
    #[serde(default)]
    pub log_ins: LogInsStatus,
}

/// Attempts to log in by name and password, by what became of them. A browser makes one with each connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogInsStatus {
    /// Let in.
    pub known: u64,
    /// Name or password was wrong.
    pub wrong: u64,
    /// Right, and disabled, ended or not at this hour.
    pub barred: u64,
    /// Not looked at: too many wrong ones came before.
    pub waited: u64,
    /// Not looked at: too many at once.
    pub busy: u64,
}

/// A relay that uses the same accounts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FleetStatus {
    /// Its name.
    pub name: String,
    /// Which ekiden it is.
    pub version: String,
    /// Seconds since it was heard of last: five to ten of one that is well.
    pub seen_seconds_ago: f64,
}

/// Sums since the start.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// Client connections accepted.
    pub accepted: u64,
    /// Requests refused by a rule, a budget or as malformed.
    pub refused: u64,
    /// Requests whose destination could not be reached.
    pub failed: u64,
    /// Requests (HTTP) and tunnels (CONNECT, SOCKS) begun.
    pub requests: u64,
    /// Payload bytes from clients to destinations.
    pub bytes_up: u64,
    /// Payload bytes from destinations to clients.
    pub bytes_down: u64,
}

/// A budget.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct BudgetStatus {
    /// `connections`, `pipes`, `memory` (bytes), `sessions` (bytes).
    pub name: String,
    /// In use now.
    pub used: u64,
    /// The most that was ever in use.
    pub peak: u64,
    /// The limit.
    pub limit: u64,
}

/// An upstream proxy.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct UpstreamStatus {
    /// Its name in the configuration.
    pub name: String,
    /// What it speaks.
    pub protocol: UpstreamProtocol,
    /// `host:port`.
    pub address: String,
    /// Whether it is used now; after failures it rests, for longer each time.
    pub available: bool,
    /// Failures in a row.
    pub failures: u32,
    /// Seconds until it is tried again, when it rests.
    pub retry_in_seconds: Option<f64>,
    /// Whether requests fail at once: its tunnel has been down for longer than a request waits for one.
    #[serde(default)]
    pub fails_at_once: bool,
    /// The last failure, in words.
    pub last_error: Option<String>,
}

/// What measuring a tunnel showed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// The relay at its other end.
    pub peer: String,
    /// Bits per second that a flow received through it, for some seconds.
    pub received: Option<u64>,
    /// Bits per second that a flow sent through it, as the other relay counted.
    pub sent: Option<u64>,
    /// The tunnel afterwards.
    pub tunnel: Option<TunnelStatus>,
    /// Why not all was measured.
    pub error: Option<String>,
}

/// Another relay that is known, and the tunnel to it. What is sent is meant where nothing else is said.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TunnelStatus {
    /// What the relay is called here.
    pub peer: String,
    /// Whether there is a tunnel.
    pub up: bool,
    /// Whether it invited us, and not we it.
    pub joined: bool,
    /// Where it is.
    pub address: Option<String>,
    /// Whether the tunnel goes over TLS on TCP, since UDP does not get through or the configuration says so.
    pub over_tcp: bool,
    /// Why there is no tunnel, or why the one before was lost.
    pub last_error: Option<String>,
    /// Seconds without a tunnel: since the one before was lost, or since the relay is known; absent while there is one.
    #[serde(default)]
    pub down_seconds: Option<f64>,
    /// Seconds until the next attempt; absent while one runs, and where the other relay connects.
    #[serde(default)]
    pub retry_in_seconds: Option<f64>,
    /// What may be sent, as agreed, bits per second on the IP wire.
    pub allotted: u64,
    /// What this relay wants to receive, bits per second.
    pub receives: u64,
    /// What is held now, bits per second.
    pub rate: u64,
    /// What the line is believed to give, bits per second, where that is less than what is allotted.
    pub line: Option<u64>,
    /// Smoothed round-trip time, microseconds.
    pub rtt_us: f64,
    /// Waiting on the way beyond the path's own delay, by the last look, microseconds.
    pub queue_us: f64,
    /// Losses held to be the path's own, 0 to 1.
    pub path_loss: f64,
    /// Whether others' packets stand in the same queue, with which turns are taken.
    pub contended: bool,
    /// What holds the rate down: the circuit breaker, or anything for more than 10 s.
    pub restrained: Option<String>,
    /// Datagrams sent.
    pub packets: u64,
    /// Of those, taken for lost.
    pub packets_lost: u64,
    /// Bytes sent, with all headers from IP on.
    pub bytes_on_the_wire: u64,
    /// Bytes under way.
    pub in_flight: u64,
    /// Bytes of flows that wait here for their turn.
    pub waiting: u64,
    /// Bytes received and not taken by their connections yet.
    pub held: u64,
    /// Payload bytes sent, each once.
    pub bytes_sent: u64,
    /// Payload bytes received, each once.
    pub bytes_received: u64,
    /// Copies of interactive bursts sent.
    pub copies: u64,
    /// Bytes of those.
    pub bytes_copied: u64,
    /// Payload bytes received that had come before.
    pub bytes_twice: u64,
    /// Repair packets sent, of which a peer decodes what it lost.
    pub repairs: u64,
    /// Bytes of those.
    pub bytes_repairs: u64,
    /// Payload bytes decoded from the peer's repair packets: they came without a retransmission.
    pub bytes_repaired: u64,
    /// Flows now.
    pub flows: u64,
    /// Of those, the ones whose connection here has ended, with bytes that the other relay has not taken.
    #[serde(default)]
    pub orphans: u64,
    /// How many of these were reset because the other relay took too little for too long.
    #[serde(default)]
    pub orphans_reset: u64,
    /// The largest IP packet that both lanes send, bytes: the smaller one of the connected lanes' path MTUs, which bounds
    /// coded packets.
    pub mtu: u64,
    /// The lane, `interactive` or `bulk`, whose packets go without their DSCP because none with it arrived; absent where both
    /// have theirs.
    #[serde(default)]
    pub unmarked: Option<String>,
    /// How late a datagram left that had a time to leave at: half of them no later, microseconds.
    pub pacing_error_p50_us: Option<f64>,
    /// And 99 of 100.
    pub pacing_error_p99_us: Option<f64>,
}

/// A leg profile: what all connections over it have taught. Kept over reloads as long as the leg goes the
/// same way.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ProfileStatus {
    /// Its name in the configuration.
    pub name: String,
    /// Connections made over it.
    pub opening: OpeningStatus,
    /// How large packets pass.
    pub path: PathStatus,
    /// The rate that its connections hold together; absent where none is held.
    #[serde(default)]
    pub held: Option<HeldStatus>,
}

/// A rate that the connections of a leg hold together in the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldStatus {
    /// The kernel's name for the congestion control that holds it.
    pub control: String,
    /// What was agreed, bits per second of IP packets.
    pub allotted: u64,
    /// What all together may send now, bits per second.
    pub rate: u64,
    /// Connections.
    pub members: u64,
    /// Of those, the ones that have more to send than they may.
    pub busy: u64,
    /// What the others send, bits per second.
    pub light: u64,
    /// Bytes delivered, with their headers.
    pub delivered: u64,
    /// The path's own losses as far as known, parts of a million.
    pub losses: u32,
    /// How often less was sent than agreed, since it did not arrive or waited too long.
    pub reactions: u32,
    /// How often that was taken back.
    pub undone: u32,
}

/// How large packets pass on a leg. A connection is looked at when it stalls, as a tunnel when it ends after a second
/// or 64 KiB, and when a status is asked for.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct PathStatus {
    /// Path MTU met most often, bytes; absent before any connection was looked at.
    pub usual_mtu: Option<u32>,
    /// The smallest met or found, bytes.
    pub smallest_mtu: Option<u32>,
    /// Destinations that full-sized packets did not reach in the last ten minutes, oldest first, at most 64.
    pub troubled: Vec<TroubleStatus>,
}

/// A destination that full-sized packets do not reach.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TroubleStatus {
    /// Its address.
    pub address: IpAddr,
    /// `smaller` (a router said so, or the kernel's probing found it) or `black hole` (large segments seem
    /// to vanish, a suspicion).
    pub state: String,
    /// What passes, bytes, where it is known.
    pub mtu: Option<u32>,
    /// Seconds since it was seen last.
    pub seconds_ago: f64,
}

/// How connections were opened on a leg. Accepted ones are not counted.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
pub struct OpeningStatus {
    /// Addresses connected to, answered or not.
    pub openings: u64,
    /// Of those, connections that came to stand.
    pub established: u64,
    /// Of those, the ones whose first SYN, or its answer, was lost.
    pub lost_syns: u64,
    /// SYNs sent after the destination's own time-out and before the kernel's (`initial_rto`).
    pub repeated_syns: u64,
    /// Extra SYNs sent in case the first is lost (`second_syn`).
    pub second_syns: u64,
    /// Share of the handshakes answered in the last five to ten minutes whose first SYN, or its answer, was
    /// lost, 0 to 1; `null` where there were none.
    pub recent_loss: Option<f64>,
    /// Destinations (IPv4 /24, IPv6 /48) whose round-trip time is known.
    pub known_destinations: u64,
}
