//! Limits of the generator, and counts of rejected traces.

use super::ThinClient;
use crate::network::workload::flows::{Summary, THRESHOLD};
use crate::units::Span;
use alloc::format;
use alloc::string::String;
use core::fmt;

/// Why there is no trace.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkloadError {
    /// A parameter is out of its range.
    Parameter(String),
    /// No trace was close enough.
    NoneAccepted {
        /// How many were drawn.
        tries: u32,
        /// Why they were refused.
        refused: Refused,
    },
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameter(why) => f.write_str(why),
            Self::NoneAccepted { tries, refused } => write!(
                f,
                "none of {tries} traces was close enough: {} had too few flows, {} an α and {} a β too \
                 far off; make the traces longer or the tolerance wider",
                refused.flows, refused.alpha, refused.beta
            ),
        }
    }
}

impl core::error::Error for WorkloadError {}

/// Rejected traces by reason; one may count for several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refused {
    /// Too few flows.
    pub flows: u32,
    /// α̂ too far from α.
    pub alpha: u32,
    /// β̂ too far from β.
    pub beta: u32,
}

impl Refused {
    /// Whether a trace is close enough; counts the reasons of a rejection.
    pub(super) fn is_accepted(&mut self, config: &ThinClient, summary: &Summary) -> bool {
        let off = |found: Option<f64>, asked: f64| {
            !found.is_some_and(|found| libm::fabs(found - asked) <= config.tolerance)
        };
        let few = summary.flows() < config.least_flows;
        let alpha = off(summary.alpha(), config.alpha);
        let beta = off(summary.beta(), config.beta);
        self.flows += u32::from(few);
        self.alpha += u32::from(alpha);
        self.beta += u32::from(beta);
        !(few || alpha || beta)
    }
}

impl ThinClient {
    /// Checks the parameters; the error is the first impossible one.
    pub fn check(&self) -> Result<(), WorkloadError> {
        let inside = |low: f64, x: f64, high: f64| low < x && x < high;
        let within = |low: f64, x: f64, high: f64| low <= x && x <= high;
        let day = Span::from_secs(86_400);
        let rules = [
            (inside(0.0, self.alpha, 1.0), "α is more than 0 and less than 1"),
            (inside(0.0, self.beta, 1.0), "β is more than 0 and less than 1"),
            (inside(0.0, self.tolerance, f64::INFINITY), "the tolerance is more than 0"),
            (self.most_tries > 0, "one try at least is needed"),
            (Span::ZERO < self.duration && self.duration <= day, "a trace is at most a day long"),
            (self.start_within <= self.duration, "the first flow begins within the trace"),
            (within(-20.0, self.size_mu, 20.0), "μ of ln bytes is −20 to 20"),
            (within(0.0, self.size_sigma, 10.0), "σ of ln bytes is 0 to 10"),
            (within(-40.0, self.gap_mu, 20.0), "μ of ln seconds is −40 to 20"),
            (within(0.0, self.gap_sigma, 10.0), "σ of ln seconds is 0 to 10"),
            (self.gap_most <= day, "a pause is at most a day long"),
            (self.packet_gap <= THRESHOLD, "packets of a flow follow within the threshold"),
            ((100..=65_495).contains(&self.mss), "a segment has 100 to 65,495 bytes"),
            (within(0.5, self.full, 2.0 / 3.0), "the share of full segments is 1/2 to 2/3"),
            (
                (1..=100_000).contains(&self.most_units),
                "a bulk flow has 1 to 100,000 data units at most",
            ),
            (within(0.0, self.unit_exponent, 20.0), "the exponent of data units is 0 to 20"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, rule)) => Err(WorkloadError::Parameter(format!("thin client: {rule}"))),
        }
    }
}
