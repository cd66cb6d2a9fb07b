//! Tunnels to other relays.

use ekiden_model::units::Bytes;
pub use ekiden_tunnel::driver::Carrier;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What tunnels are made of. Which relays there are is kept in files beside the configuration, by
/// `ekiden relay`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    /// Where the relays that were invited come, over UDP; empty: none can come.
    pub listen: Vec<SocketAddr>,
    /// Whether tunnels may go over TLS on TCP where UDP does not get through. Default [`Carrier::Auto`].
    pub carrier: Carrier,
    /// The directory with this relay's certificate and the relays it knows; `None` where there is none, and
    /// so no tunnels.
    pub state: Option<PathBuf>,
    /// For what a tunnel's flows brought and nobody has taken yet, and for what is under way; each, for
    /// every tunnel. Default 128 MiB.
    pub memory: Bytes,
    /// DSCP of what is interactive, 0 to 63. Default 34 (AF41, RFC 4594 §4.4).
    pub interactive_dscp: u8,
    /// DSCP of everything else. Default 0.
    pub bulk_dscp: u8,
}

impl Default for Tunnel {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            carrier: Carrier::Auto,
            state: None,
            memory: Bytes::mib(128),
            interactive_dscp: 34,
            bulk_dscp: 0,
        }
    }
}
