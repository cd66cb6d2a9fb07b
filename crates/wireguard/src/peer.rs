//! One peer: its session, where it is, and what it moved.

use crate::engine::Way;
use crate::keys::PublicKey;
use boringtun::noise::Tunn;
use ekiden_model::units::Time;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// A peer as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerSettings {
    /// Its public key.
    pub key: PublicKey,
    /// Its address in the tunnel.
    pub v4: Ipv4Addr,
    /// The other one.
    pub v6: Ipv6Addr,
    /// Whose it is.
    pub account: String,
    /// Which of the account's devices.
    pub device: String,
    /// Why it is not served now; then it gets no answer.
    pub barred: Option<String>,
}

/// A peer as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerSnapshot {
    /// How it is configured.
    pub settings: PeerSettings,
    /// Where it was last.
    pub endpoint: Option<SocketAddr>,
    /// When a session was last agreed on.
    pub handshake: Option<Time>,
    /// Bytes of packets that came from it.
    pub received: u64,
    /// Bytes of packets that went to it.
    pub sent: u64,
}

/// A peer that is served.
pub(crate) struct Peer {
    pub(crate) settings: PeerSettings,
    pub(crate) session: Tunn,
    /// Where its last authenticated datagram came from.
    pub(crate) way: Option<Way>,
    /// When a session was agreed on, as of the last tick.
    pub(crate) handshake: Option<Time>,
    /// Whether its timers run: it has a session, or one is being agreed on.
    pub(crate) is_active: bool,
    /// Whether packets wait in the session for its handshake.
    pub(crate) has_queue: bool,
    /// Bytes of packets from it and to it.
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

impl Peer {
    pub(crate) fn new(settings: PeerSettings, session: Tunn) -> Self {
        Self {
            settings,
            session,
            way: None,
            handshake: None,
            is_active: false,
            has_queue: false,
            received: 0,
            sent: 0,
        }
    }

    /// When the session in use was agreed on, or else the last one.
    pub(crate) fn agreed(&self, now: Time) -> Option<Time> {
        let since = self.session.time_since_last_handshake();
        let nanos = |since: Duration| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let begun = since.map(|since| now.as_nanos().saturating_sub(nanos(since)));
        begun.map(Time::from_nanos).or(self.handshake)
    }
}
