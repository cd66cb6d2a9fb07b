//! Who asks.

use alloc::sync::Arc;
use core::net::{IpAddr, Ipv6Addr};

/// Whose a question is, for its share and its rate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asker {
    /// This relay, for its own connections.
    Relay,
    /// An account, by its number.
    Account(i64),
    /// A joined relay, by its name.
    Peer(Arc<str>),
    /// A client: an IPv4 address, or an IPv6 network of 64 bits, within which a client chooses its address (RFC 8981).
    Client(IpAddr),
}

impl Asker {
    /// The client at an address.
    pub fn at(client: IpAddr) -> Self {
        Self::Client(match client.to_canonical() {
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
            v4 => v4,
        })
    }
}
