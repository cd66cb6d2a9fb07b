//! Ports whose connections go to one destination each.

use crate::destination::Destination;
use std::net::SocketAddr;

/// Listening addresses, and the one destination of what arrives there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortForward {
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// Where everything goes, by its route.
    pub to: Destination,
    /// What is forwarded.
    pub protocol: ForwardProtocol,
    /// The header that tells the destination the client's address.
    pub send_proxy: SendProxy,
}

/// What a port forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardProtocol {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
    /// Both.
    Both,
}

impl ForwardProtocol {
    /// Whether it forwards connections.
    pub const fn tcp(self) -> bool {
        matches!(self, Self::Tcp | Self::Both)
    }

    /// Whether it forwards datagrams.
    pub const fn udp(self) -> bool {
        matches!(self, Self::Udp | Self::Both)
    }
}

/// A header of the PROXY protocol before a connection's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendProxy {
    /// None.
    Off,
    /// In text.
    V1,
    /// In binary.
    V2,
}
