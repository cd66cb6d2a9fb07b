//! Where a relay should stand, and the expected gain.
//!
//! A split path is as fast as its slowest segment, on which TCP reaches about MSS/RTT · √(3/2p) at
//! loss share p. So a relay stands best where max(RTT · √p) is smallest; with equal loss that is
//! the middle of the RTT. [`best_position`] compares RTT² · p, in integers. [`Sender`] bounds one
//! segment by its window and losses; [`transfer_time`] adds handshakes and slow start, which
//! dominate short transfers.
//!
//! Assumed: independent single losses; no other traffic; unlimited processor and buffers; a fluid
//! (packet simulations agree within about 10 %). Clustered loss costs less, bursts of cross traffic
//! more.

mod start;
#[cfg(test)]
mod tests;

pub use start::{Growth, transfer_rate, transfer_time};

use crate::units::{Bytes, Rate, Share, Span};

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
    /// Packets that one acknowledgement answers: 1, or 2 with delayed acknowledgements (RFC 1122).
    pub packets_per_ack: u32,
}

impl Default for Sender {
    /// Linux on Ethernet: MSS 1448 (with time stamps), 3 MiB of a 4 MiB buffer, 10 packets, doubling.
    fn default() -> Self {
        Self {
            mss: Bytes::new(1448),
            window: Bytes::mib(3),
            initial_window: 10,
            growth: Growth::Doubling,
            packets_per_ack: 1,
        }
    }
}

/// The rate that one segment can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Limits {
    /// A window in each round trip; `None` where the RTT is 0.
    pub window: Option<Rate>,
    /// Under loss, as Reno and as CUBIC in its friendly region do; `None` without loss or RTT.
    pub loss: Option<Rate>,
    /// Under loss, as CUBIC does.
    pub cubic_loss: Option<Rate>,
}

impl Limits {
    /// The least of window and CUBIC's loss limit; `None` where nothing limits.
    pub fn least(self) -> Option<Rate> {
        self.window.into_iter().chain(self.cubic_loss).min()
    }
}

const SCALE: u128 = 1_000_000_000;

impl Sender {
    /// The limits of a segment.
    pub fn limits(&self, segment: Segment) -> Limits {
        Limits {
            window: self.window_limit(segment.rtt),
            loss: self.loss_limit(segment),
            cubic_loss: self.cubic_loss_limit(segment),
        }
    }

    /// Window / RTT; `None` when the RTT is 0.
    pub fn window_limit(&self, rtt: Span) -> Option<Rate> {
        Rate::of(self.window, rtt)
    }

    /// MSS/RTT · √(3/(2·b·p)) (Mathis et al. 1997); `None` when nothing is lost or the RTT is 0.
    pub fn loss_limit(&self, segment: Segment) -> Option<Rate> {
        self.rate(self.reno_window(segment, self.packets_per_ack)?, segment.rtt)
    }

    /// RFC 9438 §5.1, C = 0.4, β = 0.7: the larger of 1.054 · (RTT/p)^¾ and √(3/2p) packets; `None`
    /// without loss or RTT.
    pub fn cubic_loss_limit(&self, segment: Segment) -> Option<Rate> {
        let friendly = self.reno_window(segment, 1)?;
        // RTT in ns over loss in parts per 10⁹ is RTT in s over loss
        let rtt = u128::from(segment.rtt.as_nanos());
        let ratio = (rtt * SCALE).checked_div(segment.loss.as_parts_per_billion().into())?;
        let half = ratio.saturating_mul(SCALE).isqrt();
        let quarter = half.saturating_mul(SCALE).isqrt();
        let cubic = (half.saturating_mul(quarter) / SCALE).saturating_mul(1_054) / 1_000;
        self.rate(cubic.max(friendly), segment.rtt)
    }

    /// √(3/(2·b·p)) in packets × [`SCALE`].
    fn reno_window(&self, segment: Segment, packets_per_ack: u32) -> Option<u128> {
        let parts = u128::from(segment.loss.as_parts_per_billion());
        let square = (3 * SCALE * SCALE * SCALE)
            .checked_div(2 * u128::from(packets_per_ack.max(1)) * parts)?;
        Some(square.isqrt())
    }

    /// A window of so many packets × [`SCALE`] in each RTT.
    fn rate(&self, window: u128, rtt: Span) -> Option<Rate> {
        let bytes = window.saturating_mul(self.mss.as_u64().into()) / SCALE;
        Rate::of(Bytes::new(u64::try_from(bytes).unwrap_or(u64::MAX)), rtt)
    }
}

/// The long-run rate of a path split into `segments`, all with this sender, at most `line`; and the
/// segment that limits, `None` for the line.
pub fn steady_rate(sender: &Sender, segments: &[Segment], line: Rate) -> (Rate, Option<usize>) {
    let limit = |(at, of): (usize, &Segment)| Some((sender.limits(*of).least()?, at));
    match segments.iter().enumerate().filter_map(limit).min() {
        Some((rate, at)) if rate < line => (rate, Some(at)),
        _ => (line, None),
    }
}
