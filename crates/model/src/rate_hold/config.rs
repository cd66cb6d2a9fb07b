//! What is agreed about a rate, and what there is to see of one that is held.

use super::breaker;
use crate::units::{Bytes, Rate, Share, Span};

/// Whose line it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Mode {
    /// Others are on it: never above the allotment. Where their packets stand in the same queue it takes
    /// turns with them as the TCP connections would that it carries, up to eight; and after a pause it
    /// begins at half its rate.
    Shared,
    /// The operator's own: others' packets in its queue do not slow it down. Where the line is faster than
    /// the allotment, what the path loses may be sent in addition, up to a quarter more and to the line's
    /// rate (E.4's compensation; Hysteria's «Brutal»).
    Dedicated {
        /// The line's rate; the allotment, or less, where nothing is to be sent in addition.
        line: Rate,
    },
}

/// What is agreed. Rates count bytes of IP packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// R*.
    pub allotted: Rate,
    /// No less is sent, whatever happens. 64 kbit/s by default, five packets a second: E.4's tenth of R* goes
    /// on overdriving a line that gives less than that.
    pub floor: Rate,
    /// Whose line it is.
    pub mode: Mode,
    /// Q_max: how long packets may wait in the line's queue before that is congestion; on a shared line
    /// half the round trip where that is less (but 15 ms).
    pub queue: Span,
    /// ℓ_nominal: losses that the path is expected to have by itself; 2 % by default.
    pub nominal_loss: Share,
    /// Bytes that may be under way, whatever the path.
    pub memory: Bytes,
}

impl Config {
    /// An allotment on a shared line; the rest by default. Q_max is 50 ms: E.4 allows up to a quarter of
    /// the round trip, which on a satellite is 150 ms, as long as a keystroke should wait in all.
    #[must_use]
    pub const fn new(allotted: Rate) -> Self {
        Self {
            allotted,
            floor: Rate::from_bits_per_second(64_000),
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

/// What there is to see.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Snapshot {
    /// Bits a second that the pacer is to keep.
    pub rate: u64,
    /// What the line is believed to give, bits a second; `None` while it gives what is asked.
    pub line: Option<u64>,
    /// The path's own round trip.
    pub base: Span,
    /// The last epoch's shortest, beyond it.
    pub queue: Span,
    /// Losses held to be the path's own, 0 … 1.
    pub loss: f64,
    /// Bytes under way.
    pub in_flight: u64,
    /// Reactions to congestion, those undone, and trains sent.
    pub reactions: u64,
    /// See there.
    pub undone: u64,
    /// See there.
    pub trains: u64,
    /// Others' packets stand in the same queue.
    pub contended: bool,
    /// Half the rate is sent, since little was for a while.
    pub resting: bool,
    /// Nothing is heard though something is under way: a tenth is sent.
    pub silent: bool,
    /// The circuit breaker.
    pub breaker: breaker::Snapshot,
}

/// Acknowledged or given up for lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// What [`on_sent`](super::RateHold::on_sent) answered.
    pub epoch: u64,
    /// As told there.
    pub bytes: Bytes,
}
