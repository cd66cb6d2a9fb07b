//! The cost of a start: handshakes, slow start, and the rest at full window.

use super::Sender;
use crate::units::{Bytes, Rate, Span};

/// How a window grows in slow start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// ×2 in each round trip: each packet acknowledged, or bytes counted (RFC 3465).
    Doubling,
    /// ×1.5 in each round trip: every second packet acknowledged, packets counted.
    OneAndAHalf,
}

impl Growth {
    /// Twice the factor.
    const fn halves(self) -> u128 {
        match self {
            Self::Doubling => 4,
            Self::OneAndAHalf => 3,
        }
    }
}

/// Windows grow in fractions of a packet; kept to 2⁻³².
const SCALE_BITS: u32 = 32;
/// More rounds than any transfer takes to its full window: 1.5⁶³ packets are 10¹¹.
const MOST_ROUNDS: u32 = 64;

/// How long `bytes` take without loss over a path of `rtts`, one a segment, at no more than `line`:
/// from opening the first connection to the last byte's arrival.
///
/// With γ the growth, N the packets, and w the full window min(W, C·RTT)/MSS of the longest segment
/// (a fraction of packets), slow start takes the smallest r rounds with IW·(γʳ−1)/(γ−1) ≥ N or
/// IW·γʳ ≥ w; the rest goes at w a round. Handshakes are one after the other (ΣRTT), request and
/// last data cross the whole path (ΣRTT/2 each), and only the longest segment's rounds count.
/// Segments without RTT cost nothing; `None` when nothing can be sent (no segment; a line, MSS or
/// window of 0).
pub fn transfer_time(sender: &Sender, rtts: &[Span], line: Rate, bytes: Bytes) -> Option<Span> {
    let longest = rtts.iter().max()?.as_nanos();
    let whole = rtts.iter().fold(Span::ZERO, |sum, rtt| sum + *rtt);
    let mss = u128::from(sender.mss.as_u64());
    let rate = u128::from(line.as_bits_per_second());
    if mss == 0 || rate == 0 || sender.window == Bytes::ZERO {
        return None;
    }
    // in packets × 2³²
    let wanted = u128::from(bytes.as_u64()).div_ceil(mss) << SCALE_BITS;
    let in_flight = rate * u128::from(longest) / 8_000_000_000;
    let full = (in_flight.min(sender.window.as_u64().into()) << SCALE_BITS) / mss;
    let mut window = u128::from(sender.initial_window.max(1)) << SCALE_BITS;
    let (mut sent, mut rounds) = (0, 0);
    while rounds < MOST_ROUNDS && sent < wanted && window < full {
        sent += window;
        window = window * sender.growth.halves() / 2;
        rounds += 1;
    }
    let slow_start = u128::from(longest) * u128::from(rounds);
    let left = wanted.saturating_sub(sent);
    let rest = match full {
        // no round trips: the line alone
        0 => (left >> SCALE_BITS) * mss * 8_000_000_000 / rate,
        _ => left.saturating_mul(longest.into()) / full,
    };
    let nanos = slow_start.saturating_add(rest).saturating_add(u128::from(whole.as_nanos()) * 2);
    Some(Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
}
