//! Requests in service by source, and how many a source may have beside others.
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

/// How many each source has, with a log-in and without.
#[derive(Debug, Clone, Default)]
pub(super) struct Served {
    by_source: BTreeMap<Source, u64>,
    all: u64,
}

impl Served {
    pub(super) fn on_begin(&mut self, source: Source) {
        *self.by_source.entry(source).or_default() += 1;
        self.all += 1;
    }

    /// So many have ended.
    pub(super) fn on_end(&mut self, source: Source, requests: u32) {
        let Some(own) = self.by_source.get_mut(&source) else { return };
        let ended = u64::from(requests).min(*own);
        *own -= ended;
        self.all -= ended;
        if *own == 0 {
            self.by_source.remove(&source);
        }
    }

    /// Whether a source may have another of `most`.
    pub(super) fn may(&self, source: Source, most: u64) -> bool {
        let free = most.saturating_sub(self.all);
        let own = self.by_source.get(&source);
        free > most / LAST || own.is_none_or(|own| *own < free / SHARE)
    }
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
                    served.on_end(source, requests);
                    continue;
                }
                for _ in 0..requests {
                    if served.may(source, most) {
                        served.on_begin(source);
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

        /// Alone it has eight ninths, however many it asks for.
        #[test]
        fn one_source_alone_has_most(most in 10_u64..20_000) {
            let mut served = Served::default();
            for _ in 0..most {
                if served.may(Source::V4(1), most) {
                    served.on_begin(Source::V4(1));
                }
            }
            prop_assert_eq!(served.all, most - most / LAST);
        }
    }
}
