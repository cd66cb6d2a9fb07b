//! Associations of datagrams: who gets one, and who gives one back for that.
//!
//! A holder takes another while it has less than [`AssociationShare::of_free`] times as many as are free (dynamic
//! thresholds: Choudhury and Hahne, IEEE/ACM ToN 6(2), 1998). So one alone leaves some to those that come later. With
//! `h` the associations of a holder that may not take another so, `m` those of the holder with the most, and an even
//! share `s = most / holders`, the longest idle one of that other holder ends for it where
//!
//! ```text
//! m > s   and   m ≥ h + 2
//! ```
//! (longest queue drop: Suter et al., INFOCOM 1998), if the newcomer is [`AssociationShare::proven`]. No such swap makes the division less even, so equal holders take
//! nothing from each other. Otherwise one ends that was idle for [`RESTED`]: the newcomer's own, or, where the newcomer
//! has none, one of the largest holder. A NAT drops such a mapping, too.
//!
//! One sender may forge as many holders as it likes. So those that are not proven leave a quarter of all to the others.
//! Where all are held, one of theirs ends for a proven newcomer that has none, while they have more than a quarter. What
//! bears a holder's name and is not proven counts apart from what it proved, as if another held it.

use crate::slab::{Handle, List, Slab};
use crate::units::{Span, Time};
use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Reverse;

/// An association that was idle for so long may end for another (RFC 4787 §4.3, REQ-5: two minutes).
pub const RESTED: Span = Span::from_secs(120);

/// How much of what is free a holder may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssociationShare {
    /// The most associations of all holders.
    pub most: u64,
    /// A holder takes another while it has less than so many times what is free: 1 leaves it half of all, 8 leaves it
    /// eight ninths.
    pub of_free: u64,
    /// The newcomer has shown that it is where it says. Others, whose datagrams may be forged, take only what has rested.
    pub proven: bool,
}

impl AssociationShare {
    /// The most associations that are not proven.
    pub const fn unproven(self) -> u64 {
        self.most - self.most / 4
    }
}

/// Why a holder gets no association.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAssociation {
    /// All are in use, and nobody has more than an even share.
    All,
    /// The holder has so many, its share.
    Share(u64),
    /// Those that are not proven have so many, their part.
    Unproven(u64),
}

/// An association's entry, until it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AssociationId(Handle);

#[derive(Debug, Clone)]
struct Association<H, T> {
    /// And whether it is proven.
    holder: (H, bool),
    who: T,
    moved: Time,
    /// Of two that moved at one time, the lower did so before.
    turn: u64,
}

#[derive(Debug, Clone, Copy)]
struct Holder {
    held: u64,
    /// The longest idle first.
    idle: List,
}

/// All associations by their holders. Each event takes a time logarithmic in the number of holders; the memory is
/// proportional to the associations.
#[derive(Debug, Clone)]
pub struct Associations<H, T> {
    associations: Slab<Association<H, T>, 2>,
    /// By whether they are proven, too.
    holders: BTreeMap<(H, bool), Holder>,
    /// The largest holder last; of equals, the one with the longest idle association.
    order: BTreeSet<(u64, Reverse<u64>, (H, bool))>,
    /// Those that are not proven, the longest idle first.
    unproven: List,
    unproven_held: u64,
    turns: u64,
}

impl<H: Ord + Clone, T> Default for Associations<H, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<H: Ord + Clone, T> Associations<H, T> {
    /// Nobody has one.
    pub fn new() -> Self {
        Self {
            associations: Slab::with_capacity(0),
            holders: BTreeMap::new(),
            order: BTreeSet::new(),
            unproven: List::new(1),
            unproven_held: 0,
            turns: 0,
        }
    }

    /// Gives a holder an association, which moves now. `end` is called for each that ends for it: one, or more where
    /// more are held than a lower limit permits. Fails where no association ends for it.
    pub fn begin(
        &mut self,
        now: Time,
        share: AssociationShare,
        holder: H,
        who: T,
        mut end: impl FnMut(T),
    ) -> Result<AssociationId, NoAssociation> {
        let holder = (holder, share.proven);
        let own = self.own(&holder);
        let (held, most) = (self.held(), share.most);
        let is_part_held = !share.proven && self.unproven_held >= share.unproven();
        if is_part_held || own >= share.of_free.saturating_mul(most.saturating_sub(held)) {
            let excess = (held + 1).saturating_sub(most).max(1);
            for _ in 0..excess {
                let victim = match is_part_held {
                    true => self.longest_idle_unproven().filter(|id| self.has_rested(now, *id)),
                    false => self.victim(now, share, &holder),
                };
                let Some(victim) = victim.filter(|_| most > 0) else {
                    return Err(match (held >= most, is_part_held) {
                        (true, _) => NoAssociation::All,
                        (false, true) => NoAssociation::Unproven(share.unproven()),
                        (false, false) => NoAssociation::Share(own),
                    });
                };
                self.on_end(victim).into_iter().for_each(&mut end);
            }
        }
        let turn = self.turn();
        let association = Association { holder: holder.clone(), who, moved: now, turn };
        let handle = self.associations.insert(association);
        if !share.proven {
            self.unproven_held += 1;
            self.unproven.push_back(&mut self.associations, handle);
        }
        self.change(&holder, |holder, associations| {
            holder.held += 1;
            holder.idle.push_back(associations, handle);
        });
        Ok(AssociationId(handle))
    }

