//! Socket options of a leg, as plain data. Each is optional: `None` leaves the kernel's value.

use crate::bpf::Group;
use ekiden_model::units::{Bytes, Rate, Span};
use std::net::IpAddr;

/// The socket options of one leg: first what governs *sending* by this machine, then *receiving*,
/// then the connection as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// `TCP_CONGESTION`, in order of preference: the first that the kernel grants is used. Empty:
    /// the kernel's default, or the route's `congctl`.
    pub congestion: Vec<String>,
    /// `SO_MAX_PACING_RATE`: the most this socket sends, in payload bits per second.
    pub pace: Option<Rate>,
    /// The group that shares a rate, each socket with the same weight, where `congestion` is one of
    /// ours that holds rates.
    pub rate: Option<Group>,
    /// `TCP_NOTSENT_LOWAT`: writable only below so many unsent bytes.
    pub notsent_lowat: Option<Bytes>,
    /// `SO_SNDBUF`, by `SO_SNDBUFFORCE` where privileged: the wanted size. Linux doubles the value,
    /// so half of it is passed.
    pub send_buffer: Option<Bytes>,
    /// DSCP 0…63, in `IP_TOS` / `IPV6_TCLASS` (the two ECN bits are left alone).
    pub dscp: Option<u8>,

    /// `SO_RCVBUF`, by `SO_RCVBUFFORCE` where privileged; turns receive auto-tuning off.
    pub receive_buffer: Option<Bytes>,
    /// `TCP_WINDOW_CLAMP`: the largest window advertised, to within a factor of two, because it
    /// sets the window scale. `receive_buffer` bounds more closely.
    pub window_clamp: Option<Bytes>,

    /// `SO_BUF_LOCK`: whether buffers set here are kept from auto-tuning; `Some(false)` gives them
    /// back.
    pub lock_buffers: Option<bool>,
    /// `TCP_MAXSEG` in bytes, 88…32767: the largest segment, announced in the SYN.
    pub mss: Option<u16>,
    /// `TCP_SYNCNT`, 1…127: SYN retransmissions before connecting fails.
    pub syn_count: Option<u8>,
    /// `TCP_USER_TIMEOUT`: the connection is aborted when data stays unacknowledged for this long.
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
    /// `TCP_NODELAY`; on by default, because a relay must not wait for data that it cannot foresee.
    pub no_delay: Option<bool>,
    /// `SO_MARK` (needs CAP_NET_ADMIN): for policy routing.
    pub mark: Option<u32>,
    /// `SO_BINDTODEVICE`.
    pub device: Option<String>,
    /// Local address connections are made from.
    pub source: Option<IpAddr>,
    /// TCP Fast Open: `TCP_FASTOPEN_CONNECT` on connecting, `TCP_FASTOPEN` on listening sockets.
    pub fast_open: Option<bool>,
    /// Multipath TCP: the socket is made with `IPPROTO_MPTCP`; falls back to TCP and reports it.
    pub mptcp: Option<bool>,
}
