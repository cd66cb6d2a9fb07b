//! UDP ASSOCIATE of SOCKS5.

use ekiden_model::units::Span;

/// How much of it there may be. Each association takes the places of two connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Udp {
    /// Associations at once; 0 refuses them all. Default 256.
    pub associations: u32,
    /// Destinations of one association that may answer; beyond, the one spoken to longest ago is forgotten.
    /// Default 256.
    pub destinations: u32,
    /// Nothing came and nothing went for so long: the association ends; nothing was sent to a destination:
    /// it is forgotten. Default 5 min, as RFC 4787 (REQ-5) recommends to address translators.
    pub idle: Span,
}

impl Default for Udp {
    fn default() -> Self {
        Self { associations: 256, destinations: 256, idle: Span::from_secs(300) }
    }
}
