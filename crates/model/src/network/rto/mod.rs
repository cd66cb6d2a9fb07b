//! The retransmission time-out (RTO): how long a sender waits for an acknowledgement.
//!
//! ```text
//! on_sample(sent, now)   an RTT was measured, by Karn's algorithm only of segments sent once
//! on_progress()          new data was acknowledged, which ends the back-off
//! on_timeout()           the timer fired: the next one waits twice as long
//! on_lost_syn()          the handshake is done, and its SYN had to be retransmitted
//! reset()                back to no estimate, as at first
//! timeout()              how long to wait now; the timer itself is the sender's
//! ```
//!
//! | [`Estimator`] | keeps | as |
//! |---|---|---|
//! | `Exact` | srtt and rttvar in nanoseconds, any gains | RFC 6298 |
//! | `Ticks` | srtt in ⅛, rttvar in ¼ ticks of a coarse clock | 4.3BSD (Jacobson 1988), ns-2 |
//! | `Linux` | the greatest deviation of an RTT, at least the minimum | Linux |

mod exact;
mod linux;
#[cfg(test)]
mod rfc6298;
#[cfg(test)]
mod tests;
mod ticks;

use crate::units::{Span, Time};
use alloc::string::String;
use exact::Exact;
use linux::Linux;
use ticks::Ticks;

/// The weight of a new sample, as a fraction, as the papers write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gain {
    /// At least 1, and at most the denominator.
    pub numerator: u16,
    /// Of the fraction.
    pub denominator: u16,
}

impl Gain {
    /// 1/8: g of RFC 6298 (α).
    pub const EIGHTH: Self = Self { numerator: 1, denominator: 8 };
    /// 1/4: h of RFC 6298 (β).
    pub const QUARTER: Self = Self { numerator: 1, denominator: 4 };
    /// 7/8: g of the thin-client study's second remedy; three samples leave a memory of (1/8)³.
    pub const SEVEN_EIGHTHS: Self = Self { numerator: 7, denominator: 8 };
}

/// From which smoothed RTT a sample's deviation is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deviation {
    /// The one before the sample, as RFC 6298 (2.3) demands.
    FromOld,
    /// The estimate after it, as the thin-client study prints: the deviation is (1 − g) times as
    /// large.
    FromNew,
}

/// The quantity that the minimum bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Floor {
    /// The RTO before it is backed off: RFC 6298 (2.4); ns-2 since 2002 (rfc2988_).
    BeforeBackoff,
    /// The RTO with its back-off: ns-2 before 2002.
    AfterBackoff,
    /// The variance term: srtt + max(4 · rttvar, minimum), as Linux has it.
    Variance,
}

/// How samples become an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Estimator {
    /// In nanoseconds.
    Exact,
    /// In ticks: boundaries between sending and acknowledgement, at least 1. Backed off beyond 8,
    /// the next sample is the first. The time-out is at least two ticks.
    Ticks {
        /// Between two boundaries: 500 ms in 4.3BSD, 100 ms and then 10 ms in ns-2.
        tick: Span,
        /// When the clock's first boundary is, less than a tick; ns-2 draws it at random.
        phase: Span,
    },
    /// As Linux does: deviations weigh less while the RTT falls, and the greatest in an RTT counts.
    Linux,
}

/// A retransmission time-out's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtoConfig {
    /// How samples become an estimate.
    pub estimator: Estimator,
    /// g: the weight of a sample in the smoothed RTT.
    pub gain: Gain,
    /// h: the weight of a deviation in the mean deviation.
    pub deviation_gain: Gain,
    /// Deviation from which smoothed RTT.
    pub deviation: Deviation,
    /// k: how many deviations the time-out lies above the smoothed RTT. RFC 6298 (2.3): 4.
    pub deviations: u32,
    /// G: the least that the deviations add, the clock's granularity in RFC 6298 (2.3).
    pub granularity: Span,
    /// Before the first sample: 1 s in RFC 6298 (2.1), 3 s in RFC 2988 and in ns-2.
    pub initial: Span,
    /// 1 s in RFC 6298 (2.4), 200 ms in Linux and ns-2.
    pub minimum: Span,
    /// 60 s in RFC 6298 (2.5) at the least, 120 s in Linux.
    pub maximum: Span,
    /// The quantity that the minimum bounds.
    pub floor: Floor,
    /// The most by which a time-out is multiplied; a power of two, 64 in 4.3BSD and ns-2.
    pub most_backoff: u32,
}

