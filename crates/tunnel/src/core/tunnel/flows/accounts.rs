//! Accounts with flows in a tunnel: how many each may have, and its turns.
//!
//! An account may be another relay as a whole, and its parts those behind it. The relay numbers them as it likes, so
//! numbers must gain it nothing: turns and flows are divided among accounts first, and then among the parts of each.

use crate::core::flow::Owner;
use crate::core::tunnel::peer_memory::TunnelMemory;
use crate::frame::owner_and_behind;
use ekiden_model::control::scheduler::{self, Account, Part, Scheduler};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// Flows that an account may have, for each that is free.
const ALPHA: usize = 4;

#[derive(Debug, Default)]
pub(in crate::core::tunnel) struct Accounts {
    /// By the number of the owner; a slice of the text would keep the datagram that brought it.
    accounts: BTreeMap<Box<[u8]>, AccountFlows>,
    /// By the whole text.
    parts: BTreeMap<Box<[u8]>, PartFlows>,
}

/// All flows of an account.
#[derive(Debug)]
struct AccountFlows {
    turns: Account,
    flows: usize,
}

/// Those of one part.
#[derive(Debug)]
struct PartFlows {
    turns: Part,
    owner: Arc<Owner>,
    flows: usize,
}

impl Accounts {
    /// Whether an account may have another flow: only while it has less than four times what is `free` (dynamic
    /// thresholds; Choudhury and Hahne, IEEE/ACM ToN 6(2), 1998). One alone has four fifths at most, and others always
    /// find some. One behind another relay may have four times what that relay may add.
    pub(super) fn have_room_for(&self, account: &[u8], free: usize) -> bool {
        let (owner, behind) = owner_and_behind(account);
        let all = self.accounts.get(owner).map_or(0, |account| account.flows);
        let left = (ALPHA * free).saturating_sub(all);
        match behind {
            None => left > 0,
            // a fifth of what is left it may add: what it adds is no longer free
            Some(_) => {
                let own = self.parts.get(account).map_or(0, |part| part.flows);
                (1 + ALPHA) * own < ALPHA * left
            }
        }
    }

    /// Another flow of an account; `None` only by an error of this program.
    pub(in crate::core::tunnel) fn enter(
        &mut self,
        account: &[u8],
        scheduler: &mut Scheduler,
        memory: &TunnelMemory,
    ) -> Option<(scheduler::Flow, Arc<Owner>)> {
        let (owner, _) = owner_and_behind(account);
        let new = || AccountFlows { turns: scheduler.join(1), flows: 0 };
        let all = self.accounts.entry(owner.into()).or_insert_with(new);
        let part = match self.parts.entry(account.into()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let turns = scheduler.divide(all.turns)?;
                new.insert(PartFlows { turns, owner: memory.owner(account), flows: 0 })
            }
        };
        let turns = scheduler.open(part.turns, scheduler::Lane::Interactive)?;
        all.flows += 1;
        part.flows += 1;
        Some((turns, Arc::clone(&part.owner)))
    }

    /// A flow of an account that had entered is gone.
    pub(super) fn leave(&mut self, account: &[u8], scheduler: &mut Scheduler) {
        let (owner, _) = owner_and_behind(account);
        if let Some(all) = self.accounts.get_mut(owner) {
            all.flows -= 1;
            if all.flows == 0 {
                self.accounts.remove(owner);
            }
        }
        if let Some(part) = self.parts.get_mut(account) {
            part.flows -= 1;
            if part.flows == 0 {
                scheduler.leave(part.turns);
                self.parts.remove(account);
            }
        }
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(in crate::core::tunnel) fn assert_bounded(&self, flows: usize) {
        assert!(self.accounts.len() <= self.parts.len() && self.parts.len() <= flows);
    }
}
