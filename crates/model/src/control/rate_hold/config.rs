//! The terms of a held rate, and its state.

use super::breaker;
use crate::units::{Bytes, Rate, Share, Span};

/// Whose line it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Mode {
    /// Others use the link: never above the allotment. Beside their packets in the same queue it
    /// competes as its TCP connections would, at most eight. Where others were seen within ten minutes
    /// it begins at half its rate after a pause.
    Shared,
    /// The operator's own link: packets of others do not slow it down. Where the link is faster
    /// than the allotment, retransmissions are sent on top, up to a quarter (E.4; Hysteria's
    /// "Brutal").
    Dedicated {
        /// The line's rate; the allotment, or less, where nothing is to be sent in addition.
        line: Rate,
    },
}

/// The terms. Rates count bytes of IP packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// R*.
    pub allotted: Rate,
    /// The minimum rate; 64 kbit/s by default, because E.4's tenth of R* would overdrive a slower
    /// line.
    pub floor: Rate,
    /// What the other direction may carry: its acknowledgements come this way. None by default.
    pub reverse: Rate,
    /// Whose line it is.
    pub mode: Mode,
    /// Q_max: tolerated queueing delay; on a shared line half the round trip if less (at least 15
    /// ms).
    pub queue: Span,
    /// ℓ_nominal: the path's expected random loss; 2 % by default.
    pub nominal_loss: Share,
    /// Bytes that may be in flight, on any path.
    pub memory: Bytes,
}

impl Config {
    /// An allotment on a shared line. Q_max is 50 ms: E.4 allows a quarter of the round trip, on a
    /// satellite 150 ms, which is too long for a keystroke.
    pub const fn new(allotted: Rate) -> Self {
        Self {
            allotted,
            floor: Rate::from_bits_per_second(64_000),
            reverse: Rate::from_bits_per_second(0),
            mode: Mode::Shared,
            queue: Span::from_millis(50),
            nominal_loss: match Share::from_percent(2) {
                Some(share) => share,
                None => Share::NONE,
            },
            memory: Bytes::mib(64),
        }
    }
}

/// The state of a held rate.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Snapshot {
    /// Bits a second that the pacer is to keep.
    pub rate: u64,
    /// The estimated capacity, bits a second; `None` while the allotment passes.
    pub line: Option<u64>,
    /// The path's own round trip.
    pub base: Span,
    /// The last epoch's shortest, beyond it.
    pub queue: Span,
    /// Losses held to be the path's own, 0 … 1.
    pub loss: f64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Reactions to congestion, those undone, and trains sent.
    pub reactions: u64,
    /// See there.
    pub undone: u64,
    /// See there.
    pub trains: u64,
    /// Competing packets stand in the same queue.
    pub contended: bool,
    /// Half the rate is sent, since little was for a while.
    pub resting: bool,
    /// No acknowledgement though packets are in flight: a tenth is sent.
    pub silent: bool,
    /// The circuit breaker.
    pub breaker: breaker::Snapshot,
}

/// Acknowledged or given up for lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentBytes {
    /// The result of [`on_sent`](super::RateHold::on_sent).
    pub epoch: u64,
    /// As passed there.
    pub bytes: Bytes,
}
