//! Names for clients, in the status.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Clients' questions for names, and what became of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DnsStatus {
    /// Where clients ask.
    pub listen: Vec<SocketAddr>,
    /// Addresses at which they cannot, and which are tried again.
    #[serde(default)]
    pub unavailable: Vec<DnsPortStatus>,
    /// Questions over UDP.
    pub questions_udp: u64,
    /// Questions over TCP.
    pub questions_tcp: u64,
    /// Questions of peers, through their tunnels.
    pub questions_peers: u64,
    /// Questions answered from memory.
    pub cached: u64,
    /// Questions answered past an answer's end, because no server answered.
    pub stale: u64,
    /// Questions that got no answer.
    pub failed: u64,
    /// Questions that waited for the answer to the same one.
    pub joined: u64,
    /// Questions that servers were asked.
    pub asked: u64,
    /// Of these, the ones before the end of a popular answer.
    pub prefetched: u64,
    /// Answers that are kept.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The most bytes.
    pub memory: u64,
    /// Answers that made room for others.
    pub evicted: u64,
    /// Messages that were refused because they were no questions for a resolver, or were left unanswered.
    pub malformed: u64,
    /// Questions of clients that may not ask. They were not answered.
    pub refused: u64,
    /// Questions above a client's rate, or its account's. They were not answered.
    pub limited: u64,
    /// Questions with a cookie that this relay gave to the client.
    pub proven: u64,
    /// Replies that did not fit into a datagram; the client asks over TCP.
    pub truncated: u64,
    /// Messages from servers that were not the reply to a question, or lacked what proves it.
    pub lies: u64,
    /// Records of servers that nobody had asked for.
    pub left_out: u64,
    /// Answers with the addresses of a translator, and names for those.
    pub synthesized: u64,
    /// Diverted connections whose destination an answer named.
    pub named: u64,
    /// Questions for new names of destinations above the rate of a client, an account or a peer. No server was asked.
    #[serde(default)]
    pub names_limited: u64,
    /// The servers, in order.
    pub servers: Vec<DnsServerStatus>,
}

/// An address at which clients cannot ask for names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DnsPortStatus {
    /// The address.
    pub address: SocketAddr,
    /// Why.
    pub error: String,
    /// When it is tried again.
    pub retry_in_seconds: u64,
}

/// A DNS server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DnsServerStatus {
    /// As the configuration writes it.
    pub server: String,
    /// Whether it is asked before others: it has not just failed.
    pub available: bool,
    /// Whether its replies over UDP change the case of names, so that it is asked over TCP.
    pub changes_case: bool,
    /// Whether it is asked without EDNS, which it cannot read.
    pub lacks_edns: bool,
    /// Whether it gives cookies, which prove its replies over UDP.
    pub cookies: bool,
    /// Questions that it was asked.
    pub asked: u64,
    /// Questions that it answered, also with a failure of its own.
    pub answered: u64,
    /// The last failure; absent where there was none.
    pub last_error: Option<String>,
}