impl Default for RtoConfig {
    /// RFC 6298, with a clock that is as fine as can be.
    fn default() -> Self {
        Self {
            estimator: Estimator::Exact,
            gain: Gain::EIGHTH,
            deviation_gain: Gain::QUARTER,
            deviation: Deviation::FromOld,
            deviations: 4,
            granularity: Span::ZERO,
            initial: Span::from_secs(1),
            minimum: Span::from_secs(1),
            maximum: Span::from_secs(60),
            floor: Floor::BeforeBackoff,
            most_backoff: 64,
        }
    }
}

impl RtoConfig {
    /// Linux's: 200 ms, held against the variance; 120 s.
    pub fn linux() -> Self {
        Self {
            estimator: Estimator::Linux,
            minimum: Span::from_millis(200),
            maximum: Span::from_secs(120),
            floor: Floor::Variance,
            most_backoff: 1 << 15,
            ..Self::default()
        }
    }

    /// Refuses impossible values: the error names the parameter and its range.
    pub fn check(&self) -> Result<(), String> {
        for (name, gain) in [("g", self.gain), ("h", self.deviation_gain)] {
            let Gain { numerator, denominator } = gain;
            if numerator == 0 || numerator > denominator {
                return Err(alloc::format!(
                    "the gain {name} is {numerator}/{denominator}; it is above 0 and at most 1"
                ));
            }
        }
        if self.initial < self.minimum || self.initial > self.maximum {
            return Err(alloc::format!(
                "the initial time-out {} is not between the minimum {} and the maximum {}",
                self.initial,
                self.minimum,
                self.maximum
            ));
        }
        if self.initial == Span::ZERO || self.maximum > exact::LONGEST {
            return Err(alloc::format!(
                "a time-out is above 0 and at most {}; the initial one is {}, the maximum {}",
                exact::LONGEST,
                self.initial,
                self.maximum
            ));
        }
        if !self.most_backoff.is_power_of_two() {
            return Err(alloc::format!(
                "back-off doubles, so that the most is a power of two like 64, not {}",
                self.most_backoff
            ));
        }
        self.check_estimator()
    }

    fn check_estimator(&self) -> Result<(), String> {
        let name = match self.estimator {
            Estimator::Exact => return Ok(()),
            Estimator::Ticks { .. } => "an estimate in ticks",
            Estimator::Linux => "Linux's estimate",
        };
        if (self.gain, self.deviation_gain) != (Gain::EIGHTH, Gain::QUARTER) || self.deviations != 4
        {
            return Err(alloc::format!(
                "{name} is made of shifts, so that g is 1/8, h 1/4 and k 4; other values need \
                 the exact estimator"
            ));
        }
        if self.deviation != Deviation::FromOld {
            return Err(alloc::format!(
                "{name} takes deviations from the old smoothed RTT; from the new one only the exact \
                 estimator does"
            ));
        }
        match self.estimator {
            Estimator::Linux if self.floor != Floor::Variance => {
                Err("Linux's estimate holds the minimum against the variance; choose that".into())
            }
            Estimator::Ticks { .. } if self.floor == Floor::Variance => {
                Err("an estimate in ticks has no minimum in its variance; hold it against the \
                     time-out, before or after back-off"
                    .into())
            }
            Estimator::Ticks { tick, phase } if phase >= tick => {
                Err(alloc::format!("the clock's phase {phase} is not less than its tick {tick}"))
            }
            Estimator::Ticks { tick, .. } if tick + tick > self.maximum => Err(alloc::format!(
                "the time-out is at least two ticks of {tick}, and at most {}",
                self.maximum
            )),
            Estimator::Exact | Estimator::Ticks { .. } | Estimator::Linux => Ok(()),
        }
    }
}

/// A time-out's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Snapshot {
    /// How long to wait now, backed off.
    pub timeout: Span,
    /// The smoothed RTT; none without an estimate.
    pub smoothed: Option<Span>,
    /// The deviation that counts: mean, or Linux's greatest; none without an estimate.
    pub variance: Option<Span>,
    /// By how much the time-out is multiplied.
    pub backoff: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Estimate {
    Exact(Exact),
    Ticks(Ticks),
    Linux(Linux),
}

/// A connection's retransmission time-out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rto {
    /// What follows from all others: it is asked for with every packet, and seldom another.
    timeout: Span,
    /// Before minimum, back-off and maximum.
    base: Span,
    backoff: u32,
    estimate: Estimate,
    config: RtoConfig,
}

