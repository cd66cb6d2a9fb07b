//! Tunnels to peers.

use ekiden_model::units::Bytes;
pub use ekiden_tunnel::driver::TransportMode;
use std::net::SocketAddr;
use std::path::PathBuf;

/// When a client that asks for a connection through a tunnel is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunnelAnswer {
    /// Once the tunnel is up. The client's first bytes travel with the request; a destination that refuses breaks the
    /// connection.
    AtOnce,
    /// Once the destination is connected, a round trip later. A refusal has its own answer.
    Connected,
}

/// Tunnel settings. `ekiden peer` keeps the list of peers in files beside the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    /// UDP addresses on which invited peers connect; empty: none can connect.
    pub listen: Vec<SocketAddr>,
    /// Whether tunnels may fall back to TLS over TCP where UDP is blocked. Default [`TransportMode::Auto`].
    pub carrier: TransportMode,
    /// When clients of CONNECT and SOCKS are answered. Default [`TunnelAnswer::AtOnce`].
    pub answer: TunnelAnswer,
    /// The directory with this relay's certificate and its peers; `None`: no tunnels.
    pub state: Option<PathBuf>,
    /// Memory of each tunnel for unread received bytes, and as much for bytes in flight. Default
    /// 128 MiB.
    pub memory: Bytes,
    /// DSCP of interactive packets, 0 to 63. Default 34 (AF41, RFC 4594 §4.4).
    pub interactive_dscp: u8,
    /// DSCP of all other packets. Default 0.
    pub bulk_dscp: u8,
}

impl Default for Tunnel {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            carrier: TransportMode::Auto,
            answer: TunnelAnswer::AtOnce,
            state: None,
            memory: Bytes::mib(128),
            interactive_dscp: 34,
            bulk_dscp: 0,
        }
    }
}
