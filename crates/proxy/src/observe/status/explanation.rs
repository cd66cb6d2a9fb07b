//! What `ekiden explain` says of a connection and of an account.

use super::{AccountStatus, ConnectionStatus, GrantStatus, TunnelStatus, WireguardPeerStatus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `ekiden explain` says of one connection.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// The connection and the kernel's figures.
    pub connection: ConnectionStatus,
    /// Why it is of its class, in words.
    pub class: String,
    /// Which way it goes and why, in words.
    pub route: String,
    /// Whether it counts as idle and may be closed to make room, in words.
    pub idle: String,
    /// Whose it is, and for what it waits by that account's limits, in words.
    #[serde(default)]
    pub limits: String,
    /// What holds its bytes back, as far as this relay sees it, in words.
    #[serde(default)]
    pub slowest: String,
    /// The legs' buffers, the client's first.
    pub legs: Vec<LegExplanation>,
}

/// The buffers of one leg.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LegExplanation {
    /// `client` or `upstream`.
    pub side: String,
    /// Sending and receiving.
    pub buffers: Vec<GrantStatus>,
}

/// What `ekiden explain` says of an account, or of the connections that a peer's tunnel carries.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct AccountExplanation {
    /// The account's name, or the peer's.
    pub name: String,
    /// Its limits and what it uses of them; absent for a peer, and where nothing is known of it.
    pub account: Option<AccountStatus>,
    /// The tunnel to the peer of that name, where there is one.
    #[serde(default)]
    pub tunnel: Option<TunnelStatus>,
    /// Its devices that come by WireGuard.
    #[serde(default)]
    pub wireguard: Vec<WireguardPeerStatus>,
    /// Why it is not served now, in words; absent where it is.
    pub barred: Option<String>,
    /// Connections now.
    pub connections: u64,
    /// The last name that took a second or more to look up, for any client, within the last minute, in words.
    pub slow_lookup: Option<String>,
    /// Its busiest connections, at most twenty.
    pub explained: Vec<Explanation>,
}
