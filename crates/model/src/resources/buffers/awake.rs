//! Ticks at which the kernel tunes all buffers, and which look only at connections that moved: thousands of silent ones
//! cost them nothing.

use super::allocator::{Allocator, Asked};
use super::{Change, Enough, Grant, Policy};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

impl Allocator {
    /// Whether a tick has to decide for all connections: where sizes are shared out, or something for all has changed.
    pub(super) fn decides_for_all(&self) -> bool {
        let tuned = self.config.policy == Policy::Shared && self.config.enough == Enough::Automatic;
        self.all_due || !tuned || self.short || self.initial != self.initial()
    }

    /// Ends a period, of all connections or of those that are awake.
    pub(super) fn end_period(&mut self, all: bool) {
        if all {
            self.connections.values_mut().for_each(|connection| connection.on_period());
            return;
        }
        for id in &self.awake {
            if let Some(connection) = self.connections.get_mut(id) {
                connection.on_period();
            }
        }
    }

    /// Decides for those that are awake and their partners, and leaves sizes to the kernel; `None` where the pool does not
    /// suffice for that.
    pub(super) fn decide_awake(&mut self) -> Option<Vec<Change>> {
        let partner = |id: &u64| self.connections.get(id).and_then(|connection| connection.partner);
        let partners: Vec<u64> = self.awake.iter().filter_map(partner).collect();
        let ids: BTreeSet<u64> = self.awake.iter().copied().chain(partners).collect();
        let asked = |id: &u64| Some(self.asked(*id, self.connections.get(id)?));
        let asked: Vec<Asked> = ids.iter().filter_map(asked).flatten().collect();
        let mut demand = self.demand.saturating_sub(self.gone);
        for one in &asked {
            let buffer = self.connections.get(&one.id).and_then(|it| it.buffer(one.side));
            let before = buffer.map_or(0, |buffer| buffer.wanted);
            demand = demand.saturating_sub(before).saturating_add(one.claim.wanted());
        }
        if demand > self.config.pool.as_u64() {
            return None;
        }
        self.demand = demand;
        let mut changes = Vec::new();
        for one in &asked {
            let connection = self.connections.get_mut(&one.id);
            let Some(buffer) = connection.and_then(|it| it.buffer_mut(one.side)) else { continue };
            one.note(buffer);
            if let Some(old) = buffer.grant.take() {
                self.granted -= old;
                changes.push(Change { id: one.id, side: one.side, grant: Grant::Automatic });
            }
        }
        Some(changes)
    }
}