/// RFC 6298 (5.7): what a lost SYN makes of a shorter initial time-out.
const AFTER_LOST_SYN: Span = Span::from_secs(3);

impl Rto {
    /// A connection that has measured nothing; `config` passes [`RtoConfig::check`].
    pub fn new(config: &RtoConfig, now: Time) -> Self {
        let estimate = match config.estimator {
            Estimator::Exact => Estimate::Exact(Exact::new()),
            Estimator::Ticks { tick, phase } => Estimate::Ticks(Ticks::new(tick, phase)),
            Estimator::Linux => Estimate::Linux(Linux::new(now)),
        };
        let (base, config) = (config.initial, *config);
        let mut rto = Self { timeout: base, base, backoff: 1, estimate, config };
        rto.set(base, 1);
        rto
    }

    /// Data sent at `sent`, and not sent again, was acknowledged `now`. Ends the back-off.
    pub fn on_sample(&mut self, sent: Time, now: Time) {
        let base = match &mut self.estimate {
            Estimate::Exact(exact) => exact.on_sample(&self.config, now.since(sent)),
            Estimate::Ticks(ticks) => ticks.on_sample(sent, now),
            Estimate::Linux(linux) => linux.on_sample(self.config.minimum, sent, now),
        };
        self.set(base, 1);
    }

    /// The timer fired: the next time-out is twice as long, up to the limits.
    pub fn on_timeout(&mut self) {
        let backoff = self.backoff.saturating_mul(2).min(self.config.most_backoff);
        if let Estimate::Ticks(ticks) = &mut self.estimate {
            ticks.on_backoff(backoff);
        }
        self.set(self.base, backoff);
    }

    /// New data was acknowledged by which Karn's algorithm ends the back-off, sample or not.
    pub fn on_progress(&mut self) {
        if self.backoff != 1 {
            self.set(self.base, 1);
        }
    }

    /// The handshake is done, its SYN was repeated: 3 s at least for the first data (RFC 6298
    /// (5.7)).
    pub fn on_lost_syn(&mut self) {
        if self.smoothed().is_none() {
            self.set(self.base.max(AFTER_LOST_SYN), 1);
        }
    }

    /// No estimate and the initial time-out: the thin-client study's first remedy after an idle
    /// time.
    pub fn reset(&mut self) {
        match &mut self.estimate {
            Estimate::Exact(exact) => exact.forget(),
            Estimate::Ticks(ticks) => ticks.forget(),
            Estimate::Linux(linux) => linux.forget(),
        }
        self.set(self.config.initial, 1);
    }

    /// How long to wait now.
    pub const fn timeout(&self) -> Span {
        self.timeout
    }

    fn set(&mut self, base: Span, backoff: u32) {
        (self.base, self.backoff) = (base, backoff);
        let RtoConfig { minimum, maximum, floor, .. } = self.config;
        let backoff = u64::from(backoff);
        let timeout = match floor {
            Floor::AfterBackoff => base.saturating_mul(backoff).max(minimum),
            // the initial time-out has no variance that the minimum could be held against
            Floor::BeforeBackoff | Floor::Variance => base.max(minimum).saturating_mul(backoff),
        };
        let timeout = timeout.min(maximum);
        self.timeout = match &self.estimate {
            Estimate::Ticks(ticks) => timeout.max(ticks.least()),
            Estimate::Exact(_) | Estimate::Linux(_) => timeout,
        };
    }

    /// The smoothed RTT; none without an estimate.
    pub fn smoothed(&self) -> Option<Span> {
        match &self.estimate {
            Estimate::Exact(exact) => exact.smoothed(),
            Estimate::Ticks(ticks) => ticks.smoothed(),
            Estimate::Linux(linux) => linux.smoothed(),
        }
    }

    /// The deviation that counts: mean, or Linux's greatest; none without an estimate.
    pub fn variance(&self) -> Option<Span> {
        match &self.estimate {
            Estimate::Exact(exact) => exact.variance(),
            Estimate::Ticks(ticks) => ticks.variance(),
            Estimate::Linux(linux) => linux.variance(),
        }
    }

    /// By how much the time-out is multiplied; 1 without back-off.
    pub const fn backoff(&self) -> u32 {
        self.backoff
    }

    /// Its numbers.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            timeout: self.timeout(),
            smoothed: self.smoothed(),
            variance: self.variance(),
            backoff: self.backoff,
        }
    }
}
