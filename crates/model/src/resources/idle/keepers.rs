//! For whom idle connections to servers are kept, and which one leaves a full pool.
//!
//! ```text
//! on_kept(source, number)   kept after a request of this source; later numbers are newer
//! on_gone(source, number)   used again, closed, or left
//! leaves()                  the pool is full: the oldest of the source that keeps the most
//! ```
//! So one client's connections to many servers leave before those of all others.

use crate::resources::overload::Source;
use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Reverse;

/// Idle connections by the source that they are kept for; see the module for the order of calls.
#[derive(Debug, Clone, Default)]
pub struct Keepers {
    kept: BTreeMap<Source, BTreeSet<u64>>,
    /// How many each keeps, and the oldest of them; of equals, the one with the older is last.
    most: BTreeSet<(usize, Reverse<u64>, Source)>,
}

impl Keepers {
    /// A connection is kept for `source`. No two have one number.
    pub fn on_kept(&mut self, source: Source, number: u64) {
        self.change(source, |numbers| numbers.insert(number));
    }

    /// It is no longer kept. Nothing happens where it was not.
    pub fn on_gone(&mut self, source: Source, number: u64) {
        self.change(source, |numbers| numbers.remove(&number));
    }

    /// Whose connection leaves a full pool, and its number; `None` where nothing is kept.
    pub fn leaves(&self) -> Option<(Source, u64)> {
        self.most.last().map(|(_, Reverse(oldest), source)| (*source, *oldest))
    }

    /// Nothing is kept any more.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.most.clear();
    }

    fn change(&mut self, source: Source, change: impl FnOnce(&mut BTreeSet<u64>) -> bool) {
        let mut numbers = self.kept.remove(&source).unwrap_or_default();
        if let Some(oldest) = numbers.first() {
            self.most.remove(&(numbers.len(), Reverse(*oldest), source));
        }
        change(&mut numbers);
        if let Some(oldest) = numbers.first() {
            self.most.insert((numbers.len(), Reverse(*oldest), source));
            self.kept.insert(source, numbers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    #[test]
    fn the_oldest_of_the_source_that_keeps_most_leaves() {
        let (one, two) = (Source::V4(1), Source::V4(2));
        let mut keepers = Keepers::default();
        assert_eq!(keepers.leaves(), None);
        keepers.on_kept(two, 1);
        keepers.on_kept(one, 2);
        assert_eq!(keepers.leaves(), Some((two, 1)), "of equals, the oldest");
        keepers.on_kept(one, 3);
        assert_eq!(keepers.leaves(), Some((one, 2)));
        keepers.on_gone(one, 2);
        keepers.on_gone(one, 2);
        assert_eq!(keepers.leaves(), Some((two, 1)));
        keepers.on_gone(two, 1);
        assert_eq!(keepers.leaves(), Some((one, 3)));
        keepers.clear();
        assert_eq!(keepers.leaves(), None);
    }

    proptest! {
        /// Nobody's connection leaves while another source keeps more; whatever comes, it is that source's oldest.
        #[test]
        fn those_that_keep_fewer_lose_nothing(steps in proptest::collection::vec((0_u32..5, any::<bool>()), 1..200)) {
            let mut keepers = Keepers::default();
            let mut there: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
            for (number, (who, comes)) in steps.into_iter().enumerate() {
                let numbers = there.entry(who).or_default();
                if comes {
                    numbers.insert(number as u64);
                    keepers.on_kept(Source::V4(who), number as u64);
                } else if let Some(oldest) = numbers.pop_first() {
                    keepers.on_gone(Source::V4(who), oldest);
                }
                let most = there.values().map(BTreeSet::len).max().unwrap_or(0);
                let leaves = keepers.leaves();
                prop_assert_eq!(leaves.is_some(), most > 0);
                if let Some((Source::V4(of), number)) = leaves {
                    prop_assert_eq!(there[&of].len(), most);
                    prop_assert_eq!(there[&of].first(), Some(&number));
                }
            }
        }
    }
}
