//! Output of a core: events, datagrams, bytes and the state of tunnels.

use super::{End, FlowId, TunnelId};
use crate::frame::Opening;
use crate::trust::Fingerprint;
use bytes::Bytes;
use ekiden_model::control::rate_hold::Restraint;
use ekiden_model::control::rate_hold::breaker::Trip;
use ekiden_model::resources::overload::Source;
use ekiden_model::units::{self, Rate, Span, Time};
use std::net::{IpAddr, SocketAddr};

/// How a tunnel ended, or why none came up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelEnd {
    /// In words.
    pub reason: String,
    /// Whether the peer said so; otherwise it was lost, or ended here.
    pub by_peer: bool,
}

/// A stateless reset (RFC 9000 §10.3).
pub(super) const RESTARTED: &str = "the peer was restarted";

impl TunnelEnd {
    /// Whether the peer knows none of its tunnels any more.
    pub(crate) fn is_restart(&self) -> bool {
        self.reason == RESTARTED
    }
}

impl From<String> for TunnelEnd {
    fn from(reason: String) -> Self {
        Self { reason, by_peer: false }
    }
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub enum Event {
    /// A tunnel is ready for flows.
    Up { tunnel: TunnelId, peer: Fingerprint },
    /// A tunnel is no more, and its flows neither.
    Down { tunnel: TunnelId, peer: Fingerprint, end: TunnelEnd },
    /// An invited relay connected. It waits, and its tunnel with it, for
    /// [`settle_join`](super::Endpoint::settle_join) or for [`admit`](super::Endpoint::admit) with it.
    Joining {
        peer: Fingerprint,
        /// Of the invitation's secret.
        invitation: [u8; 32],
    },
    /// The peer opened a flow: to be answered with [`accept`](super::Endpoint::accept) or
    /// [`refuse`](super::Endpoint::refuse).
    Incoming { flow: FlowId, peer: Fingerprint, opening: Opening },
    /// The circuit breaker for the tunnel's sending opened, with its reason and end, or closed.
    Breaker {
        tunnel: TunnelId,
        peer: Fingerprint,
        /// `None`: circuit breaker closed: sending at the full rate.
        open: Option<(Trip, Time)>,
    },
    /// Something has held the tunnel's rate below nine tenths of the agreed one for 10 s, or no
    /// longer does.
    Restrained {
        tunnel: TunnelId,
        peer: Fingerprint,
        /// `None`: nothing does any more.
        why: Option<Restraint>,
        /// The rate now.
        rate: Rate,
    },
    /// For 10 s a writer has waited for memory for bytes that wait to be sent, of which its account has its part, or half
    /// of all of it is free again.
    SendMemory {
        tunnel: TunnelId,
        peer: Fingerprint,
        /// Writers wait for it.
        used_up: bool,
        /// What the account has of it that has the most.
        largest: units::Bytes,
    },
    /// Flows were reset because the peer had taken too little of them for too long after their owners left.
    OrphansReset {
        tunnel: TunnelId,
        peer: Fingerprint,
        /// How many since the last event, at least 1.
        flows: u64,
    },
    /// A lane goes on without its DSCP, because none of its packets was acknowledged for 5 s while packets of the other
    /// lane were: the path may drop packets with that mark.
    Unmarked {
        tunnel: TunnelId,
        peer: Fingerprint,
        /// 0 interactive, 1 bulk.
        lane: u8,
    },
    /// Something about a flow changed: its answer, bytes to take, room to write, its end.
    Flow(FlowId),
}

/// The two ends of a datagram's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// The other end.
    pub peer: SocketAddr,
    /// The address here that the peer sent to, where the socket has several and reports it: answers come from there.
    pub here: Option<IpAddr>,
    /// The other end of the TCP connection that carried it, where one did. `peer` is then no address of the network.
    pub tcp: Option<IpAddr>,
}

impl Way {
    /// The source that an Initial counts for. Over TCP each connection of an address has another `peer`, and what bears
    /// its address over UDP is apart: it may be forged.
    pub(super) fn source(&self) -> Source {
        self.tcp.map_or_else(|| Source::of_datagram(self.peer), Source::from)
    }
}

