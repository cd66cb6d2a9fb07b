//! Repairs of a flow of packets: the sliding-window code of [`super::code`], with whole packets as symbols.
//!
//! RFC 8681 codes packets so: a symbol is a packet, or a part of one, behind its length, and filled with zeros to the longest of its window.
//! Packets keep their numbers, and are released in their order. Nothing is ever retransmitted, and nobody waits for long:
//! after [`decoder::BOUND`] a packet that is missing is given up, because what it carries has a transport of its own.
//!
//! ```text
//! Encoder   on_sent(now, part, path) ─▶ its number, and how far back repairs may still reach
//!           accompany(now, path), step(now, path) ─▶ a repair
//! Decoder   on_packet(now, number, back, part, packet), on_repair(now, repair), on_deadline(now)
//!           release() ─▶ packets in their order; deadline() ─▶ when to ask again
//! ```

pub mod decoder;
pub mod encoder;
#[cfg(test)]
mod laws;
mod parts;

pub use decoder::Decoder;
pub use encoder::{Encoder, PacketPath, PacketStep};
pub use parts::{Part, parts};

use super::field::inverse;

/// The most packets of a window: so many have different columns in the Cauchy matrix. At 20 Mbit/s they take 115 ms.
pub const MOST_PACKETS: u64 = 192;
/// Repairs with different rows: no window needs more of them.
const ROWS: u8 = 64;

/// Bytes before a packet within its symbol: which part of one it is, and its length.
pub const HEAD: usize = 2;
/// Bits of those that are the length.
const LENGTH_BITS: u32 = 14;

/// A repair symbol, and the packets that it is a sum of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketRepair<S> {
    /// The number of the first.
    pub first: u64,
    /// How many, 1 to [`MOST_PACKETS`].
    pub count: u8,
    /// The number of the repair.
    pub nth: u8,
    /// The sum: as long as the longest packet and what stands before it.
    pub symbol: S,
}

/// Of a Cauchy matrix: 1 / (row + column), with rows below [`ROWS`] and columns above.
const fn coefficient(nth: u8, number: u64) -> u8 {
    inverse((nth % ROWS) ^ (ROWS + (number % MOST_PACKETS) as u8))
}

/// What stands before a packet in its symbol; `None` where it is too long.
fn head(part: Part, packet: &[u8]) -> Option<[u8; HEAD]> {
    let length = u16::try_from(packet.len()).ok().filter(|length| *length < 1 << LENGTH_BITS)?;
    Some((u16::from(part.bits()) << LENGTH_BITS | length).to_be_bytes())
}
