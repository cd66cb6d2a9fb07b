//! RFC 6298 §2 in nanoseconds, with any gains.

use super::{Deviation, Floor, Gain, RtoConfig};
use crate::units::Span;

/// A longer sample counts as this one, so that the largest gain's products fit 64 bits.
pub(super) const LONGEST: Span = Span::from_secs(24 * 60 * 60);

/// The smoothed RTT and its mean deviation, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exact(Option<(i64, i64)>);

impl Exact {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    pub(super) const fn forget(&mut self) {
        self.0 = None;
    }

    /// Answers the time-out before minimum and back-off.
    pub(super) fn on_sample(&mut self, config: &RtoConfig, rtt: Span) -> Span {
        // at most a day
        let rtt = rtt.min(LONGEST).as_nanos() as i64;
        let (smoothed, variance) = match self.0 {
            // RFC 6298 (2.2)
            None => (rtt, rtt / 2),
            // (2.3)
            Some((old, variance)) => {
                let new = towards(old, rtt, config.gain);
                let from = match config.deviation {
                    Deviation::FromOld => old,
                    Deviation::FromNew => new,
                };
                (new, towards(variance, (from - rtt).abs(), config.deviation_gain))
            }
        };
        self.0 = Some((smoothed, variance));
        let mut term =
            span(variance).saturating_mul(config.deviations.into()).max(config.granularity);
        if config.floor == Floor::Variance {
            term = term.max(config.minimum);
        }
        span(smoothed) + term
    }

    pub(super) fn smoothed(&self) -> Option<Span> {
        self.0.map(|(smoothed, _)| span(smoothed))
    }

    pub(super) fn variance(&self) -> Option<Span> {
        self.0.map(|(_, variance)| span(variance))
    }
}

/// (1 − gain) · value + gain · sample; the step is rounded towards the value.
fn towards(value: i64, sample: i64, gain: Gain) -> i64 {
    let step = (sample - value) * i64::from(gain.numerator) / i64::from(gain.denominator).max(1);
    value + step
}

/// Never negative: a value between samples, and samples are none.
const fn span(nanos: i64) -> Span {
    Span::from_nanos(nanos.unsigned_abs())
}
