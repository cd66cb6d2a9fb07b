//! UDP ASSOCIATE of SOCKS5, and UDP over HTTP (RFC 9298).

use ekiden_model::units::Span;

/// Limits on UDP associations; a request for UDP over HTTP is one, too. Each association counts as two connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Udp {
    /// The most associations at once; 0 refuses all, and offers nothing. Default 1024.
    pub associations: u32,
    /// Destinations of an association that may answer; the least recently used is forgotten.
    /// Default 256.
    pub destinations: u32,
    /// Silence after which an association ends or a destination is forgotten. Default 5 min (RFC
    /// 4787, REQ-5).
    pub idle: Span,
}

impl Default for Udp {
    fn default() -> Self {
        Self { associations: 1_024, destinations: 256, idle: Span::from_secs(300) }
    }
}
