//! A connection of the proxy's, to a client or to a server.

use ekiden_model::resources::idle::Handle;
use ekiden_model::resources::overload::Ticket;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    Client(u32),
    Server(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stand {
    /// Its SYN has not come yet.
    Coming,
    Waiting,
    /// It has a place, and is in use or about to be.
    Busy,
    /// It has a place, and nobody uses it.
    Idle(Handle),
}

/// Where the answer of a client's request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Nobody has asked.
    None,
    /// The proxy itself: its cache, or it says that it has no place.
    Own,
    /// A server, once there is a place for a connection to it.
    Sought(Ticket),
    /// The server at the other end of this connection.
    Server(u32),
}

#[derive(Debug)]
pub(super) struct Leg {
    pub(super) peer: Peer,
    pub(super) stand: Stand,
    /// Flows: of requests, and of answers.
    pub(super) up: u32,
    pub(super) down: u32,
    /// Where the last request ends in its flow.
    pub(super) asked: u64,
    /// … the last one that has come,
    pub(super) taken: u64,
    /// … and, of a client's, the last one whose answer has come whole.
    pub(super) report: u64,
    /// That request has come, and its answer is not all acknowledged.
    pub(super) answering: bool,
    /// Bytes that the answering end has still to write.
    pub(super) unwritten: u64,
    pub(super) end: u64,
    /// Of a client's: how much the client has seen.
    pub(super) seen: u64,
    /// Of a server's: bytes of the answer that it was asked for.
    pub(super) coming: u64,
    pub(super) origin: Origin,
    /// Of a server's: the client's connection that it works for.
    pub(super) works_for: Option<u32>,
    /// The answer is that there was no place.
    pub(super) refused: bool,
    /// Its client has gone: it is closed when the answer is acknowledged.
    pub(super) abandoned: bool,
}

impl Leg {
    pub(super) const fn new(peer: Peer, stand: Stand, [up, down]: [u32; 2]) -> Self {
        Self {
            peer,
            stand,
            up,
            down,
            asked: 0,
            taken: 0,
            report: 0,
            answering: false,
            unwritten: 0,
            end: 0,
            seen: 0,
            coming: 0,
            origin: Origin::None,
            works_for: None,
            refused: false,
            abandoned: false,
        }
    }
}
