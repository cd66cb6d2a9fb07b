//! Ratios of runs that were made side by side: what slowed one down slowed the other down too.

use super::bootstrap::{self, Interval};
use super::{geometric_mean, median};
use serde::Serialize;

/// A peer beside others in one cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Beside {
    /// Which of the others it is compared with: the one of the larger median.
    pub fastest: String,
    /// One ratio a repetition that both have.
    #[serde(skip)]
    pub ratios: Vec<f64>,
    /// The geometric mean of `ratios`.
    pub ratio: f64,
    /// Its 95 % interval; `None` of one repetition.
    pub interval: Option<Interval>,
}

/// Runs of one peer: repetition and value.
pub(crate) type Runs = Vec<(u32, f64)>;

/// `ours` over the fastest of `others` by median; `None` without a pair. A choice for each repetition would
/// compare with a peer that does not exist, always lucky.
pub(crate) fn beside(ours: &Runs, others: &[(String, Runs)], seed: u64) -> Option<Beside> {
    let middle = |runs: &Runs| median(&runs.iter().map(|(_, value)| *value).collect::<Vec<_>>());
    let (name, theirs) = others
        .iter()
        .filter_map(|(name, runs)| Some((middle(runs)?, (name, runs))))
        .max_by(|a, b| a.0.total_cmp(&b.0))?
        .1;
    let ratios: Vec<f64> = ours
        .iter()
        .filter_map(|(repetition, value)| {
            let (_, other) = theirs.iter().find(|(theirs, _)| theirs == repetition)?;
            (*other > 0.0 && *value > 0.0).then_some(value / other)
        })
        .collect();
    let ratio = geometric_mean(&ratios)?;
    let interval = bootstrap::interval(std::slice::from_ref(&ratios), seed, |groups| {
        geometric_mean(groups.first()?)
    });
    Some(Beside { fastest: name.clone(), ratios, ratio, interval })
}

/// The geometric mean over cells, each counting once, and its interval over the repeats within the cells.
pub(crate) fn over_all(cells: &[Vec<f64>], seed: u64) -> Option<(f64, Option<Interval>)> {
    let mean = |groups: &[Vec<f64>]| {
        let means: Vec<f64> = groups.iter().filter_map(|group| geometric_mean(group)).collect();
        geometric_mean(&means)
    };
    Some((mean(cells)?, bootstrap::interval(cells, seed, mean)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_by_repetition_with_the_faster_one() {
        let ours = vec![(0, 20.0), (1, 10.0), (2, 99.0)];
        let slow = ("slow".to_owned(), vec![(0, 5.0), (1, 5.0)]);
        let fast = ("fast".to_owned(), vec![(1, 5.0), (0, 10.0)]);
        let found = beside(&ours, &[slow, fast], 1).unwrap();
        assert_eq!(found.fastest, "fast");
        assert_eq!(found.ratios, [2.0, 2.0]);
        assert!((found.ratio - 2.0).abs() < 1e-12);
        assert_eq!(beside(&ours, &[], 1), None);
    }

    #[test]
    fn weighs_cells_alike_whatever_their_repeats() {
        let (mean, interval) = over_all(&[vec![4.0; 10], vec![1.0; 2]], 1).unwrap();
        assert!((mean - 2.0).abs() < 1e-12);
        let interval = interval.unwrap();
        assert!((interval.low - 2.0).abs() < 1e-9 && (interval.high - 2.0).abs() < 1e-9);
    }
}
