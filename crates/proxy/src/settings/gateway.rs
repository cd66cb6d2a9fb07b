//! The gateway: connections that devices send through this machine, with nothing configured there.

use ekiden_model::units::Span;
use ipnet::IpNet;

/// Which connections are diverted to this relay, and what becomes of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    /// Devices whose forwarded connections are diverted; with `own` false and none here the gateway is off.
    pub devices: Vec<String>,
    /// Whether connections of this machine itself are diverted, but for those of this relay's user, which
    /// must not be root. Default no.
    pub own: bool,
    /// Whether destinations see the client's address on direct connections. Default no.
    pub keep_source: bool,
    /// Where connections go whose first bytes name their destination. Default [`GoTo::Address`].
    pub go_to: GoTo,
    /// How long to wait for a client's first bytes, which may name its destination; zero: not at all. Default
    /// 100 ms.
    pub first_bytes: Span,
    /// What becomes of QUIC. Default [`Quic::Direct`].
    pub quic: Quic,
    /// Destinations that are never diverted.
    pub bypass: Vec<IpNet>,
    /// The mark of diverted packets, and the number of their routing table. Default 25963.
    pub mark: u32,
}

/// Where a diverted connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoTo {
    /// To the address that the client chose. A name in its first bytes is for routes, refusals and logs.
    Address,
    /// To the name in its first bytes where there is one; this relay or its peer resolves it.
    Name,
}

/// What becomes of UDP to port 443.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quic {
    /// It passes by.
    Direct,
    /// It is answered with "port unreachable", so that browsers use TCP at once.
    Block,
    /// It goes through the tunnel that its route leads through; where there is none it is relayed directly or
    /// blocked, as the route says.
    Tunnel,
}

impl Gateway {
    /// Whether anything is diverted.
    pub const fn is_on(&self) -> bool {
        self.own || !self.devices.is_empty()
    }
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            own: false,
            keep_source: false,
            go_to: GoTo::Address,
            first_bytes: Span::from_millis(100),
            quic: Quic::Direct,
            bypass: Vec::new(),
            mark: 25_963,
        }
    }
}
