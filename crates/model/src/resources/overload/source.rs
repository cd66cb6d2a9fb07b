//! Who shares as one: an address, or a network.

use core::net::{IpAddr, SocketAddr};

/// Addresses that share as one: an IPv4 address, or an IPv6 /64, of which one host may use any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // the names say it
pub enum Source {
    V4(u32),
    V6(u64),
}

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

impl Source {
    /// Of a datagram. On loopback each port is a program of its own, and in 0.0.0.0/8 a tunnel's way over TCP.
    pub fn of_datagram(from: SocketAddr) -> Self {
        let host = match from.ip().to_canonical() {
            IpAddr::V4(ip) if ip.is_loopback() || ip.octets()[0] == 0 => ip.to_bits(),
            IpAddr::V6(ip) if ip.is_loopback() => 0,
            ip => return ip.into(),
        };
        // of 0::/16, which nobody has (RFC 4291 §2.4)
        Self::V6(u64::from(host) << 16 | u64::from(from.port()))
    }
}
