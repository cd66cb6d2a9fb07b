//! Which parts of a stream are there: sorted ranges that neither touch nor overlap.

use super::Block;
use alloc::vec::Vec;

/// A set of stream offsets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ranges {
    blocks: Vec<Block>,
}

impl Ranges {
    /// All ranges, the lowest first.
    pub fn as_slice(&self) -> &[Block] {
        &self.blocks
    }

    /// Whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// How many bytes are there.
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.len()).sum()
    }

    /// The range that holds this offset.
    pub fn around(&self, offset: u64) -> Option<Block> {
        let at = self.blocks.partition_point(|block| block.end <= offset);
        self.blocks.get(at).copied().filter(|block| block.start <= offset)
    }

    /// Adds a range.
    pub fn insert(&mut self, new: Block) {
        if new.is_empty() {
            return;
        }
        // those that touch or overlap it become one
        let from = self.blocks.partition_point(|block| block.end < new.start);
        let to = self.blocks.partition_point(|block| block.start <= new.end);
        let touched = self.blocks.get(from..to).unwrap_or_default();
        let start = touched.first().map_or(new.start, |first| first.start.min(new.start));
        let end = touched.last().map_or(new.end, |last| last.end.max(new.end));
        let one = touched.len() == 1;
        if let Some(only) = self.blocks.get_mut(from).filter(|_| one) {
            *only = Block { start, end };
            return;
        }
        self.blocks.splice(from..to, [Block { start, end }]);
    }

    /// Calls `with` for each part of `wanted` that is not there, the lowest first.
    pub fn missing(&self, wanted: Block, mut with: impl FnMut(Block)) {
        let mut from = wanted.start;
        let first = self.blocks.partition_point(|block| block.end <= wanted.start);
        for block in self.blocks.iter().skip(first).take_while(|block| block.start < wanted.end) {
            if from < block.start {
                with(Block { start: from, end: block.start });
            }
            from = block.end;
        }
        if from < wanted.end {
            with(Block { start: from, end: wanted.end });
        }
    }

    /// Forgets what lies below `offset`.
    pub fn forget_below(&mut self, offset: u64) {
        let gone = self.blocks.partition_point(|block| block.end <= offset);
        if gone > 0 {
            self.blocks.drain(..gone);
        }
        if let Some(first) = self.blocks.first_mut() {
            first.start = first.start.max(offset);
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.blocks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn block(start: u64, end: u64) -> Block {
        Block { start, end }
    }

    #[test]
    fn neighbours_become_one() {
        let mut ranges = Ranges::default();
        for (start, end) in [(10, 20), (30, 40), (20, 30), (5, 5)] {
            ranges.insert(block(start, end));
        }
        assert_eq!(ranges.as_slice(), [block(10, 40)]);
        assert_eq!(ranges.around(39), Some(block(10, 40)));
        assert_eq!(ranges.around(40), None);
    }

    proptest! {
        #[test]
        fn as_a_set_of_offsets(steps in prop::collection::vec((0_u64..200, 0_u64..30, 0_u8..8), 1..60)) {
            let mut ranges = Ranges::default();
            let mut oracle = BTreeSet::new();
            for (start, len, what) in steps {
                let new = block(start, start + len);
                if what == 0 {
                    ranges.forget_below(start);
                    oracle = oracle.split_off(&start);
                } else {
                    let mut missing = Vec::new();
                    ranges.missing(new, |part| missing.extend(part.start..part.end));
                    let expected: Vec<u64> =
                        (new.start..new.end).filter(|at| !oracle.contains(at)).collect();
                    prop_assert_eq!(missing, expected);
                    ranges.insert(new);
                    oracle.extend(new.start..new.end);
                }
                let all: Vec<u64> =
                    ranges.as_slice().iter().flat_map(|b| b.start..b.end).collect();
                prop_assert_eq!(all, oracle.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(ranges.bytes(), oracle.len() as u64);
                let apart = ranges.as_slice().windows(2).all(|pair| pair[0].end < pair[1].start);
                prop_assert!(apart);
                for at in 0..230 {
                    prop_assert_eq!(ranges.around(at).is_some(), oracle.contains(&at));
                }
            }
        }
    }
}