    /// The association that ends for another one of `holder`.
    fn victim(
        &self,
        now: Time,
        share: AssociationShare,
        holder: &(H, bool),
    ) -> Option<AssociationId> {
        let own = self.own(holder);
        let (largest_held, _, largest) = self.order.last()?;
        let holders = self.holders.len() as u64 + u64::from(own == 0);
        let is_above = *largest_held > share.most / holders.max(1) && *largest_held >= own + 2;
        if is_above && share.proven {
            return self.longest_idle(largest);
        }
        if share.proven
            && own == 0
            && self.held() >= share.most
            && self.unproven_held > share.most / 4
            && let Some(id) = self.longest_idle_unproven()
        {
            return Some(id);
        }
        let gives = if own > 0 { holder } else { largest };
        self.longest_idle(gives).filter(|id| self.has_rested(now, *id))
    }

    fn has_rested(&self, now: Time, id: AssociationId) -> bool {
        let association = self.associations.get(id.0);
        association.is_some_and(|association| now.since(association.moved) >= RESTED)
    }

    fn longest_idle_unproven(&self) -> Option<AssociationId> {
        self.unproven.head(&self.associations).map(AssociationId)
    }

    /// A datagram of it moved.
    pub fn on_moved(&mut self, now: Time, id: AssociationId) {
        let turn = self.turn();
        let Some(association) = self.associations.get(id.0) else { return };
        let holder = association.holder.clone();
        if !holder.1 {
            self.unproven.unlink(&mut self.associations, id.0);
            self.unproven.push_back(&mut self.associations, id.0);
        }
        self.change(&holder, |holder, associations| {
            holder.idle.unlink(associations, id.0);
            if let Some(association) = associations.get_mut(id.0) {
                (association.moved, association.turn) = (now, turn);
            }
            holder.idle.push_back(associations, id.0);
        });
    }

    /// It has ended; `None` where it ended before.
    pub fn on_end(&mut self, id: AssociationId) -> Option<T> {
        let association = self.associations.get(id.0)?;
        let holder = association.holder.clone();
        if !holder.1 {
            self.unproven_held -= 1;
            self.unproven.unlink(&mut self.associations, id.0);
        }
        self.change(&holder, |holder, associations| {
            holder.idle.unlink(associations, id.0);
            holder.held -= 1;
        });
        self.associations.remove(id.0).map(|association| association.who)
    }

    /// All that are held.
    pub const fn held(&self) -> u64 {
        self.associations.len() as u64
    }

    /// Those of one holder, proven or not.
    pub fn held_by(&self, holder: &H) -> u64 {
        [false, true].map(|proven| self.own(&(holder.clone(), proven))).iter().sum()
    }

    fn own(&self, holder: &(H, bool)) -> u64 {
        self.holders.get(holder).map_or(0, |holder| holder.held)
    }

    /// The longest idle one of a holder.
    fn longest_idle(&self, holder: &(H, bool)) -> Option<AssociationId> {
        self.holders.get(holder)?.idle.head(&self.associations).map(AssociationId)
    }

    /// Whose it is; `None` where it has ended.
    pub fn holder(&self, id: AssociationId) -> Option<&H> {
        self.associations.get(id.0).map(|association| &association.holder.0)
    }

    const fn turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// Changes a holder and its place in the order.
    fn change(
        &mut self,
        of: &(H, bool),
        work: impl FnOnce(&mut Holder, &mut Slab<Association<H, T>, 2>),
    ) {
        let new = Holder { held: 0, idle: List::new(0) };
        let holder = self.holders.entry(of.clone()).or_insert(new);
        let key = |holder: &Holder, associations: &Slab<Association<H, T>, 2>| {
            let first = associations.get(holder.idle.head(associations)?)?;
            Some((holder.held, Reverse(first.turn), of.clone()))
        };
        if let Some(key) = key(holder, &self.associations) {
            self.order.remove(&key);
        }
        work(holder, &mut self.associations);
        match key(holder, &self.associations) {
            Some(key) => drop(self.order.insert(key)),
            None => drop(self.holders.remove(of)),
        }
    }
}

#[cfg(test)]
mod laws;
