//! The WireGuard door's part of the status.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// Clients that come by WireGuard.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WireguardStatus {
    /// The TUN device.
    pub device: String,
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// The relay's public key; absent while nobody can come in.
    pub public_key: Option<String>,
    /// Why nobody can.
    pub error: Option<String>,
    /// The devices that may come in, and those that may not now.
    pub peers: Vec<WireguardPeerStatus>,
    /// Bytes of packets that came in since the start.
    pub received: u64,
    /// Bytes of packets that went out.
    pub sent: u64,
    /// Handshakes since the start.
    pub handshakes: u64,
    /// Those whose sender had to prove its address first.
    pub cookies: u64,
    /// Those beyond the limit of their source, or of all.
    pub limited: u64,
    /// Those with a key that no device has.
    pub unknown: u64,
    /// Datagrams that nobody sent who knows a key.
    pub invalid: u64,
    /// Empty packets, by which devices keep their way open.
    #[serde(default)]
    pub keepalives: u64,
    /// Packets from an address that is not their device's.
    pub forged: u64,
    /// Packets whose heads cannot be read: cut, too many, out of order, or with a way of their own.
    #[serde(default)]
    pub unreadable: u64,
    /// Packets that rules or limits refused.
    pub refused: u64,
    /// Packets for a device that is away, and those that the kernel did not take.
    pub undelivered: u64,
}

/// A device that comes by WireGuard.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WireguardPeerStatus {
    /// Whose it is.
    pub account: String,
    /// Its name within the account.
    pub device: String,
    /// Its public key.
    pub public_key: String,
    /// Its addresses in the tunnel.
    pub addresses: Vec<IpAddr>,
    /// Where its last datagram came from.
    pub endpoint: Option<SocketAddr>,
    /// Seconds since its last handshake: at most some 120 while it is there.
    pub handshake_seconds_ago: Option<f64>,
    /// Bytes of packets from it.
    pub received: u64,
    /// Bytes of packets to it.
    pub sent: u64,
    /// Why it is not served now.
    pub barred: Option<String>,
}
