//! An allocator's snapshot, in numbers and in words.

use super::demand::{DemandOrigin, Side};
use crate::units::Bytes;
use alloc::vec::Vec;
use core::fmt;

/// One look at an allocator.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Snapshot {
    /// The pool, B.
    pub budget: Bytes,
    /// Given out explicitly; at most the pool, but with [`Policy::Fixed`](super::Policy::Fixed).
    pub granted: Bytes,
    /// Useful size of all, as of the last tick.
    pub demand: Bytes,
    /// Of that, beyond the pool.
    pub shortage: Bytes,
    /// Bytes in the buffers.
    pub queued: Bytes,
    /// Of that, beyond the pool: sizes are below queues until this much has drained.
    pub overdrawn: Bytes,
    /// Whether the pool is divided, there being less than all could make use of.
    pub short: bool,
    /// Each buffer, by connection.
    pub buffers: Vec<Row>,
}

/// One buffer, as `ekiden explain` shows it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Row {
    /// The connection's number.
    pub id: u64,
    /// Which of its buffers.
    pub side: Side,
    /// Its useful size.
    pub demand: Bytes,
    /// Its size; `None` where the kernel tunes it.
    pub grant: Option<Bytes>,
    /// Bytes in it.
    pub queued: Bytes,
    /// Where the demand comes from.
    pub why: DemandOrigin,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { side, demand, why, .. } = self;
        let demand = kib(*demand);
        match self.grant {
            None => write!(f, "{side}: tuned by the kernel, since there is enough; ")?,
            Some(grant) => write!(f, "{side}: {} granted; ", kib(grant))?,
        }
        write!(f, "{demand} of use: {why}")
    }
}

/// In whole KiB from one on, rounded: an exact number of bytes says no more.
fn kib(bytes: Bytes) -> Bytes {
    let n = bytes.as_u64();
    if n < 1_024 { bytes } else { Bytes::kib(n / 1_024 + u64::from(n % 1_024 >= 512)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::buffers::demand::{rate as bits, share};
    use crate::resources::buffers::{CUBIC, Limit};
    use crate::testing::*;

    #[test]
    fn in_words() {
        let rate = |limit, shift| DemandOrigin::Rate {
            gamma: CUBIC,
            rate: bits(396_270.9),
            rtt: Span::from_nanos(100_000_700),
            limit,
            shift,
        };
        let row = Row {
            id: 3,
            side: Side::Send,
            demand: Bytes::new(46_759),
            grant: Some(Bytes::kib(31)),
            queued: Bytes::ZERO,
            why: rate(Limit::Loss(share(0.001)), 0),
        };
        let expected = "send: 31 KiB granted; 46 KiB of use: 1.18 × 3.17 Mbit/s × 100 ms, limited by \
                        its path (0.1 % lost)";
        assert_eq!(row.to_string(), expected);
        let why = rate(Limit::Partner(7), -2);
        let row = Row { side: Side::Receive, grant: None, why, ..row };
        let expected = "receive: tuned by the kernel, since there is enough; 46 KiB of use: 1.18 × \
                        3.17 Mbit/s × 100 ms, limited by connection 7; 1/4 of it, since little of it \
                        was used";
        assert_eq!(row.to_string(), expected);
        let full = rate(Limit::Received, 1).to_string();
        assert!(
            full.ends_with("limited by what it received lately; × 2, since it was full"),
            "{full}"
        );
        assert_eq!(DemandOrigin::Idle { halved: 0 }.to_string(), "idle, as it was");
        assert_eq!(DemandOrigin::Idle { halved: 3 }.to_string(), "idle, halved 3 times");
    }
}
