//! The terms of a tunnel, and QUIC's configuration.

use crate::core::ack_tap::AckTap;
use crate::core::lane::EARLY_BYTES;
use crate::trust::Fingerprint;
use ekiden_model::control::rate_hold::{self, Mode};
use ekiden_model::units::{Bytes, Rate, Span};
use quinn_proto::{AckFrequencyConfig, MtuDiscoveryConfig, TransportConfig, VarInt};
use std::sync::Arc;
use std::time::Duration;

/// The rates agreed with a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Terms {
    /// The receive limit, bits per second on the IP wire. The sender obeys the smaller of this and
    /// the peer's own limit.
    pub send: Rate,
    /// The send limit.
    pub receive: Rate,
    /// The line's own rate where nobody else uses it: others are no reason to give way then, and
    /// losses are made up for as far as it exceeds `send`. `None`: shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedicated: Option<Rate>,
}

impl Terms {
    /// Rates on a line that others use, too.
    pub const fn new(send: Rate, receive: Rate) -> Self {
        Self { send, receive, dedicated: None }
    }

    const fn mode(&self) -> Mode {
        if let Some(line) = self.dedicated { Mode::Dedicated { line } } else { Mode::Shared }
    }
}

/// How much a tunnel may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Memory for received bytes that are not read yet, and for bytes in flight; each. Default 128
    /// MiB. A flow that is read fast may use half: four times what 200 Mbit/s over 600 ms holds. All
    /// tunnels of a peer together hold twice as much of what it sends, and of what it has not
    /// acknowledged. Half as much may wait to be sent, and some packets of each flow.
    pub memory: Bytes,
    /// Concurrent flows. Default 4,000.
    pub flows: usize,
    /// The largest datagram worth trying for, bytes of UDP payload. Default 8,972: an IP packet of 9,000.
    pub datagram: u16,
    /// Concurrent tunnels that peers opened on one address. One peer has a quarter at most, and where all are there
    /// each still gets two. Default 64.
    pub tunnels: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: Bytes::mib(128), flows: 4_000, datagram: 8_972, tunnels: 64 }
    }
}

impl Limits {
    /// Connections that belong to no tunnel yet: two of each that may come.
    pub(crate) const fn pending(&self) -> u64 {
        2 * self.tunnels as u64
    }

    /// What connections that are being closed may keep: records of packets in flight.
    pub(super) const fn closing(&self) -> u64 {
        self.memory.as_u64() / 8
    }

    /// What all tunnels of a peer may hold here: one that is lost and not given up yet, and the one after it.
    pub(super) const fn peer_memory(&self) -> u64 {
        self.memory.as_u64().saturating_mul(2).saturating_add(FRAMES)
    }

    /// What the flows of all tunnels of a peer together may have waiting to be sent, beside the least of each.
    pub(super) const fn send_memory(&self) -> u64 {
        self.memory.as_u64() / 2
    }

    /// What QUIC may keep on a lane until it is acknowledged, where the peer has so many tunnels: together as much as
    /// they may make this side hold of received bytes. Bytes in flight are fewer. But QUIC also keeps all that follows a
    /// lost packet on its stream, though that was acknowledged.
    ///
    /// Nor does it say how much it keeps, and a tunnel keeps what it had when there were fewer. So from the third tunnel
    /// on, each part is 1/(n·(n − 1)) and not 1/n. The sum of the parts, from the first on, is then below twice the whole.
    pub(super) const fn unacknowledged(&self, tunnels: u64) -> u64 {
        let parts = match tunnels {
            0 | 1 => 1,
            2 => 2,
            n => n.saturating_mul(n - 1),
        };
        self.peer_memory() / 2_u64.saturating_mul(parts)
    }

    pub(super) fn hold(&self, terms: &Terms) -> rate_hold::Config {
        let (memory, mode) = (self.memory, terms.mode());
        let reverse = terms.receive;
        rate_hold::Config { memory, mode, reverse, ..rate_hold::Config::new(terms.send) }
    }
}

/// A peer that may open tunnels here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmittedPeer {
    /// Its certificate's.
    pub fingerprint: Fingerprint,
    /// The agreed terms.
    pub terms: Terms,
}

