//! The gateway's part of the status.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Connections that are diverted to this relay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayStatus {
    /// Whether the rules are in effect; otherwise everything passes by.
    pub in_effect: bool,
    /// Why they are not.
    pub error: Option<String>,
    /// When they are tried again, where they could not be set.
    #[serde(default)]
    pub retry_in_seconds: Option<u64>,
    /// How often they were set again because nft had ended, or another program had removed them.
    #[serde(default)]
    pub restored: u64,
    /// The devices whose connections are diverted.
    pub devices: Vec<GatewayDevice>,
    /// Whether this machine's own connections are.
    pub own_traffic: bool,
    /// Where diverted connections arrive.
    pub listen: Vec<SocketAddr>,
    /// The mark of diverted packets, and the number of their routing table.
    pub mark: u32,
    /// Live diverted connections.
    pub live: u64,
    /// Connections of devices that were diverted.
    pub diverted: u64,
    /// This machine's own that were.
    pub own: u64,
    /// Of both, those that named their destination in TLS.
    pub named_tls: u64,
    /// Those that named it in HTTP.
    pub named_http: u64,
    /// Those that did not name it.
    pub unnamed: u64,
    /// Connections that came to the gateway's own port without being diverted. They were reset.
    pub stray: u64,
    /// Where diverted QUIC arrives.
    pub listen_quic: Vec<SocketAddr>,
    /// Flows of QUIC through tunnels.
    pub quic_tunneled: u64,
    /// Flows of QUIC that this machine sent on directly, because their route leads through no tunnel that is up.
    pub quic_direct: u64,
    /// Of both, those that named their destination.
    pub quic_named: u64,
    /// Flows of QUIC that were answered with "port unreachable": rules or limits forbid them, or there is no way.
    pub quic_blocked: u64,
}

/// A device of the gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayDevice {
    /// Its name.
    pub name: String,
    /// Whether it is there.
    pub present: bool,
}
