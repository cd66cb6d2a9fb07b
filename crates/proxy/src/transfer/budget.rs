//! Pipes and memory for bytes in transit, shared by all connections.

use crate::observe::status::BudgetStatus;
use crate::settings::{Budgets, CopyMode};
use ekiden_linux::sockets::splice::PipePool;
use ekiden_model::control::copy_mode::CopySelector;
use ekiden_model::resources::budget::Budget;
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

    /// Reserves memory for `n` bytes, or fails at once: a holder may keep its memory for hours.
    pub(crate) fn reserve(self: &Arc<Self>, n: usize) -> Option<ReservedMemory> {
        let bytes = n as u64;
        self.memory.take(bytes).then(|| ReservedMemory { budget: Arc::clone(self), bytes })
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

/// Memory from the budget; the drop returns it.
#[derive(Debug)]
pub(crate) struct ReservedMemory {
    budget: Arc<TransferBudget>,
    bytes: u64,
}

impl ReservedMemory {
    /// Returns all but `n` bytes.
    pub(crate) fn shrink_to(&mut self, n: usize) {
        let kept = self.bytes.min(n as u64);
        self.budget.memory.give(self.bytes - kept);
        self.bytes = kept;
    }
}

impl Drop for ReservedMemory {
    fn drop(&mut self) {
        self.budget.memory.give(self.bytes);
    }
}
