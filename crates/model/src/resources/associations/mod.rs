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
//! (longest queue drop: Suter et al., INFOCOM 1998), if the newcomer is [`AssociationShare::proven`]. No such swap makes
//! the division less even, so equal holders take nothing from each other. Otherwise one ends that was idle for
//! [`RESTED`]: the newcomer's own, or, where the newcomer has none, one of the largest holder. A NAT drops such a
//! mapping, too.
//!
//! One sender may forge as many holders as it likes. So those that are not proven leave a quarter of all to the others,
//! and what is free of their part counts for their shares. Where all are held, one of theirs ends for a proven newcomer
//! that has none, while they have more than a quarter. What bears a holder's name and is not proven counts apart from
//! what it proved, as if another held it.
//!
//! For a newcomer that is not proven, first one ends that has rested: its own, or, where it has none and their part is
//! held, the longest idle of theirs. Otherwise that one of them with the most gives its longest idle by the rule above.
//! There `s` is an even share of their part, but a sixteenth of it at least. So each keeps a sixteenth that moves,
//! however many holders are forged; and fifteen of them do not shut out another.
//!
//! Addresses that are their own are cheap, too: one line may have 65,536 networks of IPv6. So some associations may be
//! [`kept`](AssociationShare::kept) for holders that are known. The others may have the rest, proven or not. They end
//! nothing of a known holder while the known have no more than is kept for them.

use crate::slab::{Handle, List, Slab};
use crate::units::{Span, Time};
use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Reverse;

/// An association that was idle for so long may end for another (RFC 4787 §4.3, REQ-5: two minutes).
pub const RESTED: Span = Span::from_secs(120);

/// A holder that is not proven keeps one in so many of their part from others of them.
const KEPT: u64 = 16;

/// How much of what is free a holder may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssociationShare {
    /// The most associations of all holders.
    pub most: u64,
    /// A holder takes another while it has less than so many times what is free: 1 leaves it half of all, 8 leaves it
    /// eight ninths.
    pub of_free: u64,
    /// The newcomer has shown that it is where it says. Others, whose datagrams may be forged, take only what has rested,
    /// or what others of them have.
    pub proven: bool,
    /// The newcomer has an account, or was invited, and is proven.
    pub known: bool,
    /// So many of `most` are kept for those that are known.
    pub kept: u64,
}

impl AssociationShare {
    /// The most associations that are not proven.
    pub const fn unproven(self) -> u64 {
        let (part, open) = (self.most - self.most / 4, self.open());
        if part < open { part } else { open }
    }

    /// The most associations of holders that are not known.
    pub const fn open(self) -> u64 {
        self.most.saturating_sub(self.kept)
    }

    const fn standing(self) -> Standing {
        match (self.proven, self.known) {
            (false, _) => Standing::Unproven,
            (true, false) => Standing::Proven,
            (true, true) => Standing::Known,
        }
    }
}

/// What a holder has shown of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Unproven,
    /// It is where it says.
    Proven,
    /// It has an account, or was invited.
    Known,
}

impl Standing {
    const ALL: [Self; 3] = [Self::Unproven, Self::Proven, Self::Known];
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
    /// Those that are not known have so many, and the others are kept.
    Open(u64),
}

/// An association's entry, until it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AssociationId(Handle);

