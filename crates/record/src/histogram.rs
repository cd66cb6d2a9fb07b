//! Log-linear counts: sixteen steps to each power of two, so any value is known to 1/16 (6.25 %).

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

const STEPS: u64 = 16;
const STEP_BITS: u32 = STEPS.ilog2();

/// Counts of values from 0 to 2⁶⁴ − 1. What the values are is the owner's matter; name the unit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Histogram {
    /// By [`slot`]; grows as needed.
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    least: u64,
    most: u64,
}

/// The usual questions, for reports.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// How many values.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// The smallest, exactly.
    pub least: u64,
    /// The median, to 1/16.
    pub p50: u64,
    /// To 1/16, as all below.
    pub p90: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The 99.9th percentile.
    pub p999: u64,
    /// The largest, exactly.
    pub most: u64,
}

/// Where a value is counted: below 16 each has its own slot, above it the leading five bits decide.
const fn slot(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let shift = value.ilog2() - STEP_BITS;
    ((shift as u64 + 1) * STEPS + ((value >> shift) - STEPS)) as usize
}

const fn floor(slot: usize) -> u64 {
    let slot = slot as u64;
    if slot < STEPS {
        return slot;
    }
    (STEPS + slot % STEPS) << (slot / STEPS - 1)
}

impl Histogram {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts one value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        let at = slot(value);
        if at >= self.counts.len() {
            self.grow_to(at);
        }
        self.counts[at] += 1;
        self.least = if self.count == 0 { value } else { self.least.min(value) };
        self.most = self.most.max(value);
        self.count += 1;
        self.sum += u128::from(value);
    }

    #[cold]
    fn grow_to(&mut self, slot: usize) {
        self.counts.resize(slot + 1, 0);
    }

    /// Counts everything that `other` counted.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.least = if self.count == 0 { other.least } else { self.least.min(other.least) };
        self.most = self.most.max(other.most);
        self.count += other.count;
        self.sum += other.sum;
    }

    /// How many values were counted.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The value that `share` ppm of all are not above, to 1/16, within what was seen; `None` when
    /// empty.
    pub fn quantile_ppm(&self, share: u64) -> Option<u64> {
        let rank = (u128::from(self.count) * u128::from(share)).div_ceil(1_000_000).max(1);
        let mut seen = 0_u128;
        let found = self.counts.iter().position(|count| {
            seen += u128::from(*count);
            seen >= rank
        })?;
        // the middle of the slot errs least; the last one ends where the numbers do
        let middle = floor(found).midpoint(floor(found + 1).wrapping_sub(1));
        Some(middle.clamp(self.least, self.most))
    }

    /// The usual questions; `None` when empty.
    pub fn summary(&self) -> Option<Summary> {
        Some(Summary {
            count: self.count,
            mean: self.sum as f64 / self.count as f64,
            least: self.least,
            p50: self.quantile_ppm(500_000)?,
            p90: self.quantile_ppm(900_000)?,
            p99: self.quantile_ppm(990_000)?,
            p999: self.quantile_ppm(999_000)?,
            most: self.most,
        })
    }

    /// The slots that hold something: smallest value, count.
    pub fn slots(&self) -> impl Iterator<Item = (u64, u64)> {
        let held = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        held.map(|(at, count)| (floor(at), *count))
    }
}

impl Serialize for Histogram {
    /// `count`, `mean`, `least`, `most` (0 when empty), `slots`: pairs of smallest value and count
    /// above 0.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_struct("Histogram", 5)?;
        map.serialize_field("count", &self.count)?;
        map.serialize_field("mean", &(self.sum as f64 / self.count.max(1) as f64))?;
        map.serialize_field("least", &self.least)?;
        map.serialize_field("most", &self.most)?;
        map.serialize_field("slots", &self.slots().collect::<Vec<_>>())?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn slots_meet_without_gap_or_overlap() {
        for at in 0..slot(u64::MAX) {
            assert_eq!(slot(floor(at)), at);
            assert_eq!(slot(floor(at + 1) - 1), at);
        }
    }

    #[test]
    fn empty_histogram_has_no_summary() {
        assert_eq!(Histogram::new().summary(), None);
    }

    #[test]
    fn nanoseconds_up_to_minutes_take_few_slots_and_are_written_sparsely() {
        let mut histogram = Histogram::new();
        [1_000, 25_000_000, 25_000_001, 600_000_000_000].iter().for_each(|ns| histogram.add(*ns));
        assert!(histogram.counts.len() < 640, "5 KiB");
        let room = histogram.counts.capacity();
        (0..1_000_000).for_each(|n| histogram.add(n * 600_000));
        assert_eq!(histogram.counts.capacity(), room, "no more allocation");
        let mut few = Histogram::new();
        [5, 5, 1_000].iter().for_each(|ns| few.add(*ns));
        let text = serde_json::to_string(&few).unwrap();
        let expected =
            r#"{"count":3,"mean":336.6666666666667,"least":5,"most":1000,"slots":[[5,2],[992,1]]}"#;
        assert_eq!(text, expected);
        assert!(serde_json::to_string(&Histogram::new()).unwrap().ends_with(r#""slots":[]}"#));
    }

    proptest! {
        #[test]
        fn quantiles_are_right_to_a_sixteenth(mut values in proptest::collection::vec(any::<u64>(), 1..200), share in 0_u64..=1_000_000) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|value| histogram.add(*value));
            values.sort_unstable();
            let rank = (values.len() as u64 * share).div_ceil(1_000_000).max(1) as usize;
            let exact = values[rank - 1];
            let report = histogram.quantile_ppm(share).unwrap();
            prop_assert!(report.abs_diff(exact) <= exact / 16, "{report} for {exact}");
        }

        #[test]
        fn merging_is_counting_all(a in proptest::collection::vec(any::<u64>(), 0..50), b in proptest::collection::vec(any::<u64>(), 0..50)) {
            let of = |values: &[u64]| {
                let mut histogram = Histogram::new();
                values.iter().for_each(|value| histogram.add(*value));
                histogram
            };
            let mut merged = of(&a);
            merged.merge(&of(&b));
            prop_assert_eq!(merged, of(&[a, b].concat()));
        }
    }
}
