//! Frames between two relays inside QUIC, on streams and in datagrams
//! (`docs/book/src/design/protocol.md`).
//!
//! A frame is a type, a length and a body, so that readers skip types of later versions. Numbers
//! are QUIC's (RFC 9000 §16).

pub(crate) mod number;
mod reading;
pub mod reason;
#[cfg(test)]
mod tests;
mod writing;

pub use number::MOST;
pub use reading::{read, read_all, read_shared};
pub use writing::data_overhead;
pub(crate) use writing::pad;

use crate::frame::reason::Reason;
use bytes::Bytes;
use ekiden_model::control::repair::Window;
use ekiden_model::control::repair::packets::{PacketRepair, Part};
use ekiden_model::units::Rate;
use std::net::IpAddr;

/// The version of the protocol; another one has another ALPN name.
pub const VERSION: u64 = 1;
/// The protocol's name in ALPN (RFC 7301).
pub const ALPN: &[u8] = b"ekiden/1";
/// No frame is longer: a datagram of 9,000 bytes and room for the future.
pub const LONGEST: usize = 16 * 1024;
/// Limit of an account's name and of the words beside a reason, bytes; longer words are cut.
pub const WORDS: usize = 512;
/// Bytes of an account's text that number the owner of a flow.
pub const OWNER: usize = 8;
/// Readers skip unknown types from here on; an unknown type below ends the tunnel.
pub const OPTIONAL: u64 = 0x20;

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
    pub(super) const NUMBERED: u64 = 0x0c;
    pub(super) const REPAIR: u64 = 0x20;
    pub(super) const PACKET_REPAIR: u64 = 0x21;
    pub(super) const PADDING: u64 = 0x22;
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
    /// Which tunnel of this peer: both lanes carry the same number.
    pub session: u64,
    /// The sender's receive limit, bits per second on the IP wire.
    pub receive: Rate,
    /// Bytes of a new flow that may be sent before any credit.
    pub window: u64,
    /// Bytes of all flows together that may be sent before any credit.
    pub total: u64,
    /// The invitation's secret, where its sender is not known yet; empty otherwise.
    pub secret: Bytes,
    /// Its sender understands [`Frame::Repair`].
    pub repairs: bool,
    /// It takes flows that carry [`Carries::Coded`] packets.
    pub coded: bool,
}

/// A flow begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Its number: even when the tunnel's opener opens it, odd otherwise; never used again.
    pub flow: u64,
    /// Its destination and account.
    pub opening: Opening,
}

/// The opening of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// The near relay's number for the account, at most [`WORDS`] bytes, or empty: see [`owner_and_behind`]. Accounts
    /// take turns.
    pub account: Bytes,
    /// Through how many tunnels it has come already.
    pub hops: u8,
    /// Where it goes.
    pub target: Target,
    /// The DSCP of the client's packets if known, 0 to 63.
    pub dscp: Option<u8>,
    /// Bytes or packets.
    pub carries: Carries,
}

impl Opening {
    /// Bytes to a host by its name, for no account in particular.
    pub fn named(host: &str, port: u16) -> Self {
        let target = Target { host: Host::Name(host.to_owned()), port };
        Self { account: Bytes::new(), hops: 0, target, dscp: None, carries: Carries::Stream }
    }
}

/// The number of a flow's owner in its account's text. Where bytes follow the first [`OWNER`], the owner has others
/// behind it, and the whole text is the number of one of these.
pub fn owner_and_behind(account: &[u8]) -> (&[u8], Option<&[u8]>) {
    match account.split_at_checked(OWNER) {
        Some((owner, behind)) if !behind.is_empty() => (owner, Some(behind)),
        _ => (account, None),
    }
}

/// The kind of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Carries {
    /// Bytes in order: TCP.
    #[default]
    Stream,
    /// Separate packets: UDP.
    Packets,
    /// The same, with numbers, repairs of what is lost, and release in order for a while: QUIC.
    Coded,
}

impl Carries {
    /// Whether it carries packets, with or without repairs.
    pub const fn is_packets(self) -> bool {
        matches!(self, Self::Packets | Self::Coded)
    }
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub enum Frame {
    /// The sender's introduction.
    Hello(Hello),
    /// A flow begins; later frames on this stream concern it.
    Open(Open),
    /// Later frames on this stream concern a flow that began elsewhere.
    Attach(u64),
    /// Bytes of the flow.
    Data {
        /// Of the first of them.
        offset: u64,
        bytes: Bytes,
    },
    /// The flow ends after so many bytes.
    Fin(u64),
    /// The flow breaks after so many bytes.
    Reset {
        /// Bytes before it are still valid.
        offset: u64,
        reason: Reason,
        words: String,
    },
    /// The destination answered.
    Opened,
    /// It did not.
    Refused { reason: Reason, words: String },
    /// One of the packets that a flow carries; it may have none of its bytes.
    Packet(Bytes),
    /// One of the packets of a flow whose packets are coded, or a part of one.
    Numbered {
        number: u64,
        /// Repairs cover so many packets before it at most.
        back: u8,
        part: Part,
        packet: Bytes,
    },
    /// A sum of packets of such a flow, of which a receiver decodes what it lacks.
    PacketRepair(PacketRepair<Bytes>),
    /// A sum of bytes of the flow, of which a receiver decodes what it lacks.
    Repair {
        window: Window,
        /// As long as [`Window::width`].
        symbol: Bytes,
    },
    /// A flow may be sent up to this offset.
    Credit { flow: u64, limit: u64 },
    /// All flows together may be sent so many bytes since the tunnel began.
    Total(u64),
    /// A type from [`OPTIONAL`] on, which this version does not know.
    Unknown(u64),
}

/// A malformed frame.
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
    /// More bytes of frames that are not complete than a lane keeps.
    #[error("too many incomplete frames")]
    Incomplete,
    /// A field with a value it cannot have.
    #[error("a frame of type {0:#x} with a value out of its range")]
    Value(u64),
}
