//! Repairs of a flow of packets: the sliding-window code of [`super::code`], with whole packets as symbols.
//!
//! RFC 8681 codes packets so: a symbol is a packet behind its length, and filled with zeros to the longest of its window.
//! Packets keep their numbers, and are released in their order. Nothing is ever retransmitted, and nobody waits for long:
//! after [`decoder::BOUND`] a packet that is missing is given up, because what it carries has a transport of its own.
//!
//! ```text
//! Encoder   on_sent(now, packet, path) ─▶ its number, and how far back repairs may still reach
//!           accompany(now, path), step(now, path) ─▶ a repair
//! Decoder   on_packet(now, number, back, packet), on_repair(now, repair), on_deadline(now)
//!           release() ─▶ packets in their order; deadline() ─▶ when to ask again
//! ```

pub mod decoder;
pub mod encoder;
#[cfg(test)]
mod laws;

pub use decoder::Decoder;
pub use encoder::{Encoder, PacketPath, PacketStep};

use super::field::inverse;

/// The most packets of a window: so many have different columns in the Cauchy matrix.
pub const MOST_PACKETS: u64 = 128;

/// Bytes of a packet's length within its symbol.
pub const LENGTH: usize = 2;

/// A repair symbol, and the packets that it is a sum of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketRepair<S> {
    /// The number of the first.
    pub first: u64,
    /// How many, 1 to [`MOST_PACKETS`].
    pub count: u8,
    /// The number of the repair.
    pub nth: u8,
    /// The sum: as long as the longest packet and its length.
    pub symbol: S,
}

/// Of a Cauchy matrix: 1 / (row + column), with rows below 128 and columns above.
const fn coefficient(nth: u8, number: u64) -> u8 {
    inverse((nth & 0x7f) ^ (0x80 | (number & 0x7f) as u8))
}

/// A packet's length, as it stands in its symbol; `None` where it is too long.
fn length(packet: &[u8]) -> Option<[u8; LENGTH]> {
    u16::try_from(packet.len()).ok().map(u16::to_be_bytes)
}
