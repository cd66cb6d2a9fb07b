//! A buffer's size, and whether another is worth a system call.

use super::allocation::total;
use super::demand::Side;
use crate::units::Bytes;

/// A buffer's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// The kernel tunes it: there is enough for all.
    Automatic,
    /// So many bytes of payload, and no more.
    Bytes(Bytes),
}

/// A buffer that is to have another size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The connection's number.
    pub id: u64,
    /// Which of its buffers.
    pub side: Side,
    /// Its new size.
    pub grant: Grant,
}

/// A buffer's size and its new one, bytes; its minimum, and the segment size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) old: Option<u64>,
    pub(super) new: u64,
    pub(super) least: u64,
    pub(super) mss: u64,
}

impl Step {
    /// A tenth or a segment (algorithms/buffers A.4); and always an increase to its minimum.
    fn is_worth_it(&self) -> bool {
        let Some(old) = self.old else { return true };
        let difference = old.abs_diff(self.new);
        // exact: more than 10 % without rounding
        let tenth = u128::from(difference) * 10 > u128::from(old);
        let lifts = old < self.least && self.new > old;
        difference > 0 && (tenth || difference > self.mss || lifts)
    }
}

/// Final sizes without changes not worth a system call; if that exceeds the pool, all shrinking
/// ones shrink.
pub(super) fn settle(steps: &[Step], pool: u64) -> alloc::vec::Vec<u64> {
    let settled = |step: &Step, shrink: bool| match step.old {
        Some(_) if step.is_worth_it() => step.new,
        Some(old) if shrink => old.min(step.new),
        Some(old) => old,
        None => step.new,
    };
    let kept: alloc::vec::Vec<u64> = steps.iter().map(|step| settled(step, false)).collect();
    if total(&kept) <= u128::from(pool) {
        return kept;
    }
    steps.iter().map(|step| settled(step, true)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn step(old: u64, new: u64) -> Step {
        Step { old: Some(old), new, least: 0, mss: 1_460 }
    }

    #[test]
    fn ignores_changes_below_a_tenth_or_a_segment() {
        for (old, new, worth) in [
            (10_240, 10_240, false),
            (10_240, 11_264, false), // exactly a tenth
            (10_240, 12_288, true),
            (10_240, 9_216, false),
            (10_230, 9_206, true),
            (102_400, 103_424, false), // a KiB is less than a segment
            (102_400, 104_448, true),
        ] {
            assert_eq!(step(old, new).is_worth_it(), worth, "{old} {new}");
        }
        let lifted = Step { least: 11_264, ..step(10_240, 11_264) };
        assert!(lifted.is_worth_it());
        assert!(Step { old: None, ..step(0, 0) }.is_worth_it());
    }

    #[test]
    fn small_shrinks_are_made_where_others_need_them() {
        let steps = [step(20_480, 19_456), step(20_480, 19_456), step(4_096, 8_192)];
        assert_eq!(settle(&steps, 49_152), [20_480, 20_480, 8_192]);
        assert_eq!(settle(&steps, 49_151), [19_456, 19_456, 8_192]);
    }

    proptest! {
        #[test]
        fn settled_sizes_stay_within_the_pool(
            steps in proptest::collection::vec((proptest::option::of(0_u64..90_000), 0_u64..90_000), 0..40),
        ) {
            let steps: Vec<Step> =
                steps.into_iter().map(|(old, new)| Step { old, ..step(0, new) }).collect();
            let pool = steps.iter().map(|step| step.new).sum::<u64>();
            let settled = settle(&steps, pool);
            prop_assert!(settled.iter().sum::<u64>() <= pool);
            for (settled, step) in settled.iter().zip(&steps) {
                prop_assert!(*settled == step.new || Some(*settled) == step.old);
            }
        }
    }
}