#[derive(Debug, Clone)]
struct Association<H, T> {
    holder: (H, Standing),
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

/// The largest holder last; of equals, the one with the longest idle association.
type Order<H> = BTreeSet<(u64, Reverse<u64>, (H, Standing))>;

/// All associations by their holders. Each event takes a time logarithmic in the number of holders; the memory is
/// proportional to the associations.
#[derive(Debug, Clone)]
pub struct Associations<H, T> {
    associations: Slab<Association<H, T>, 2>,
    /// By their standing, too.
    holders: BTreeMap<(H, Standing), Holder>,
    /// Of each standing.
    orders: [Order<H>; 3],
    held_by_standing: [u64; 3],
    /// Those that are not proven, the longest idle first.
    unproven: List,
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
            orders: [Order::new(), Order::new(), Order::new()],
            held_by_standing: [0; 3],
            unproven: List::new(1),
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
        let holder = (holder, share.standing());
        let own = self.own(&holder);
        let (held, most) = (self.held(), share.most);
        let free = self.free(share);
        if own >= share.of_free.saturating_mul(free) {
            let excess = (held + 1).saturating_sub(most).max(1);
            for _ in 0..excess {
                let victim = self.victim(now, share, &holder);
                let Some(victim) = victim.filter(|_| most > 0) else {
                    let is_open_held = self.open_held() >= share.open();
                    return Err(match (held >= most, free == 0) {
                        (true, _) => NoAssociation::All,
                        (false, true) if is_open_held => NoAssociation::Open(share.open()),
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
        self.held_by_standing[holder.1 as usize] += 1;
        if holder.1 == Standing::Unproven {
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
        holder: &(H, Standing),
    ) -> Option<AssociationId> {
        let own = self.own(holder);
        let newcomer = u64::from(own == 0);
        let [unproven, _, known] = self.held_by_standing;
        // the known give to others only beyond what is kept for them, and where that makes room
        let is_known = holder.1 == Standing::Known;
        let all_give = is_known || known > share.kept && self.open_held() < share.open();
        let (among, part) = match all_give {
            true => (&self.orders[..], share.most),
            false => (&self.orders[..=Standing::Proven as usize], share.open()),
        };
        let largest = among.iter().filter_map(BTreeSet::last).max();
        let (gives, even) = if share.proven {
            let holders = among.iter().map(BTreeSet::len).sum::<usize>() as u64 + newcomer;
            (largest, part / holders.max(1))
        } else {
            let order = &self.orders[Standing::Unproven as usize];
            let holders = order.len() as u64 + newcomer;
            (order.last(), share.unproven() / holders.clamp(1, KEPT))
        };
        let fair = || {
            let (.., gives) = gives.filter(|(held, ..)| *held > even && *held >= own + 2)?;
            self.longest_idle(gives)
        };
        let rested = || {
            let longest_idle = match own {
                0 if !share.proven && unproven >= share.unproven() => self.longest_idle_unproven(),
                0 => self.longest_idle(&largest?.2),
                _ => self.longest_idle(holder),
            };
            longest_idle.filter(|id| self.has_rested(now, *id))
        };
        if !share.proven {
            return rested().or_else(fair);
        }
        let many = unproven > share.most / 4;
        let of_many = || match own == 0 && self.free(share) == 0 && many {
            true => self.longest_idle_unproven(),
            false => None,
        };
        fair().or_else(of_many).or_else(rested)
    }

    /// What is free for another of this kind.
    fn free(&self, share: AssociationShare) -> u64 {
        let [unproven, ..] = self.held_by_standing;
        let free = share.most.saturating_sub(self.held());
        let open = free.min(share.open().saturating_sub(self.open_held()));
        match share.standing() {
            Standing::Known => free,
            Standing::Proven => open,
            Standing::Unproven => open.min(share.unproven().saturating_sub(unproven)),
        }
    }

    /// Those of holders that are not known.
    const fn open_held(&self) -> u64 {
        let [unproven, proven, _] = self.held_by_standing;
        unproven + proven
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
        if holder.1 == Standing::Unproven {
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
        self.held_by_standing[holder.1 as usize] -= 1;
        if holder.1 == Standing::Unproven {
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

    /// Those of one holder, of any standing.
    pub fn held_by(&self, holder: &H) -> u64 {
        Standing::ALL.map(|standing| self.own(&(holder.clone(), standing))).iter().sum()
    }

    fn own(&self, holder: &(H, Standing)) -> u64 {
        self.holders.get(holder).map_or(0, |holder| holder.held)
    }

    /// The longest idle one of a holder.
    fn longest_idle(&self, holder: &(H, Standing)) -> Option<AssociationId> {
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
        of: &(H, Standing),
        work: impl FnOnce(&mut Holder, &mut Slab<Association<H, T>, 2>),
    ) {
        let new = Holder { held: 0, idle: List::new(0) };
        let holder = self.holders.entry(of.clone()).or_insert(new);
        let key = |holder: &Holder, associations: &Slab<Association<H, T>, 2>| {
            let first = associations.get(holder.idle.head(associations)?)?;
            Some((holder.held, Reverse(first.turn), of.clone()))
        };
        let order = &mut self.orders[of.1 as usize];
        if let Some(key) = key(holder, &self.associations) {
            order.remove(&key);
        }
        work(holder, &mut self.associations);
        match key(holder, &self.associations) {
            Some(key) => drop(order.insert(key)),
            None => drop(self.holders.remove(of)),
        }
    }
}

#[cfg(test)]
mod laws;
