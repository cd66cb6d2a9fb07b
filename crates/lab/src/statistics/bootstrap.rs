//! The percentile bootstrap (Efron 1979): draw the repeats again with replacement and look where the figure
//! falls. It assumes no distribution; of five repeats it is somewhat too narrow, of one there is no interval.

use ekiden_model::rng::Rng;
use serde::{Deserialize, Serialize};

/// Draws. The ends of a 95 % interval then move by about 1 % of its width from seed to seed.
const DRAWS: usize = 2_000;

/// Where a figure lies with 95 % confidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

/// The 95 % interval of `figure` over groups, each redrawn by itself; `None` when no group has two values.
pub(crate) fn interval(
    groups: &[Vec<f64>],
    seed: u64,
    figure: impl Fn(&[Vec<f64>]) -> Option<f64>,
) -> Option<Interval> {
    if groups.iter().all(|group| group.len() < 2) {
        return None;
    }
    let mut rng = Rng::new(seed);
    let mut figures: Vec<f64> = (0..DRAWS)
        .filter_map(|_| {
            let drawn: Vec<Vec<f64>> = groups.iter().map(|group| draw(group, &mut rng)).collect();
            figure(&drawn)
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    Some(Interval {
        low: super::quantile(&figures, 0.025)?,
        high: super::quantile(&figures, 0.975)?,
    })
}

/// The same of the median of one group.
pub(crate) fn of_median(values: &[f64], seed: u64) -> Option<Interval> {
    interval(&[values.to_vec()], seed, |groups| super::median(groups.first()?))
}

fn draw(from: &[f64], rng: &mut Rng) -> Vec<f64> {
    let one = |_: &f64| from.get(rng.below(from.len() as u64) as usize).copied();
    from.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_repeats_by_seed_around_the_median() {
        let values = [10.0, 11.0, 12.0, 13.0, 14.0];
        let found = of_median(&values, 7).unwrap();
        assert_eq!(found, of_median(&values, 7).unwrap());
        assert!(found.low >= 10.0 && found.low < 12.0 && found.high > 12.0 && found.high <= 14.0);
    }

    #[test]
    fn one_value_has_no_interval() {
        assert_eq!(of_median(&[3.0], 1), None);
        assert_eq!(of_median(&[], 1), None);
    }

    /// The mean of normal-like values: the interval should hold the truth about 95 times of 100.
    #[test]
    fn interval_covers_the_mean_95_times_of_100() {
        let mut rng = Rng::new(3);
        let mean = |groups: &[Vec<f64>]| {
            let values = groups.first()?;
            Some(values.iter().sum::<f64>() / values.len() as f64)
        };
        let held = (0..200)
            .filter(|seed| {
                // twelve uniforms less six: mean 0, variance 1
                let mut one = || {
                    (0..12).map(|_| rng.below(1 << 32) as f64 / 2f64.powi(32)).sum::<f64>() - 6.0
                };
                let values: Vec<f64> = (0..30).map(|_| one()).collect();
                let found = interval(&[values], *seed, mean).unwrap();
                found.low <= 0.0 && found.high >= 0.0
            })
            .count();
        assert!((178..=198).contains(&held), "{held} of 200");
    }
}
