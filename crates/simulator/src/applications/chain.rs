//! A download over relays in a row: each takes a request, opens the next connection, and hands on
//! the answer as fast as the next one takes it.

use ekiden_model::resources::quota;
use ekiden_model::units::Time;

/// A row of connections, the client's first; each but the last ends at a relay that opens the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainConfig {
    /// The connections, each with a flow in both directions; all but the first start at
    /// [`Time::NEVER`].
    pub connections: Vec<u32>,
    /// Bytes of the request.
    pub request: u32,
    /// Bytes of the answer.
    pub response: u64,
    /// Bytes that a relay holds beside what its sockets hold.
    pub held: u64,
}

/// What came of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChainResult {
    /// When the first byte of the answer came.
    pub first_byte: Option<Time>,
    /// When the last one did.
    pub finished: Option<Time>,
    /// Bytes that have come.
    pub bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) config: ChainConfig,
    /// By connection: the flows towards the server, and back.
    pub(crate) up: Vec<u32>,
    pub(crate) down: Vec<u32>,
    /// By connection: whether its request has come.
    pub(crate) asked: Vec<bool>,
    /// By relay: bytes read from behind and not written on yet.
    pub(crate) held: Vec<u64>,
    /// By relay: its place among the connections of an account.
    pub(crate) seats: Vec<Option<quota::Flow>>,
    pub(crate) result: ChainResult,
}
