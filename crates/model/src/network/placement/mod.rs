//! Where a relay should stand, and the expected gain.
//!
//! A split path is as fast as its slowest segment, on which TCP reaches about MSS/RTT · √(3/2p) at
//! loss share p. So a relay stands best where max(RTT · √p) is smallest; with equal loss that is
//! the middle of the RTT. [`best_position`] compares RTT² · p, in integers. [`transfer_time`] adds
//! up handshakes, slow start and full windows; the first two dominate short transfers.
//!
//! Assumed: independent single losses; no other traffic; unlimited processor and buffers; a fluid
//! (packet simulations agree within about 10 %). Clustered loss costs less, bursts of cross traffic
//! more.

mod start;
#[cfg(test)]
mod tests;

pub use start::{Growth, transfer_time};

use crate::units::{Bytes, Share, Span};

/// One segment of a split path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Segment {
    /// Its round-trip time.
    pub rtt: Span,
    /// Its share of lost packets, in the direction of the data.
    pub loss: Share,
}

impl Segment {
    /// RTT² · p in ns² × 10⁻⁹; a sender's rate under loss is inverse to its root. Exact up to an
    /// RTT of six days, saturating above.
    pub fn cost(self) -> u128 {
        let rtt = u128::from(self.rtt.as_nanos());
        (rtt * rtt).saturating_mul(self.loss.as_parts_per_billion().into())
    }
}

/// The way to split a path whose worst segment is least bad; candidates hold their segments from
/// end to end. Equal ones (as without loss) are decided by the longest RTT, because windows limit
/// then, at last the first wins. `None` without candidates; empty ones are passed over.
pub fn best_position<'a>(candidates: impl IntoIterator<Item = &'a [Segment]>) -> Option<usize> {
    let worst = |segments: &[Segment]| {
        let cost = segments.iter().map(|segment| segment.cost()).max()?;
        Some((cost, segments.iter().map(|segment| segment.rtt).max()?))
    };
    let ranked = candidates.into_iter().enumerate().filter_map(|(at, segments)| {
        // of equal ones, `min` keeps the first
        Some((worst(segments)?, at))
    });
    ranked.min().map(|(_, at)| at)
}

/// The sender at the head of a segment, and its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    /// Bytes of data in a packet.
    pub mss: Bytes,
    /// The largest window that sender, receiver and buffers permit together, in bytes.
    pub window: Bytes,
    /// Packets sent before the first acknowledgement (RFC 6928: 10; RFC 3390: 3).
    pub initial_window: u32,
    /// How the window grows in slow start.
    pub growth: Growth,
}

impl Default for Sender {
    /// Linux on Ethernet: MSS 1448 (with time stamps), 3 MiB of a 4 MiB buffer, 10 packets, doubling.
    fn default() -> Self {
        Self {
            mss: Bytes::new(1448),
            window: Bytes::mib(3),
            initial_window: 10,
            growth: Growth::Doubling,
        }
    }
}
