//! A copy of a body for the cache, made while the body passes.

use crate::transfer::budget::{ReservedMemory, TransferBudget};
use bytes::Bytes;
use http_cache_semantics::CachePolicy;
use std::sync::Arc;

/// Memory is reserved in steps of this size.
const STEP: usize = 64 * 1024;

/// The copy, abandoned when it becomes too large or memory is short, so that no client waits for
/// it.
#[derive(Debug)]
pub(crate) struct BodyCopy {
    policy: CachePolicy,
    most: u64,
    length: Option<u64>,
    bytes: Vec<u8>,
    reserved: Vec<ReservedMemory>,
    given_up: bool,
}

impl BodyCopy {
    pub(super) const fn new(policy: CachePolicy, length: Option<u64>, most: u64) -> Self {
        Self { policy, most, length, bytes: Vec::new(), reserved: Vec::new(), given_up: false }
    }

    pub(crate) fn push(&mut self, budget: &Arc<TransferBudget>, bytes: &[u8]) {
        if self.given_up {
            return;
        }
        let length = self.bytes.len() + bytes.len();
        let mut fits = length as u64 <= self.most;
        while fits && length > self.reserved.len() * STEP {
            match budget.reserve(STEP) {
                Some(more) => self.reserved.push(more),
                None => fits = false,
            }
        }
        if !fits {
            self.given_up = true;
            (self.bytes, self.reserved) = (Vec::new(), Vec::new());
            return;
        }
        if length > self.bytes.capacity() {
            // allocates the known length at once; otherwise grows by an eighth instead of doubling
            let wanted = self.length.map_or(length + length / 8 + STEP, |wanted| wanted as usize);
            let most = usize::try_from(self.most).unwrap_or(usize::MAX);
            self.bytes.reserve_exact(wanted.min(most).max(length) - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn finish(self) -> Option<(CachePolicy, Bytes)> {
        (!self.given_up).then(|| (self.policy, Bytes::from(self.bytes.into_boxed_slice())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{CopyMode, Settings};

    fn budget() -> Arc<TransferBudget> {
        TransferBudget::new(&Settings::default().budgets, CopyMode::Auto)
    }

    fn copy(length: Option<u64>, most: u64) -> BodyCopy {
        let policy = CachePolicy::new(&http::Request::new(()), &http::Response::new(()));
        BodyCopy::new(policy, length, most)
    }

    #[test]
    fn reserves_little_more_memory_than_the_body() {
        let budget = budget();
        let part = [7; 10_000];
        for wanted in [Some(1_000_000), None] {
            let mut copy = copy(wanted, 4 << 20);
            for n in 1..=100 {
                copy.push(&budget, &part);
                let (length, capacity) = (n * part.len(), copy.bytes.capacity());
                match wanted {
                    Some(wanted) => assert_eq!(capacity as u64, wanted),
                    None => {
                        assert!(capacity <= length + length / 4 + STEP, "{capacity} for {length}")
                    }
                }
            }
            assert_eq!(copy.finish().unwrap().1.len(), 1_000_000);
        }
    }

    #[test]
    fn copies_no_more_than_the_largest_body() {
        let budget = budget();
        let mut copy = copy(None, 100_000);
        copy.push(&budget, &[7; 100_000]);
        assert_eq!(copy.bytes.capacity(), 100_000);
        copy.push(&budget, &[7]);
        assert!(copy.finish().is_none());
        assert_eq!(budget.status()[1].used, 0);
    }
}
