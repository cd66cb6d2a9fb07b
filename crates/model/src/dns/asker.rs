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
    /// Somebody behind an account's or a joined relay's tunnel, by a number of that relay's choice.
    Behind(Arc<Self>, u8),
}

impl Asker {
    /// The client at an address.
    pub fn at(client: IpAddr) -> Self {
        Self::Client(match client.to_canonical() {
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
            v4 => v4,
        })
    }

    /// In whose share its questions are. A relay numbers those behind it as it likes, so a number must gain it nothing.
    pub fn whole(&self) -> &Self {
        match self {
            Self::Behind(whole, _) => whole,
            Self::Relay | Self::Account(_) | Self::Peer(_) | Self::Client(_) => self,
        }
    }
}

/// One of many askers of all kinds but those behind a tunnel.
#[cfg(test)]
pub(super) fn nth(n: usize) -> Asker {
    match n {
        0 => Asker::Relay,
        1 => Asker::Account(1),
        2 => Asker::Peer("ship".into()),
        _ => Asker::at([192, 0, 2, n as u8].into()),
    }
}
