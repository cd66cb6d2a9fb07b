//! What a core tells: events, datagrams, bytes, and how a tunnel stands.

use super::{End, FlowId, TunnelId};
use crate::frame::Opening;
use crate::trust::Fingerprint;
use bytes::Bytes;
use ekiden_model::rate_hold::breaker::Trip;
use ekiden_model::units::{Rate, Span, Time};
use std::net::SocketAddr;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A tunnel is ready for flows.
    Up {
        /// Which.
        tunnel: TunnelId,
        /// Who is at its other end.
        peer: Fingerprint,
    },
    /// A tunnel is no more, and its flows neither.
    Down {
        /// Which.
        tunnel: TunnelId,
        /// Who was at its other end.
        peer: Fingerprint,
        /// In words.
        reason: String,
    },
    /// Somebody who was invited has come; it is a peer from now on.
    Joined {
        /// Its certificate's.
        peer: Fingerprint,
        /// Of the invitation's secret.
        invitation: [u8; 32],
    },
    /// The peer opened a flow: to be answered with [`accept`](super::Endpoint::accept) or
    /// [`refuse`](super::Endpoint::refuse).
    Incoming {
        /// Which.
        flow: FlowId,
        /// Who is at the tunnel's other end.
        peer: Fingerprint,
        /// What it is to be.
        opening: Opening,
    },
    /// The circuit breaker of what a tunnel sends opened, for this reason and until then, or closed.
    Breaker {
        /// Which.
        tunnel: TunnelId,
        /// Who is at its other end.
        peer: Fingerprint,
        /// `None`: all of the rate may be sent again.
        open: Option<(Trip, Time)>,
    },
    /// Something about a flow changed: its answer, bytes to take, room to write, its end.
    Flow(FlowId),
}

/// A datagram to send; its bytes are in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Out {
    /// Where to.
    pub to: SocketAddr,
    /// Whose DSCP it goes with: 0 interactive, 1 bulk.
    pub lane: u8,
    /// Bytes.
    pub size: usize,
    /// Whose it is, where it is one's.
    pub tunnel: Option<TunnelId>,
}

/// What is to be had of a flow.
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
pub struct Snapshot {
    /// Which.
    pub tunnel: TunnelId,
    /// Who is at its other end.
    pub peer: Fingerprint,
    /// Where.
    pub address: Option<SocketAddr>,
    /// Whether flows can be opened.
    pub up: bool,
    /// Whether this end opened it.
    pub opened_here: bool,
    /// What both sides agree to be sent.
    pub allotted: Rate,
    /// What this end wants to receive.
    pub receive: Rate,
    /// What is held now.
    pub rate: Rate,
    /// What the line is believed to give, where that is less.
    pub line: Option<Rate>,
    /// The round trip, smoothed.
    pub rtt: Span,
    /// The path's own.
    pub base_rtt: Span,
    /// Waiting on the way, by the last look.
    pub queue_delay: Span,
    /// Losses held to be the path's own, 0 to 1.
    pub path_loss: f64,
    /// Others' packets stand in the same queue.
    pub contended: bool,
    /// Why no more than a tenth is sent for now (the circuit breaker).
    pub breaker: Option<Trip>,
    /// Datagrams sent.
    pub packets: u64,
    /// Of those, taken for lost.
    pub lost: u64,
    /// Bytes sent, with IP and UDP.
    pub wire_bytes: u64,
    /// Bytes under way, so counted.
    pub in_flight: u64,
    /// Bytes of flows that wait to be sent.
    pub waiting: u64,
    /// Bytes of flows sent, without copies and repetitions.
    pub sent: u64,
    /// Bytes of flows received and taken.
    pub received: u64,
    /// Bytes received and not taken yet.
    pub held: u64,
    /// Copies sent.
    pub copies: u64,
    /// Bytes of those.
    pub copied_bytes: u64,
    /// Bytes that came though they had come before.
    pub twice_bytes: u64,
    /// Flows now.
    pub flows: usize,
    /// The largest IP packet sent.
    pub mtu: u16,
}
