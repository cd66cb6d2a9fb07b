//! A connection: a handshake, and then flows in one direction or both.

use crate::network::topology::Node;
use ekiden_model::network::tcp::preset::Era;
use ekiden_model::network::tcp::{Handshake, HandshakeConfig};
use ekiden_model::units::Time;

/// What a connection is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectionConfig {
    /// Who sends the first packet.
    pub opener: Node,
    /// Who answers.
    pub acceptor: Node,
    /// When; [`Time::NEVER`]: when an application says so.
    pub start: Time,
    /// How patiently.
    pub opening: HandshakeConfig,
    /// Whether the opener answers the answer before anything else (ns-2's one-way agents do not).
    pub three_way: bool,
    /// Bytes of a handshake's packets.
    pub handshake_bytes: u32,
}

impl ConnectionConfig {
    /// Begins at 0, by this era's handshake in packets of 40 bytes; one-way but for Linux.
    pub fn new(opener: Node, acceptor: Node, era: Era) -> Self {
        let (three_way, start) = (era == Era::Linux, Time::ZERO);
        Self { opener, acceptor, start, opening: era.opening(), three_way, handshake_bytes: 40 }
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) config: ConnectionConfig,
    pub(crate) there: u32,
    pub(crate) back: u32,
    pub(crate) flows: [Option<u32>; 2],
    pub(crate) opening: Option<Handshake>,
    /// The acceptor's answer, for its sample.
    pub(crate) answered: Option<(Time, u32)>,
    pub(crate) open: [bool; 2],
    pub(crate) chain: Option<u32>,
    /// How many had its number before.
    pub(crate) epoch: u32,
    pub(crate) proxied: bool,
}

impl Connection {
    pub(crate) fn new(config: ConnectionConfig, there: u32, back: u32) -> Self {
        Self {
            config,
            there,
            back,
            flows: [None; 2],
            opening: None,
            answered: None,
            open: [false; 2],
            chain: None,
            epoch: 0,
            proxied: false,
        }
    }
}
