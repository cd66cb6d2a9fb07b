//! The estimate in ticks of a coarse clock, by shifts: Jacobson 1988, appendix A, as 4.3BSD and
//! ns-2.

use crate::units::{Span, Time};

/// From this back-off on an estimate is given up (4.3BSD: a quarter of the most shifts).
const TOO_FAR: u32 = 8;

/// srtt and rttvar, in parts of a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticks {
    tick: u64,
    /// From the origin to the first boundary, in nanoseconds.
    phase: u64,
    /// In eighths of a tick; 0 without an estimate.
    smoothed: i64,
    /// In quarters of a tick.
    variance: i64,
}

impl Ticks {
    pub(super) fn new(tick: Span, phase: Span) -> Self {
        let tick = tick.as_nanos().max(1);
        Self { tick, phase: phase.as_nanos() % tick, smoothed: 0, variance: 0 }
    }

    pub(super) const fn forget(&mut self) {
        self.smoothed = 0;
        self.variance = 0;
    }

    /// Answers the time-out before minimum and back-off.
    pub(super) fn on_sample(&mut self, sent: Time, now: Time) -> Span {
        let crossed = self.boundaries(now).saturating_sub(self.boundaries(sent)).max(1);
        // far below the largest number, so that no sum overflows
        let rtt = i64::try_from(crossed).unwrap_or(i64::MAX).min(1 << 40);
        if self.smoothed == 0 {
            self.smoothed = rtt << 3;
            self.variance = rtt << 1;
        } else {
            let error = rtt - (self.smoothed >> 3);
            self.smoothed = (self.smoothed + error).max(1);
            self.variance = (self.variance + error.abs() - (self.variance >> 2)).max(1);
        }
        // srtt + 4 · rttvar, cut to whole ticks
        let ticks = (self.smoothed + (self.variance << 3)) >> 3;
        Span::from_nanos(self.tick).saturating_mul(ticks.unsigned_abs())
    }

    /// Backed off far: the path may be another, so the old RTT is kept as deviation alone.
    pub(super) const fn on_backoff(&mut self, backoff: u32) {
        if backoff > TOO_FAR {
            self.variance += self.smoothed >> 3;
            self.smoothed = 0;
        }
    }

    /// A timer of less than two ticks could fire at once.
    pub(super) const fn least(&self) -> Span {
        Span::from_nanos(self.tick.saturating_mul(2))
    }

    pub(super) fn smoothed(&self) -> Option<Span> {
        (self.smoothed > 0).then(|| self.parts(self.smoothed, 8))
    }

    pub(super) fn variance(&self) -> Option<Span> {
        (self.smoothed > 0).then(|| self.parts(self.variance, 4))
    }

    /// Boundaries up to and at `time`, give or take one that is the same for all times.
    const fn boundaries(&self, time: Time) -> u64 {
        time.as_nanos().saturating_add(self.tick - self.phase) / self.tick
    }

    fn parts(&self, n: i64, parts: u64) -> Span {
        Span::from_nanos(self.tick.saturating_mul(n.unsigned_abs()) / parts)
    }
}
