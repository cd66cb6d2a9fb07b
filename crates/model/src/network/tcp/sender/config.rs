//! A sender's configuration and snapshot.

use super::super::Repair;
use crate::control::congestion;
use crate::network::rto::RtoConfig;
use crate::units::Span;

/// A sender's parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct SenderConfig {
    /// Payload of a full segment, bytes.
    pub mss: u32,
    /// The congestion control.
    pub congestion: congestion::Config,
    /// How losses are found.
    pub repair: Repair,
    /// How long to wait.
    pub rto: RtoConfig,
    /// How round trips are measured.
    pub sampling: Sampling,
    /// Where a decrease starts from.
    pub decrease: Decrease,
    /// Bytes that may be written and not acknowledged.
    pub buffer: u64,
    /// Whether segments leave together.
    pub offload: Offload,
    /// Keep small segments back while something is outstanding (RFC 896, RFC 1122 §4.2.3.4).
    pub nagle: bool,
    /// Begin with slow start again after an idle time longer than the RTO (RFC 5681 §4.1).
    pub restart_after_idle: bool,
    /// Forget the RTT estimate, not the window, after an idle time: the thin-client study's first
    /// remedy (algorithms/thin-client B.7, T1).
    pub reset_rto_after_idle: bool,
    /// A second timeout of the same segment leaves the threshold alone (RFC 5681 §3.1).
    pub repeated_timeout_keeps_threshold: bool,
    /// Spread segments over the round trip.
    pub pacing: Option<Pacing>,
}

/// Segmentation offload: how many segments are handed over as one super-packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// One by one.
    None,
    /// At most so many, and at most a third of the window (Linux 2.6.32: `tcp_tso_win_divisor`).
    Third(u32),
    /// … and at most what the window sends in 1 ms, but two (Linux since 3.12: TSO autosizing).
    Millisecond(u32),
}

/// How round trips are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// One segment at a time, never one sent twice (Karn). With a scoreboard: each ACK of a segment
    /// sent once, as Linux without timestamps.
    OnePerWindow,
    /// By the echo of each acknowledgement (RFC 7323).
    Timestamps,
}

/// Where a decrease starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decrease {
    /// From what is outstanding, at most the window (RFC 5681 equation 4).
    FromFlight,
    /// From the window in force, with its inflation, at most the peer's (4.3BSD, ns-2, Linux).
    FromWindow,
}

/// Pacing at so many times window / smoothed round trip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pacing {
    /// While the window is below half the threshold; Linux: 2.
    pub starting: f64,
    /// Later; Linux: 1.2.
    pub steady: f64,
}

/// A snapshot of a sender.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SenderSnapshot {
    /// Congestion window, segments.
    pub window: f64,
    /// Slow-start threshold, segments.
    pub threshold: f64,
    /// The time-out in force.
    pub rto: Span,
    /// Smoothed round trip; 0 before the first sample.
    pub smoothed: Span,
    /// Its mean deviation.
    pub variance: Span,
    /// Bytes thought to be in flight.
    pub outstanding: u64,
    /// Bytes written and never sent.
    pub unsent: u64,
    /// The event.
    pub count: Counters,
}

/// The event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Counters {
    /// Segments, those sent again included.
    pub sent: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Their bytes.
    pub retransmitted_bytes: u64,
    /// Acknowledgements.
    pub acks: u64,
    /// … of them duplicates.
    pub duplicates: u64,
    /// Recoveries begun by duplicate or selective acknowledgements.
    pub recoveries: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// … of them found to be spurious.
    pub spurious: u64,
    /// Tail probes.
    pub probes: u64,
    /// Reductions because of congestion marks.
    pub marks: u64,
}
