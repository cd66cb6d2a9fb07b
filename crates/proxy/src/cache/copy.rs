//! A copy of a body for the cache, made while the body passes.

use super::rules::Policy;
use crate::transfer::budget::{ReservedMemory, TransferShare};
use bytes::Bytes;

/// Memory is reserved in steps of this size.
const STEP: usize = 64 * 1024;

/// The copy, abandoned when it becomes too large or memory is short, so that no client waits for
/// it.
#[derive(Debug)]
pub(super) struct BodyCopy {
    policy: Policy,
    budget: TransferShare,
    most: u64,
    length: Option<u64>,
    bytes: Vec<u8>,
    reserved: Vec<ReservedMemory>,
    given_up: bool,
}

impl BodyCopy {
    pub(super) fn new(
        policy: Policy,
        budget: TransferShare,
        (length, most): (Option<u64>, u64),
    ) -> Self {
        let (bytes, reserved) = (Vec::new(), Vec::new());
        Self { policy, budget, most, length, bytes, reserved, given_up: false }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.given_up {
            return;
        }
        let length = self.bytes.len() + bytes.len();
        let mut fits = length as u64 <= self.most;
        while fits && length > self.reserved.len() * STEP {
            match self.budget.reserve(STEP) {
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

    pub(super) fn finish(self) -> Option<(Policy, Bytes)> {
        (!self.given_up).then(|| (self.policy, Bytes::from(self.bytes.into_boxed_slice())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{CopyMode, Settings};
    use crate::transfer::budget::TransferBudget;
    use std::sync::Arc;

    fn budget() -> Arc<TransferBudget> {
        TransferBudget::new(&Settings::default().budgets, CopyMode::Auto)
    }

    fn copy(budget: &Arc<TransferBudget>, length: Option<u64>, most: u64) -> BodyCopy {
        let policy = http_cache_semantics::CachePolicy::new(
            &http::Request::new(()),
            &http::Response::new(()),
        );
        BodyCopy::new(Policy { policy, beside: 0 }, budget.unshared(), (length, most))
    }

    #[test]
    fn reserves_little_more_memory_than_the_body() {
        let budget = budget();
        let part = [7; 10_000];
        for wanted in [Some(1_000_000), None] {
            let mut copy = copy(&budget, wanted, 4 << 20);
            for n in 1..=100 {
                copy.push(&part);
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
        let mut copy = copy(&budget, None, 100_000);
        copy.push(&[7; 100_000]);
        assert_eq!(copy.bytes.capacity(), 100_000);
        copy.push(&[7]);
        assert!(copy.finish().is_none());
        assert_eq!(budget.status()[1].used, 0);
    }
}
