//! Pipes and memory for bytes in transit, shared by all connections.

use crate::observe::status::BudgetStatus;
use crate::settings::{Budgets, CopyMode};
use ekiden_linux::sockets::splice::PipePool;
use ekiden_model::control::copy_mode::CopySelector;
use ekiden_model::resources::budget::Budget;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct TransferBudget {
    pub(crate) pipes: PipePool,
    pub(crate) pipe_size: usize,
    memory: Budget,
    copy_mode: CopyMode,
    directions: AtomicU64,
}

impl TransferBudget {
    pub(crate) fn new(budgets: &Budgets, copy_mode: CopyMode) -> Arc<Self> {
        let pipe_size = budgets.pipe_size.as_usize();
        Arc::new(Self {
            pipes: PipePool::new(budgets.pipes, pipe_size),
            pipe_size,
            memory: Budget::new(budgets.memory.as_u64()),
            copy_mode,
            directions: AtomicU64::new(0),
        })
    }

    /// How a new direction moves its bytes.
    pub(crate) fn copy_selector(&self) -> CopySelector {
        CopySelector::new(match self.copy_mode {
            CopyMode::Random(seed) => {
                CopyMode::Random(seed.wrapping_add(self.directions.fetch_add(1, Ordering::Relaxed)))
            }
            mode => mode,
        })
    }

    /// All of it.
    #[cfg(any(test, feature = "cache"))]
    pub(crate) fn unshared(self: &Arc<Self>) -> TransferShare {
        TransferShare { of_free: None, ..TransferShare::new(self, Arc::default(), 1) }
    }

    /// Pipes, then memory.
    pub(crate) fn status(&self) -> [BudgetStatus; 2] {
        let pipes = &self.pipes;
        [
            BudgetStatus {
                name: "pipes".into(),
                used: pipes.used().into(),
                peak: pipes.peak().into(),
                limit: pipes.limit().into(),
            },
            BudgetStatus {
                name: "memory".into(),
                used: self.memory.used(),
                peak: self.memory.peak(),
                limit: self.memory.limit(),
            },
        ]
    }
}

/// The budget for all connections of one source.
#[derive(Debug, Clone)]
pub(crate) struct TransferShare {
    all: Arc<TransferBudget>,
    /// What its connections hold, in bytes.
    own: Arc<AtomicU64>,
    /// `None`: it has all.
    of_free: Option<u64>,
}

impl TransferShare {
    /// `of_free`: it takes more while it has less than so many times what is free (dynamic thresholds: Choudhury and Hahne,
    /// IEEE/ACM ToN 6(2), 1998). So with 1 it leaves half to those that come later.
    pub(crate) fn new(all: &Arc<TransferBudget>, own: Arc<AtomicU64>, of_free: u64) -> Self {
        Self { all: Arc::clone(all), own, of_free: Some(of_free) }
    }

    /// All of it, for what is given back soon.
    #[cfg(feature = "cache")]
    pub(crate) fn unshared(&self) -> Self {
        self.all.unshared()
    }

    /// Of which it is a share.
    pub(crate) fn all(&self) -> &TransferBudget {
        &self.all
    }

    /// Reserves memory for `n` bytes, or fails at once: a holder may keep its memory for hours.
    pub(crate) fn reserve(&self, n: usize) -> Option<ReservedMemory> {
        let (bytes, memory) = (n as u64, &self.all.memory);
        let own = self.own.load(Ordering::Relaxed).saturating_add(bytes);
        let left = memory.left().saturating_sub(bytes);
        let is_beyond = self.of_free.is_some_and(|of_free| own > left.saturating_mul(of_free));
        if is_beyond || !memory.take(bytes) {
            return None;
        }
        self.own.fetch_add(bytes, Ordering::Relaxed);
        Some(ReservedMemory { budget: Arc::clone(&self.all), own: Arc::clone(&self.own), bytes })
    }
}

/// Memory that another budget counts; the drop returns it.
pub(crate) trait CountedMemory: Debug + Send + Sync {}

/// Bytes that came before their direction was open, and what counts them where this budget has nothing left.
#[derive(Debug, Default)]
pub(crate) struct EarlyBytes {
    pub(crate) bytes: Vec<u8>,
    pub(crate) counted: Option<Box<dyn CountedMemory>>,
}

impl EarlyBytes {
    pub(crate) fn new(bytes: Vec<u8>, counted: impl CountedMemory + 'static) -> Self {
        let counted = (!bytes.is_empty()).then(|| Box::new(counted) as Box<dyn CountedMemory>);
        Self { bytes, counted }
    }
}

impl From<Vec<u8>> for EarlyBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, counted: None }
    }
}

/// Memory from the budget; the drop returns it.
#[derive(Debug)]
pub(crate) struct ReservedMemory {
    budget: Arc<TransferBudget>,
    own: Arc<AtomicU64>,
    bytes: u64,
}

impl ReservedMemory {
    /// Returns all but `n` bytes.
    pub(crate) fn shrink_to(&mut self, n: usize) {
        let kept = self.bytes.min(n as u64);
        self.give(self.bytes - kept);
        self.bytes = kept;
    }

    fn give(&self, bytes: u64) {
        self.budget.memory.give(bytes);
        self.own.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for ReservedMemory {
    fn drop(&mut self) {
        self.give(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_model::units::Bytes;

    #[test]
    fn a_source_leaves_as_much_as_it_has() {
        let budgets = Budgets { memory: Bytes::mib(12), ..Budgets::default() };
        let budget = TransferBudget::new(&budgets, CopyMode::Auto);
        let share = |of_free| TransferShare::new(&budget, Arc::default(), of_free);
        let fill = |share: &TransferShare| {
            std::iter::from_fn(|| share.reserve(1 << 20)).collect::<Vec<_>>()
        };
        let (one, two, peer) = (share(1), share(1), share(8));
        let mut first = fill(&one);
        assert_eq!((first.len(), fill(&one).len()), (6, 0), "on each of its connections");
        let second = fill(&two);
        assert_eq!(second.len(), 3);
        assert_eq!(fill(&peer).len(), 2);
        drop(second);
        first[0].shrink_to(0);
        assert_eq!(one.own.load(Ordering::Relaxed), 5 << 20);
        drop(first);
        assert_eq!(fill(&peer).len(), 10);
        assert!(share(1).reserve(7 << 20).is_none(), "also at once");
        assert!(budget.unshared().reserve(12 << 20).is_some());
        assert_eq!(budget.status()[1].used, 0);
    }
}
