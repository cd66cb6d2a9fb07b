//! Something countable of which only so much may be in use: connections, pipes, bytes of memory.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A budget shared by threads: [`Budget::take`] never exceeds the limit. A limit below the current
/// use takes effect as holders give back.
#[derive(Debug)]
pub struct Budget {
    limit: AtomicU64,
    used: AtomicU64,
    peak: AtomicU64,
}

impl Budget {
    /// A budget of `limit` units, none of them in use.
    pub const fn new(limit: u64) -> Self {
        Self { limit: AtomicU64::new(limit), used: AtomicU64::new(0), peak: AtomicU64::new(0) }
    }

    /// Takes `n` units, or none at all when fewer are left.
    pub fn take(&self, n: u64) -> bool {
        self.take_leaving(n, 0)
    }

    /// The same, or none at all when fewer than `spare` would be left then.
    pub fn take_leaving(&self, n: u64, spare: u64) -> bool {
        let limit = self.limit.load(Relaxed);
        let fits = |sum: &u64| sum.checked_add(spare).is_some_and(|all| all <= limit);
        let grant = |used: u64| used.checked_add(n).filter(fits);
        match self.used.fetch_update(Relaxed, Relaxed, grant) {
            Ok(before) => {
                self.peak.fetch_max(before + n, Relaxed);
                true
            }
            Err(_) => false,
        }
    }

    /// Gives `n` units back that were taken before.
    pub fn give(&self, n: u64) {
        let rest = |used: u64| Some(used.saturating_sub(n));
        let _ = self.used.fetch_update(Relaxed, Relaxed, rest);
    }

    /// In use now.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// What may still be taken.
    pub fn left(&self) -> u64 {
        self.limit().saturating_sub(self.used())
    }

    /// The most that was ever in use.
    pub fn peak(&self) -> u64 {
        self.peak.load(Relaxed)
    }

    /// The most that may be in use.
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    proptest! {
        #[test]
        fn used_equals_granted_and_stays_below_the_limit(
            limit in 0_u64..100,
            spare in 0_u64..100,
            steps in proptest::collection::vec((any::<bool>(), 0_u64..40), 0..200),
        ) {
            let budget = Budget::new(limit);
            let mut held = Vec::new();
            for (take, n) in steps {
                if take {
                    let sum = held.iter().sum::<u64>() + n;
                    let ample = sum + spare <= limit;
                    prop_assert_eq!(budget.take_leaving(n, spare), ample);
                    prop_assert_eq!(ample || budget.take(n), sum <= limit);
                    if sum <= limit { held.push(n); }
                } else if let Some(n) = held.pop() {
                    budget.give(n);
                }
                prop_assert_eq!(budget.used(), held.iter().sum::<u64>());
                prop_assert_eq!(budget.left(), limit - budget.used());
                prop_assert!(budget.peak() <= limit);
            }
        }
    }
}
