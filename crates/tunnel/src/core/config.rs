//! What is agreed about tunnels, and how QUIC is told.

use super::controller::Ear;
use crate::trust::Fingerprint;
use ekiden_model::rate_hold::{self, Mode};
use ekiden_model::units::{Bytes, Rate};
use quinn_proto::{AckFrequencyConfig, MtuDiscoveryConfig, TransportConfig, VarInt};
use std::sync::Arc;
use std::time::Duration;

/// The rates agreed with a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Terms {
    /// What it may be sent, bits per second on the IP wire. It obeys the smaller of this and what the
    /// peer wants to receive.
    #[serde(with = "text")]
    pub send: Rate,
    /// What it may send.
    #[serde(with = "text")]
    pub receive: Rate,
    /// The rate of the line towards it, where that line is the operator's own: others are no reason to
    /// give way then, and losses are made up for as far as it is faster than `send`. `None`: others are on it.
    #[serde(default, with = "optional", skip_serializing_if = "Option::is_none")]
    pub dedicated: Option<Rate>,
}

impl Terms {
    /// Rates on a line that others use, too.
    #[must_use]
    pub const fn new(send: Rate, receive: Rate) -> Self {
        Self { send, receive, dedicated: None }
    }

    const fn mode(&self) -> Mode {
        match self.dedicated {
            Some(line) => Mode::Dedicated { line },
            None => Mode::Shared,
        }
    }
}

/// Rates as text with their unit.
pub(crate) mod text {
    use ekiden_model::units::Rate;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(rate: &Rate, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(rate)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Rate, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The same where there may be none.
mod optional {
    use ekiden_model::units::Rate;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(rate: &Option<Rate>, to: S) -> Result<S::Ok, S::Error> {
        match rate {
            Some(rate) => super::text::serialize(rate, to),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Rate>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
    }
}

/// How much a tunnel may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For bytes that have come and wait to be taken, and for bytes under way; each. Default 128 MiB: one
    /// flow may have half of it, which is four times what 200 Mbit/s over 600 ms holds.
    pub memory: Bytes,
    /// Flows at once. Default 4,000.
    pub flows: usize,
    /// The largest datagram worth trying for, bytes of UDP payload. Default 8,972: an IP packet of 9,000.
    pub datagram: u16,
    /// Tunnels at once on one socket that others opened. Default 64.
    pub tunnels: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: Bytes::mib(128), flows: 4_000, datagram: 8_972, tunnels: 64 }
    }
}

impl Limits {
    pub(super) fn hold(&self, terms: &Terms) -> rate_hold::Config {
        let (memory, mode) = (self.memory, terms.mode());
        rate_hold::Config { memory, mode, ..rate_hold::Config::new(terms.send) }
    }
}

/// A peer that may open tunnels here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its certificate's.
    pub fingerprint: Fingerprint,
    /// What was agreed.
    pub terms: Terms,
}

/// A peer that was invited and has not come yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invited {
    /// SHA-256 of the secret it will show.
    pub secret: [u8; 32],
    /// What was agreed.
    pub terms: Terms,
}

/// Nothing heard for so long: the tunnel is lost. It is counted from what was said last, up to [`KEEP_ALIVE`]
/// after what was heard: so a flow ends with a reason within ten seconds.
const SILENCE: Duration = Duration::from_secs(7);
/// Something is said so often, which also keeps address translators from forgetting the path.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// Packets that are acknowledged together. With 1,500 bytes each an acknowledgement of some 80 takes
/// 0.5 % of the forward bytes; E.10 asks for less than 4 %.
const ACK_EVERY: u32 = 10;
/// And how long one may wait for the others. Congestion is told by round trips longer by 50 ms.
const ACK_DELAY: Duration = Duration::from_millis(20);
/// Streams a peer may have open: two for each flow, and what has ended and is not known to have.
pub(super) const STREAMS: u32 = 8_192;
/// What somebody may send who is not known yet.
pub(super) const STRANGER_WINDOW: u32 = 1 << 20;
/// Datagrams that wait to be read or sent; copies are small.
const DATAGRAMS: usize = 1 << 20;

/// QUIC as the tunnel wants it: it never blocks and never batches, since both are decided outside it.
pub(super) fn transport(limits: &Limits, ear: &Ear, window: u64) -> TransportConfig {
    let mut transport = TransportConfig::default();
    let window = VarInt::from_u64(window).unwrap_or(VarInt::MAX);
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(VarInt::from_u32(ACK_EVERY - 1)).max_ack_delay(Some(ACK_DELAY));
    let mut mtu = MtuDiscoveryConfig::default();
    mtu.upper_bound(limits.datagram);
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(STREAMS))
        .max_idle_timeout(Some(VarInt::from_u32(SILENCE.as_millis() as u32).into()))
        .keep_alive_interval(Some(KEEP_ALIVE))
        // credit of our own bounds what waits; these never stop anybody who keeps to it
        .stream_receive_window(quic_window(limits))
        .receive_window(window)
        .send_window(1 << 40)
        .datagram_receive_buffer_size(Some(DATAGRAMS))
        .datagram_send_buffer_size(DATAGRAMS)
        .ack_frequency_config(Some(acks))
        .mtu_discovery_config(Some(mtu))
        .enable_segmentation_offload(false)
        .congestion_controller_factory(Arc::new(ear.clone()));
    transport
}

/// A window that credit is always reached before: what may wait and what may be under way, with frames.
pub(super) fn quic_window(limits: &Limits) -> VarInt {
    VarInt::from_u64(limits.memory.as_u64().saturating_mul(4)).unwrap_or(VarInt::MAX)
}
