//! What became of clients' questions for names.

use std::sync::atomic::AtomicU64;

#[derive(Debug, Default)]
pub(crate) struct DnsCounts {
    /// Questions over UDP, over TCP, and out of peers' tunnels.
    pub(crate) udp: AtomicU64,
    pub(crate) tcp: AtomicU64,
    pub(crate) peers: AtomicU64,
    /// Messages that were no questions for a resolver.
    pub(crate) malformed: AtomicU64,
    /// Of clients that may not ask.
    pub(crate) refused: AtomicU64,
    /// Above a client's rate.
    pub(crate) limited: AtomicU64,
    /// With a cookie that this relay gave to the client.
    pub(crate) proven: AtomicU64,
    /// Replies without records because they did not fit into a datagram.
    pub(crate) truncated: AtomicU64,
    /// Messages that were not the reply to a question or lacked what proves it, and records that nobody had asked for.
    pub(crate) lies: AtomicU64,
    pub(crate) left_out: AtomicU64,
    /// Answers with a translator's addresses, and names for those.
    pub(crate) synthesized: AtomicU64,
    /// Diverted connections that were named by an answer.
    pub(crate) named: AtomicU64,
}
