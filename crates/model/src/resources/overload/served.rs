//! Places of connections of which a request is served, by source, and how many a source may have beside others.
//!
//! While more than a ninth of all is free, a source may have another one. Within the last ninth it may only while it
//! has less than an eighth of what is free (dynamic thresholds; Choudhury and Hahne, IEEE/ACM ToN 6(2), 1998). So one
//! source alone has eight ninths, each further one that takes all it gets leaves eight ninths of what it found, and one
//! that has none gets one while any is free.

use super::Source;
use alloc::collections::BTreeMap;

/// The part of all within which sources share.
const LAST: u64 = 9;
/// The part of what is free that a source may have there.
const SHARE: u64 = 8;
/// The part of all memory within which sources share, and the part of what is left that a source may hold there.
const LAST_MEMORY: u64 = 4;
const MEMORY_SHARE: u64 = 32;

/// The places of each source, with a log-in and without.
#[derive(Debug, Clone, Default)]
pub(super) struct Served {
    by_source: BTreeMap<Source, u64>,
    all: u64,
}

impl Served {
    /// A connection that had so many of its source's places has so many now.
    pub(super) fn change(&mut self, source: Source, before: u64, after: u64) {
        if before == after {
            return;
        }
        let own = self.by_source.entry(source).or_default();
        *own = own.saturating_sub(before) + after;
        self.all = self.all.saturating_sub(before) + after;
        if *own == 0 {
            self.by_source.remove(&source);
        }
    }

    /// Whether anything of a source is served.
    pub(super) fn has(&self, source: Source) -> bool {
        self.by_source.contains_key(&source)
    }

    /// Whether a source may have another of `most`.
    pub(super) fn may(&self, source: Source, most: u64) -> bool {
        let own = self.by_source.get(&source).copied().unwrap_or(0);
        leaves_room(own, most.saturating_sub(self.all), most)
    }
}

/// Whether a source that has `own` may have more, of `most` of which so many are `free`.
pub(super) const fn leaves_room(own: u64, free: u64, most: u64) -> bool {
    own == 0 || free > most / LAST || own < free / SHARE
}

/// From how much memory on, of `limit`, what one source holds matters.
pub const fn ample_memory(limit: u64) -> u64 {
    limit - limit / LAST_MEMORY
}

/// Whether a source that holds `own` bytes may hold more, of `limit` of which `lasting` cannot be had back.
pub(super) const fn may_hold_more(own: u64, lasting: u64, limit: u64) -> bool {
    lasting <= ample_memory(limit) || own < limit.saturating_sub(lasting) / MEMORY_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever sources take and give back, one more always finds some free.
        #[test]
        fn sources_that_take_all_leave_some_to_others(
            most in 100_u64..20_000,
            sources in 1_u32..12,
            steps in prop::collection::vec((0_u32..12, any::<bool>(), 1_u32..3_000), 1..60),
        ) {
            let mut served = Served::default();
            for (source, takes, requests) in steps {
                let source = Source::V4(source % sources);
                if !takes {
                    let own = served.by_source.get(&source).copied().unwrap_or(0);
                    served.change(source, own.min(requests.into()), 0);
                    continue;
                }
                for _ in 0..requests {
                    if served.may(source, most) {
                        served.change(source, 0, 1);
                    }
                }
                let sum: u64 = served.by_source.values().sum();
                prop_assert_eq!(sum, served.all);
                let free = most - served.all;
                // each takes less than an eighth of what it finds, and one more by rounding
                let least = (0..sources).fold(most / LAST, |free, _| free - free / (SHARE + 1));
                prop_assert!(free + u64::from(sources) + 1 >= least, "{free} of {most}, not {least}");
                prop_assert!(served.may(Source::V6(0), most));
            }
        }

        /// Whatever many sources take, piece by piece and in whatever turn, some memory is left.
        #[test]
        fn sources_that_take_all_memory_leave_some(
            limit in (1_u64 << 20)..(1 << 30),
            turns in prop::collection::vec((0_usize..100, 1_usize..200), 1..200),
        ) {
            let piece = limit / 20_000;
            let (mut held, mut sum) = ([0; 100], 0);
            for (source, pieces) in turns {
                for _ in 0..pieces {
                    if may_hold_more(held[source], sum, limit) {
                        held[source] += piece;
                        sum += piece;
                    }
                }
            }
            // each takes less than a 32nd of what it finds, and one piece more
            let takers = held.iter().filter(|held| **held > 0).count();
            let least = (0..takers).fold(limit / LAST_MEMORY, |left, _| {
                (left - left / (MEMORY_SHARE + 1)).saturating_sub(piece + 1)
            });
            prop_assert!(limit - sum >= least, "{} of {limit}, not {least}", limit - sum);
        }

        /// Alone it has eight ninths, however many it asks for.
        #[test]
        fn one_source_alone_has_most(most in 10_u64..20_000) {
            let mut served = Served::default();
            for _ in 0..most {
                if served.may(Source::V4(1), most) {
                    served.change(Source::V4(1), 0, 1);
                }
            }
            prop_assert_eq!(served.all, most - most / LAST);
        }
    }
}