/// A peer that was invited and has not come yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invited {
    /// SHA-256 of the secret it will show.
    pub secret: [u8; 32],
    /// The agreed terms.
    pub terms: Terms,
}

/// Silence on both lanes after which a tunnel is lost; where it was up, and [`KEEP_ALIVE`]. So a flow
/// ends with a reason within ten seconds.
pub(super) const SILENCE: Span = Span::from_secs(7);
/// Silence on one lane after which it is lost. While the other lane hears, packets of this one stand
/// in a queue: after a fade that is a minute long.
const LANE_SILENCE: Duration = Duration::from_secs(120);
/// Interval of keep-alives. It also keeps address translators from forgetting the path.
pub(super) const KEEP_ALIVE: Span = Span::from_secs(2);
/// Packets that are acknowledged together. With 1,500 bytes each an acknowledgement of some 80 takes
/// 0.5 % of the forward bytes; E.10 asks for less than 4 %.
const ACK_EVERY: u32 = 10;
/// How long an acknowledgement may be delayed; congestion shows as round trips longer by 50 ms.
const ACK_DELAY: Duration = Duration::from_millis(20);
/// Concurrent streams of a peer: two for each flow, and streams whose end is not acknowledged yet.
pub(super) const STREAMS: u32 = 8_192;
/// After losses that QUIC took for a narrower path, larger packets are tried again: it may have erred, and packets of
/// coded flows do not fit meanwhile.
const NARROWED: Duration = Duration::from_secs(10);
/// Bytes of a peer that is not identified yet: beyond these it is sent away.
pub(super) const STRANGER_WINDOW: u32 = EARLY_BYTES as u32;
/// Beside credit: heads of frames, packets on streams, and what tunnels of a small memory need.
const FRAMES: u64 = 2 << 20;
/// Datagrams that wait to be read or sent; copies are small.
const DATAGRAMS: usize = 1 << 20;

/// QUIC as the tunnel wants it: it never blocks and never batches, since both are decided outside it.
pub(super) fn transport(limits: &Limits, ear: &AckTap, window: u64) -> TransportConfig {
    let mut transport = TransportConfig::default();
    let window = VarInt::from_u64(window).unwrap_or(VarInt::MAX);
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(VarInt::from_u32(ACK_EVERY - 1)).max_ack_delay(Some(ACK_DELAY));
    let mut mtu = MtuDiscoveryConfig::default();
    mtu.upper_bound(limits.datagram).black_hole_cooldown(NARROWED);
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(STREAMS))
        .max_idle_timeout(Some(VarInt::from_u32(LANE_SILENCE.as_millis() as u32).into()))
        .keep_alive_interval(Some(Duration::from_nanos(KEEP_ALIVE.as_nanos())))
        // credit bounds what waits, and what waits behind lost packets is counted; these limits never stop a peer that
        // keeps to it
        .stream_receive_window(quic_window(limits))
        .receive_window(window)
        .send_window(limits.unacknowledged(1))
        .datagram_receive_buffer_size(Some(DATAGRAMS))
        .datagram_send_buffer_size(DATAGRAMS)
        .ack_frequency_config(Some(acks))
        .mtu_discovery_config(Some(mtu))
        .enable_segmentation_offload(false)
        .congestion_controller_factory(Arc::new(ear.clone()));
    transport
}

/// A window that credit always reaches first: what may be in flight, with frames and the bytes that are missing. All that
/// came is read at once, in whatever order, so QUIC itself holds nothing.
pub(super) fn quic_window(limits: &Limits) -> VarInt {
    VarInt::from_u64(limits.peer_memory()).unwrap_or(VarInt::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each fills its part when so many are there, and keeps it.
    #[test]
    fn tunnels_that_fill_one_after_another_keep_less_than_twice_their_memory() {
        let limits = Limits::default();
        let kept: u64 = (1..=1_000).map(|tunnels| 2 * limits.unacknowledged(tunnels)).sum();
        assert!(kept < 2 * limits.peer_memory(), "{kept}");
        let of_two = [1, 2].map(|tunnels| limits.unacknowledged(tunnels));
        assert_eq!(of_two, [limits.peer_memory() / 2, limits.peer_memory() / 4]);
    }
}
