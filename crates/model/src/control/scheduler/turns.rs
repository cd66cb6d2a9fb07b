//! Turns of accounts and of their parts, and the flows that wait for them.

use crate::slab::{Handle, List};

/// Bytes that one may still send in its turn; below zero what it pays back.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Credit(i64);

impl Credit {
    pub(super) const NONE: Self = Self(0);

    /// Whether it may send now that its turn has come. Not where it is in debt for more than a turn.
    pub(super) const fn begins(&mut self, quantum: i64) -> bool {
        if self.0 <= 0 {
            self.0 = self.0.saturating_add(quantum);
        }
        self.0 > 0
    }

    /// Whether its turn is over.
    pub(super) const fn spend(&mut self, bytes: u64) -> bool {
        self.0 = self.0.saturating_sub_unsigned(bytes);
        self.0 <= 0
    }
}

#[derive(Debug, Clone)]
pub(super) struct AccountState {
    pub(super) weight: u32,
    pub(super) parts: usize,
    /// By lane.
    pub(super) lanes: [PartsWaiting; 2],
}

impl AccountState {
    pub(super) const fn new(weight: u32) -> Self {
        Self { weight, parts: 0, lanes: [PartsWaiting::new(0), PartsWaiting::new(1)] }
    }
}

/// An account's parts that have something waiting in a lane, in turn.
#[derive(Debug, Clone)]
pub(super) struct PartsWaiting {
    pub(super) turns: List,
    pub(super) credit: Credit,
}

impl PartsWaiting {
    const fn new(lane: usize) -> Self {
        Self { turns: List::new(lane), credit: Credit::NONE }
    }
}

#[derive(Debug, Clone)]
pub(super) struct PartState {
    pub(super) account: Handle,
    pub(super) flows: usize,
    /// By lane.
    pub(super) lanes: [Waiting; 2],
}

impl PartState {
    pub(super) const fn new(account: Handle) -> Self {
        Self { account, flows: 0, lanes: [Waiting::new(), Waiting::new()] }
    }
}

/// A part's flows that have something waiting in a lane.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    /// Those that had nothing: before the others, for one turn.
    pub(super) fresh: List,
    pub(super) others: List,
    /// Turns of the others.
    pub(super) turns: u64,
    pub(super) credit: Credit,
}

impl Waiting {
    const fn new() -> Self {
        Self { fresh: List::new(0), others: List::new(0), turns: 0, credit: Credit::NONE }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.others.is_empty()
    }

    pub(super) const fn list(&mut self, fresh: bool) -> &mut List {
        if fresh { &mut self.fresh } else { &mut self.others }
    }
}
