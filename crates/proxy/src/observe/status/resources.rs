//! What is said of buffers, idle connections and pressure, and of one connection. Sizes of buffers are in
//! bytes as the kernel counts them: `rb` and `tb` of `ss -tm`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Socket buffers.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct BuffersStatus {
    /// `fixed`, `equation`, `evict` or `shrink`.
    pub scheme: String,
    /// Who decides on sizes now: `kernel`, `shared out` (of the budget, by need), `fixed`.
    pub mode: String,
    /// What all buffers together may have; absent without a budget.
    pub budget: Option<u64>,
    /// Given out explicitly.
    pub granted: u64,
    /// What all could make use of, as of the last tick.
    pub demand: u64,
    /// Of that, what the budget does not hold.
    pub shortage: u64,
    /// What stands in the buffers.
    pub queued: u64,
    /// Buffers that are shared out.
    pub shared: u64,
    /// Of those, the ones with an explicit size.
    pub explicit: u64,
    /// Of those, the ones made wider than the kernel would have.
    pub widened: u64,
    /// Sizes that the kernel did not give in full.
    pub refused: u64,
    /// The last of them, in words.
    pub refusal: Option<String>,
}

/// Idle connections.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct IdleStatus {
    /// Clients between two requests.
    pub clients: u64,
    /// Silent tunnels that may be closed to make room.
    pub tunnels: u64,
    /// Connections to origins and proxies, kept for the next request.
    pub pooled: u64,
    /// How long the longest idle one is idle, seconds.
    pub oldest_seconds: Option<f64>,
    /// Pooled connections that served another request.
    pub reused: u64,
    /// Pooled connections whose time was over, or that the other side closed.
    pub expired: u64,
}

/// What may run out, and what was done about it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct PressureStatus {
    /// How each resource stands.
    pub levels: Vec<LevelStatus>,
    /// Idle connections closed to make room, by what was low.
    pub evicted: Vec<EvictedStatus>,
    /// Idle connections that spoke in the moment they were to be closed, and so were not.
    pub spoke: u64,
    /// Newcomers that wait now.
    pub waiting: u64,
    /// Newcomers that had to wait.
    pub waited: u64,
    /// Newcomers that were refused, after waiting or because too many waited.
    pub refused: u64,
    /// Of those, the ones refused in a moment in which an idle connection was held.
    pub refused_beside_idle: u64,
    /// Connections without a request that were closed for a client of an address that holds fewer.
    #[serde(default)]
    pub silent_evicted: u64,
    /// Connections with an unfinished head or handshake that were closed for want of memory.
    #[serde(default)]
    pub unfinished_evicted: u64,
    /// Connections that stood still, closed for want of the kernel's socket memory, of which their address or account held
    /// too much.
    #[serde(default)]
    pub stalled_evicted: u64,
    /// Heads, TLS sessions and HTTP/2 connections that were refused for want of memory.
    #[serde(default)]
    pub memory_refused: u64,
    /// Heads, TLS sessions and HTTP/2 connections that wait until others have given memory back.
    #[serde(default)]
    pub memory_waiting: u64,
    /// TLS handshakes of clients that wait for a processor.
    #[serde(default)]
    pub handshakes_waiting: u64,
    /// Log-ins whose password was not hashed, and that are answered a second later.
    #[serde(default)]
    pub log_ins_held_back: u64,
    /// Lookups of destinations' names that wait for a place.
    #[serde(default)]
    pub names_waiting: u64,
    /// Requests that were refused because their address had as many in service, or as much memory, as is left to it
    /// beside others; and flows of peers, for the same reason.
    #[serde(default)]
    pub share_refused: u64,
    /// Connections that have not logged in, of addresses from which no account has.
    #[serde(default)]
    pub strangers: u64,
    /// Connections that have logged in.
    #[serde(default)]
    pub logged_in: u64,
    /// The most connections without a log-in of one address, or flows of one peer.
    #[serde(default)]
    pub largest_source: u64,
    /// Whose they are: an address, a network, or `peer` and its name.
    #[serde(default)]
    pub largest_source_name: Option<String>,
}

