//! Successful log-ins of the last day.

use crate::account::AccountId;
use ekiden_model::units::{Span, Time};
use std::collections::{BTreeMap, VecDeque};

/// Verdicts kept: a few devices each of some thousands of accounts; 1 MiB.
const KEPT: usize = 16_384;
/// algorithms/split-connections C.9: cached credentials are good for 24 h.
const GOOD_FOR: Span = Span::from_secs(24 * 3600);

/// A keyed hash, so that what is kept tells nothing.
pub(crate) type Digest = [u8; 32];

/// Verdicts by a keyed hash of user, password and its stored hash, so that a change voids them.
#[derive(Debug, Default)]
pub(crate) struct VerdictCache {
    verdicts: BTreeMap<Digest, (AccountId, Time)>,
    order: VecDeque<Digest>,
}

impl VerdictCache {
    /// Whether `digest` was found to belong to `account`, lately enough.
    pub(crate) fn holds(&self, digest: &Digest, account: AccountId, now: Time) -> bool {
        self.verdicts
            .get(digest)
            .is_some_and(|(whose, since)| *whose == account && now.since(*since) < GOOD_FOR)
    }

    /// Keeps a verdict; the oldest goes when there are too many.
    pub(crate) fn keep(&mut self, digest: Digest, account: AccountId, now: Time) {
        if self.verdicts.insert(digest, (account, now)).is_none() {
            self.order.push_back(digest);
        }
        if self.order.len() > KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.verdicts.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digest of one of many log-ins.
    fn nth(n: u32) -> Digest {
        let mut digest = Digest::default();
        digest[..4].copy_from_slice(&n.to_le_bytes());
        digest
    }

    #[test]
    fn the_last_16_384_log_ins_since_the_start_are_known_for_a_day() {
        let (account, mut cache) = (AccountId(7), VerdictCache::default());
        let at = |second| Time::ZERO + Span::from_secs(second);
        let known = |cache: &VerdictCache, now| -> Vec<u32> {
            (0..16_400).filter(|n| cache.holds(&nth(*n), account, now)).collect()
        };
        assert_eq!(known(&cache, at(0)), [0; 0], "a start remembers nothing");
        (0..16_384).for_each(|n| cache.keep(nth(n), account, at(0)));
        let all: Vec<u32> = (0..16_384).collect();
        assert_eq!(known(&cache, at(86_399)), all);
        assert!(!cache.holds(&nth(5), AccountId(8), at(0)));
        // one more takes the place of the first
        cache.keep(nth(16_384), account, at(86_399));
        assert_eq!(known(&cache, at(86_399)).len(), 16_384);
        assert!(!cache.holds(&nth(0), account, at(86_399)));
        assert_eq!(known(&cache, at(86_400)), [16_384]);
    }
}