/// Whether this is a TCP connection's end at its driver, and no address of the network: of 0.0.0.0/8 the kernel delivers
/// nothing (RFC 6890, table 1).
pub(crate) const fn is_carrier(at: SocketAddr) -> bool {
    matches!(at.ip(), IpAddr::V4(ip) if ip.octets()[0] == 0)
}

impl From<SocketAddr> for Way {
    fn from(peer: SocketAddr) -> Self {
        Self { peer, here: None, tcp: None }
    }
}

/// A datagram to send; its bytes are in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutgoingDatagram {
    /// Where to.
    pub to: SocketAddr,
    /// The address here that it comes from; `None`: the one that the kernel takes for its route.
    pub from: Option<IpAddr>,
    /// Whose DSCP it goes with: 0 interactive, 1 bulk; `None`: with none, as all of connections that belong to no tunnel.
    pub mark: Option<u8>,
    /// Bytes.
    pub size: usize,
    /// Whose it is, where it is one's.
    pub tunnel: Option<TunnelId>,
}

/// The result of reading a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// The next bytes.
    Bytes(Bytes),
    /// Nothing now.
    Blocked,
    /// It ended so; there is nothing more.
    End(End),
    /// There is no such flow: it ended, or its tunnel was lost.
    Gone,
}

/// A tunnel as it is seen.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // the names say it
pub struct Snapshot {
    pub tunnel: TunnelId,
    pub peer: Fingerprint,
    pub address: Option<SocketAddr>,
    pub up: bool,
    /// The agreed send rate.
    pub allotted: Rate,
    /// The rate this end wants to receive.
    pub receive: Rate,
    pub rate: Rate,
    /// The estimated capacity, where it is less.
    pub line: Option<Rate>,
    pub rtt: Span,
    /// Waiting on the way, by the last look.
    pub queue_delay: Span,
    /// Losses held to be the path's own, 0 to 1.
    pub path_loss: f64,
    /// Competing packets stand in the same queue.
    pub contended: bool,
    /// Why no more than a tenth is sent for now (the circuit breaker).
    pub breaker: Option<Trip>,
    /// What holds the rate down: the circuit breaker, or anything for more than 10 s.
    pub restrained: Option<Restraint>,
    pub packets: u64,
    pub lost: u64,
    /// Bytes sent, with IP and UDP.
    pub wire_bytes: u64,
    /// Bytes in flight by this count.
    pub in_flight: u64,
    /// Bytes of flows that wait to be sent.
    pub waiting: u64,
    /// Bytes of flows sent, without copies and repetitions.
    pub sent: u64,
    /// Bytes of flows received and taken.
    pub received: u64,
    /// Bytes received and not taken yet.
    pub held: u64,
    pub copies: u64,
    /// Bytes of those.
    pub copied_bytes: u64,
    /// Bytes that came though they had come before.
    pub twice_bytes: u64,
    /// Coded repair packets sent.
    pub repairs: u64,
    /// Bytes of those.
    pub repair_bytes: u64,
    /// Bytes received that were decoded from the peer's repair packets.
    pub repaired_bytes: u64,
    pub flows: usize,
    /// Of those, the ones that nobody here has any more, with bytes that the peer has not taken.
    pub orphans: usize,
    /// How many of these were reset because the peer took too little for too long.
    pub orphans_reset: u64,
    /// The largest IP packet that both lanes send, bytes; of a lane that is not connected nothing is known. It bounds
    /// coded packets, which may go by either lane.
    pub mtu: u16,
    /// The lane whose packets go without their DSCP, because none with it was acknowledged: 0 interactive, 1 bulk.
    pub unmarked: Option<u8>,
}

/// A flow as it is seen at one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowStatus {
    /// The destination was reached.
    pub answered: bool,
    /// Bytes sent, each once.
    pub sent: u64,
    /// Bytes that wait here to be sent.
    pub queued: u64,
    /// The peer takes no more of it until what came is read there.
    pub full: bool,
    /// The peer takes no more of any flow.
    pub all_full: bool,
    /// Whoever writes waits, because the flow's account has its part of the memory for bytes that wait to be sent.
    pub short: bool,
    /// Bytes received and not taken here yet.
    pub held: u64,
}