/// How one resource stands.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LevelStatus {
    /// `descriptors`, `socket memory` (pages), `memory` (bytes), `connections`, `local ports`.
    pub resource: String,
    /// In use.
    pub used: u64,
    /// The most that can be; absent when unlimited or not known.
    pub limit: Option<u64>,
    /// Whether it is low.
    pub low: bool,
}

/// Idle connections that were closed because a resource was low.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct EvictedStatus {
    /// As in the levels.
    pub resource: String,
    /// How many.
    pub count: u64,
}

/// The HTTP cache. Counters are since the start.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
pub struct CacheStatus {
    /// Whether it is in use: until what is on disk has been looked through, requests pass it by.
    pub open: bool,
    /// Bytes in memory, with the disk's buffers.
    pub memory: u64,
    /// The most of them.
    pub memory_limit: u64,
    /// The most bytes on disk; absent where there is no disk.
    pub disk_limit: Option<u64>,
    /// Entries in memory.
    pub entries: u64,
    /// Requests that were answered from it.
    pub hits: u64,
    /// Requests that it could have answered and that went to the origin.
    pub misses: u64,
    /// Requests that do not concern it: other methods, credentials, parts.
    pub bypassed: u64,
    /// Stored responses that the origin said are still true.
    pub validated: u64,
    /// Responses stored.
    pub stored: u64,
    /// Responses taken away: a request changed what they tell of, or a newer one came that is not kept.
    pub removed: u64,
    /// Entries pushed out of memory by others; where there is a disk they are still there.
    #[serde(default)]
    pub pushed_out: u64,
    /// Entries that did not get to the disk: more came than it could write. They stand in memory.
    #[serde(default)]
    pub not_written: u64,
    /// Lookups that the disk did not answer in time; their requests went to the origin.
    #[serde(default)]
    pub disk_late: u64,
    /// Whether lookups leave the disk alone for a minute, because it did not answer several in a row.
    #[serde(default)]
    pub disk_paused: bool,
    /// Bytes of bodies sent from it; answers to HEAD and 304 have none.
    pub bytes: u64,
}

/// UDP ASSOCIATE of SOCKS5, UDP over HTTP, forwarded ports, diverted QUIC, and flows of peers. Counters are since the start.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
pub struct UdpStatus {
    /// Associations now.
    pub associations: u64,
    /// The most at once; 0: none.
    pub limit: u64,
    /// Associations that were begun.
    pub begun: u64,
    /// Associations that ended for another one, because all were in use.
    #[serde(default)]
    pub gave_way: u64,
    /// Datagrams from clients, or out of tunnels, that went out.
    pub datagrams_up: u64,
    /// Datagrams that came back to them.
    pub datagrams_down: u64,
    /// Dropped: no header, a fragment, no clear destination, a malformed capsule.
    pub malformed: u64,
    /// Dropped: not from the association's client.
    pub foreign: u64,
    /// Dropped: a rule or a special address, or no way there carries datagrams.
    pub refused: u64,
    /// Dropped: no such name, no route, no room at the moment.
    pub undelivered: u64,
    /// Dropped: over an account's limits, or the relay's.
    #[serde(default)]
    pub limited: u64,
}

/// Memory of the relay's process, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryStatus {
    /// Of the machine's memory, what is the process's alone.
    pub resident: u64,
    /// Of its heap, what is in use. What is resident besides is free for later, and given back where it is much.
    pub in_use: u64,
}

/// One buffer of one leg.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct GrantStatus {
    /// `send` or `receive`.
    pub side: String,
    /// What it could make use of; absent where the leg's profile sets it.
    pub demand: Option<u64>,
    /// What it was given; absent where the kernel tunes it.
    pub grant: Option<u64>,
    /// What the kernel made of that.
    pub given: Option<u64>,
    /// Who decides on its size, in words.
    pub how: String,
    /// Where the demand comes from, in words.
    pub why: String,
    /// Why the kernel gave less, and what would mend it.
    pub refused: Option<String>,
}
