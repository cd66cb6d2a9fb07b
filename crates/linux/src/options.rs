//! What a leg asks of its sockets, as plain data. Everything is optional: what is not set is left to
//! the kernel.

use crate::bpf::Group;
use ekiden_model::units::{Bytes, Rate, Span};
use std::net::IpAddr;

/// The socket options of one leg. The first group governs what this machine *sends* on the leg, the
/// second what it *receives*, the third the connection as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// `TCP_CONGESTION`: congestion controls in order of preference; the first that the kernel grants
    /// is used. Empty: the kernel's default (or the route's `congctl`).
    pub congestion: Vec<String>,
    /// `SO_MAX_PACING_RATE`: the most this socket sends, in payload bits per second.
    pub pace: Option<Rate>,
    /// The group of sockets that a rate is held for together, where `congestion` is one of ours that holds
    /// rates. Each socket weighs the same.
    pub rate: Option<Group>,
    /// `TCP_NOTSENT_LOWAT`: writable only below so many unsent bytes.
    pub unsent_low_water: Option<Bytes>,
    /// `SO_SNDBUF`, by `SO_SNDBUFFORCE` where privileged. The size wanted; Linux doubles what it is
    /// given, so half of this is passed and the size read back is reported.
    pub send_buffer: Option<Bytes>,
    /// DSCP 0…63, in `IP_TOS` / `IPV6_TCLASS` (the two ECN bits are left alone).
    pub dscp: Option<u8>,

    /// `SO_RCVBUF`, by `SO_RCVBUFFORCE` where privileged; turns receive auto-tuning off.
    pub receive_buffer: Option<Bytes>,
    /// `TCP_WINDOW_CLAMP`: the largest window this socket will advertise, to within a factor of two: what
    /// lasts is the window scale chosen from it in the handshake. `receive_buffer` bounds it closer.
    pub window_clamp: Option<Bytes>,

    /// `SO_BUF_LOCK`: whether the kernel's auto-tuning is kept off buffers set here. `Some(false)`
    /// gives them back to auto-tuning.
    pub lock_buffers: Option<bool>,
    /// `TCP_MAXSEG` in bytes, 88…32767: the largest segment, announced in the SYN.
    pub mss: Option<u16>,
    /// `TCP_SYNCNT`, 1…127: SYN retransmissions before connecting fails.
    pub syn_count: Option<u8>,
    /// `TCP_USER_TIMEOUT`: unacknowledged for so long, and the connection is aborted.
    pub user_timeout: Option<Span>,
    /// `TCP_RTO_MAX_MS` (Linux ≥ 6.15), 1…120 s: the longest retransmission time-out.
    pub rto_max: Option<Span>,
    /// `TCP_RTO_MIN_US` (Linux ≥ 6.11), up to 200 ms: the shortest retransmission time-out.
    pub rto_min: Option<Span>,
    /// Keep-alive probes: `TCP_KEEPIDLE`.
    pub keepalive_idle: Option<Span>,
    /// `TCP_KEEPINTVL`.
    pub keepalive_interval: Option<Span>,
    /// `TCP_KEEPCNT`, 1…127.
    pub keepalive_count: Option<u8>,
    /// `TCP_NODELAY`; Ekiden's default is on, since a relay must not wait for what it cannot see.
    pub no_delay: Option<bool>,
    /// `SO_MARK` (needs CAP_NET_ADMIN): for policy routing.
    pub mark: Option<u32>,
    /// `SO_BINDTODEVICE`.
    pub device: Option<String>,
    /// Local address connections are made from.
    pub source: Option<IpAddr>,
    /// TCP Fast Open: `TCP_FASTOPEN_CONNECT` on connecting, `TCP_FASTOPEN` on listening sockets.
    pub fast_open: Option<bool>,
    /// Multipath TCP: the socket is made with `IPPROTO_MPTCP`; falls back to TCP and says so.
    pub mptcp: Option<bool>,
}
