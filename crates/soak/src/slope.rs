//! Whether a quantity grows: a line through the least values of equal parts of the time.
//!
//! Memory and descriptors follow the load up and down, so their samples depend on each other and a plain fit would
//! find a slope in noise. A leak stays when the load falls: it raises the least value of every part. The line is
//! fitted to those by least squares; its slope counts as growth where it exceeds its error (two-sided 95 % of
//! Student's t), and a slack, which allocators and caches need.

use serde::Serialize;

/// Parts of the time, each with its least value.
const PARTS: usize = 12;
/// Student's t for 97.5 % and `PARTS` - 2 degrees of freedom.
const T: f64 = 2.228;

/// A fitted line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Slope {
    /// The quantity's growth in an hour, and the error of it.
    pub(crate) per_hour: f64,
    pub(crate) error_per_hour: f64,
    /// What the line adds over the time that was fitted.
    pub(crate) growth: f64,
    /// Seconds that were fitted.
    pub(crate) seconds: f64,
}

impl Slope {
    /// Fits samples of (second, value), in order of time. `None` where a part of the time has no sample.
    pub(crate) fn fit(samples: &[(f64, f64)]) -> Option<Self> {
        let (from, to) = (samples.first()?.0, samples.last()?.0);
        let part = (to - from) / PARTS as f64;
        let least = (0..PARTS).map(|nth| {
            let begin = from + part * nth as f64;
            let inside = |(at, _): &&(f64, f64)| *at >= begin && *at <= begin + part;
            let values = samples.iter().filter(inside).map(|(_, value)| *value);
            values.reduce(f64::min).map(|value| (begin + part / 2.0, value))
        });
        let points = least.collect::<Option<Vec<_>>>()?;
        (part > 0.0).then(|| Self::line(&points, to - from))
    }

    fn line(points: &[(f64, f64)], seconds: f64) -> Self {
        let n = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let xx: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        let xy: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        let slope = xy / xx;
        let rest = |point: &(f64, f64)| (point.1 - y - slope * (point.0 - x)).powi(2);
        let rest: f64 = points.iter().map(rest).sum();
        let error = T * (rest / (n - 2.0) / xx).sqrt();
        Self {
            per_hour: slope * 3_600.0,
            error_per_hour: error * 3_600.0,
            growth: slope * seconds,
            seconds,
        }
    }

    /// Whether the quantity grows, by more than this in an hour.
    pub(crate) fn grows(&self, slack_per_hour: f64) -> bool {
        self.per_hour > self.error_per_hour.max(slack_per_hour)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_model::rng::Rng;

    /// An hour of a load that comes and goes, on top of `leak` a second.
    fn samples(seed: u64, leak: f64) -> Vec<(f64, f64)> {
        let mut rng = Rng::new(seed);
        let sample = |second: u32| {
            let at = f64::from(second);
            (at, 50e6 + leak * at + rng.below(30_000_000) as f64)
        };
        (0..3_600).map(sample).collect()
    }

    #[test]
    fn finds_a_leak_below_the_noise_and_none_without() {
        for seed in 0..20 {
            let steady = Slope::fit(&samples(seed, 0.0)).unwrap();
            assert!(!steady.grows(1e6), "{seed}: {steady:?}");
            // 7 MB in an hour, below 30 MB of noise
            let leaking = Slope::fit(&samples(seed, 2_000.0)).unwrap();
            assert!(leaking.grows(1e6), "{seed}: {leaking:?}");
            assert!((leaking.per_hour - 7.2e6).abs() < 1e6, "{leaking:?}");
        }
    }

    #[test]
    fn a_step_within_the_slack_is_no_growth() {
        let step = |second: u32| (f64::from(second), if second < 30 { 10.0 } else { 14.0 });
        let slope = Slope::fit(&(0..60).map(step).collect::<Vec<_>>()).unwrap();
        // 8 in a minute
        assert!(slope.growth > 4.0 && !slope.grows(8.0 * 60.0), "{slope:?}");
    }

    #[test]
    fn gaps_are_not_fitted() {
        assert_eq!(Slope::fit(&[]), None);
        assert_eq!(Slope::fit(&[(1.0, 1.0)]), None);
        assert_eq!(Slope::fit(&[(1.0, 1.0), (100.0, 1.0)]), None);
    }
}
