//! What two relays say to each other inside QUIC: frames on streams and in datagrams (`docs/protocol.md`).
//!
//! A frame is a type, the length of what follows, and that. So a reader may pass over types it does not
//! know, and what comes later (repair packets) finds room. Numbers are QUIC's (RFC 9000 §16).

mod number;
mod reading;
#[cfg(test)]
mod tests;
mod writing;

pub use number::MOST;
pub use reading::{read, read_all};
pub use writing::data_overhead;

use crate::reason::Reason;
use bytes::Bytes;
use ekiden_model::units::Rate;
use std::net::IpAddr;

/// The version of the protocol; another one has another ALPN name.
pub const VERSION: u64 = 1;
/// The protocol's name in ALPN (RFC 7301).
pub const ALPN: &[u8] = b"ekiden/1";
/// No frame is longer: a datagram of 9,000 bytes and room for the future.
pub const LONGEST: usize = 16 * 1024;
/// An account's name and words beside a reason have at most so many bytes; more words are cut.
pub const WORDS: usize = 512;
/// Types from here on are passed over by those who do not know them; others must be known.
pub const OPTIONAL: u64 = 0x20;
/// Kept for repair packets (forward error correction), which may be passed over.
pub const REPAIR: std::ops::RangeInclusive<u64> = 0x20..=0x2f;

mod kind {
    pub(super) const HELLO: u64 = 0x01;
    pub(super) const OPEN: u64 = 0x02;
    pub(super) const ATTACH: u64 = 0x03;
    pub(super) const DATA: u64 = 0x04;
    pub(super) const FIN: u64 = 0x05;
    pub(super) const RESET: u64 = 0x06;
    pub(super) const OPENED: u64 = 0x07;
    pub(super) const REFUSED: u64 = 0x08;
    pub(super) const CREDIT: u64 = 0x09;
    pub(super) const TOTAL: u64 = 0x0a;
    pub(super) const PACKET: u64 = 0x0b;
}

/// Where a flow is to go: the far relay resolves names and chooses the route.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// A name or an address.
    pub host: Host,
    /// The port, never 0.
    pub port: u16,
}

/// A host by name or by address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name of 1 to 255 bytes, in UTF-8.
    Name(String),
    /// An address.
    Address(IpAddr),
}

/// The first words of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// [`VERSION`].
    pub version: u64,
    /// 0: interactive; 1: bulk.
    pub lane: u8,
    /// Which tunnel of this peer: both lanes say the same number.
    pub session: u64,
    /// What its sender may be sent, bits per second on the IP wire.
    pub receive: Rate,
    /// What a new flow may be sent before any credit, bytes.
    pub window: u64,
    /// What all flows together may be sent before any credit, bytes.
    pub total: u64,
    /// The invitation's secret, where its sender is not known yet; empty otherwise.
    pub secret: Bytes,
}

/// A flow begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Its number: even when the tunnel's opener opens it, odd otherwise; never used again.
    pub flow: u64,
    /// What it is to be.
    pub opening: Opening,
}

/// What a flow is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// Whose it is, as the near relay numbers those who share the tunnel; at most [`WORDS`] bytes, and
    /// empty where it does not tell them apart. Flows of one account take turns with those of another.
    pub account: Bytes,
    /// Through how many tunnels it has come already.
    pub hops: u8,
    /// Where it goes.
    pub target: Target,
    /// The DSCP of what its client sends, where that is known: 0 to 63.
    pub dscp: Option<u8>,
    /// What it carries.
    pub carries: Carries,
}

/// What a flow carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Carries {
    /// Bytes in order: TCP.
    #[default]
    Stream,
    /// Packets, each by itself: UDP.
    Packets,
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Who speaks.
    Hello(Hello),
    /// A flow begins; what follows on this stream is about it.
    Open(Open),
    /// What follows on this stream is about a flow that began elsewhere.
    Attach(u64),
    /// Bytes of the flow.
    Data {
        /// Of the first of them.
        offset: u64,
        /// At least one.
        bytes: Bytes,
    },
    /// The flow ends after so many bytes.
    Fin(u64),
    /// The flow breaks after so many bytes.
    Reset {
        /// What came before is still good.
        offset: u64,
        /// Why.
        reason: Reason,
        /// The same in words.
        words: String,
    },
    /// The destination answered.
    Opened,
    /// It did not.
    Refused {
        /// Why.
        reason: Reason,
        /// The same in words.
        words: String,
    },
    /// One of the packets that a flow carries; it may have none of its bytes.
    Packet(Bytes),
    /// A flow may be sent up to this offset.
    Credit {
        /// Which.
        flow: u64,
        /// The offset it must not pass.
        limit: u64,
    },
    /// All flows together may be sent so many bytes since the tunnel began.
    Total(u64),
    /// A type from [`OPTIONAL`] on, which this version does not know.
    Unknown(u64),
}

/// What is no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// Longer than [`LONGEST`].
    #[error("a frame of {0} bytes, longer than the longest")]
    TooLong(u64),
    /// A type below [`OPTIONAL`] that this version does not know.
    #[error("a frame of type {0:#x}, which must be known")]
    UnknownKind(u64),
    /// Cut, or with bytes left over.
    #[error("a frame of type {0:#x} whose length is not that of its fields")]
    Length(u64),
    /// A field with a value it cannot have.
    #[error("a frame of type {0:#x} with a value out of its range")]
    Value(u64),
}
