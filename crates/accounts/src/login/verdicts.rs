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
