//! Who shares as one: an address, a network, or a peer.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Who shares as one: an IPv4 address, an IPv6 /64, of which one host may use any, or the relay at the other end of a
/// tunnel. An address that only datagrams bear may be forged, and is apart from the same one of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[allow(missing_docs)] // the names say it
pub enum Source {
    V4(u32),
    V6(u64),
    UnprovenV4(u32),
    UnprovenV6(u64),
    /// A joined peer, by a number that the driver gave it.
    Peer(u32),
}

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

impl fmt::Display for Source {
    /// The address, or the network's prefix. The driver knows the name of a peer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(address) | Self::UnprovenV4(address) => Ipv4Addr::from_bits(*address).fmt(f),
            Self::V6(network) | Self::UnprovenV6(network) => {
                write!(f, "{}/64", Ipv6Addr::from_bits(u128::from(*network) << 64))
            }
            Self::Peer(number) => write!(f, "peer {number}"),
        }
    }
}

impl Source {
    /// How many times what is free of a shared budget it may have: a peer speaks for all clients behind it.
    pub const fn of_free(self) -> u64 {
        if self.is_invited() { 8 } else { 1 }
    }

    /// Whether it was invited: places kept for accounts are for it, too.
    pub const fn is_invited(self) -> bool {
        matches!(self, Self::Peer(_))
    }

    /// Of a client whose address only its datagrams bear.
    pub fn unproven(address: IpAddr) -> Self {
        match Self::from(address) {
            Self::V4(address) => Self::UnprovenV4(address),
            Self::V6(network) => Self::UnprovenV6(network),
            other => other,
        }
    }

    /// Of a datagram that came over UDP: the same, but on loopback each port is a program of its own.
    pub fn of_datagram(from: SocketAddr) -> Self {
        let host = match from.ip().to_canonical() {
            IpAddr::V4(ip) if ip.is_loopback() => ip.to_bits(),
            IpAddr::V6(ip) if ip.is_loopback() => 0,
            ip => return Self::unproven(ip),
        };
        // of 0::/16, which nobody has (RFC 4291 §2.4)
        Self::V6(u64::from(host) << 16 | u64::from(from.port()))
    }
}
