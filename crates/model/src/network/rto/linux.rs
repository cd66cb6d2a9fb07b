//! Linux's estimate. It differs from RFC 6298, so that the time-out stays up where steady delays
//! jump:
//!
//! - the greatest mean deviation of an RTT counts, and falls by a quarter of the difference each
//!   RTT;
//! - four times it are at least the minimum: the time-out is srtt + 200 ms or more;
//! - a deviation that grows because the RTT falls weighs 1/32 instead of 1/4.

use super::exact::LONGEST;
use crate::units::{Span, Time};

/// All in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Linux {
    path: Option<Path>,
    /// When the current RTT began: it ends when something sent after it is acknowledged.
    began: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Path {
    /// Eightfold, so that no eighth is lost.
    smoothed: i64,
    mean: i64,
    /// The greatest mean deviation of this RTT, at least the minimum.
    greatest: i64,
    /// The one that counts.
    counts: i64,
}

impl Linux {
    pub(super) const fn new(now: Time) -> Self {
        Self { path: None, began: now }
    }

    pub(super) const fn forget(&mut self) {
        self.path = None;
    }

    /// Answers the time-out before back-off.
    pub(super) fn on_sample(&mut self, minimum: Span, sent: Time, now: Time) -> Span {
        let nanos = |span: Span| span.min(LONGEST).as_nanos() as i64;
        let (rtt, minimum) = (nanos(now.since(sent)), nanos(minimum));
        let mut path = match self.path {
            None => {
                self.began = now;
                let counts = (rtt * 2).max(minimum);
                Path { smoothed: rtt * 8, mean: rtt * 2, greatest: counts, counts }
            }
            Some(path) => path.after(rtt),
        };
        if self.path.is_some() && sent >= self.began {
            path.counts -= (path.counts - path.greatest).max(0) / 4;
            path.greatest = minimum;
            self.began = now;
        }
        self.path = Some(path);
        Span::from_nanos((path.smoothed / 8 + path.counts).unsigned_abs())
    }

    pub(super) fn smoothed(&self) -> Option<Span> {
        self.path.map(|path| Span::from_nanos((path.smoothed / 8).unsigned_abs()))
    }

    pub(super) fn variance(&self) -> Option<Span> {
        self.path.map(|path| Span::from_nanos((path.counts / 4).unsigned_abs()))
    }
}

impl Path {
    fn after(self, rtt: i64) -> Self {
        let error = rtt - self.smoothed / 8;
        let change = error.abs() - self.mean / 4;
        let change = if error < 0 && change > 0 { change / 8 } else { change };
        let mean = self.mean + change;
        let greatest = self.greatest.max(mean);
        Self {
            smoothed: (self.smoothed + error).max(1),
            mean,
            greatest,
            counts: self.counts.max(greatest),
        }
    }
}
