//! Places that askers share by the rule of [`Shares`], and a line of those that wait for one. A new one takes another's
//! place at once where that one has more. Of its own asker it takes one that is old, or else it waits.
//!
//! The driver calls [`Places::take`] for each that comes, and [`Places::give`] once it is done, has waited long enough, or
//! leaves. When a place gets old, it calls [`Places::on_old`]. All three hand back those whose [`Standing`] has changed.

use super::asker::Asker;
use super::shares::Shares;
use crate::units::{Span, Time};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// How one that has come stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It has a place.
    Placed,
    /// It is in the line.
    Waiting,
    /// It gave way, or was given back.
    Gone,
}

#[derive(Debug, PartialEq, Eq)]
struct Place<H> {
    /// From when on it gives way to another of its own asker.
    old_at: Time,
    holder: H,
}

#[derive(Debug, PartialEq, Eq)]
struct Waiter<H> {
    patience: Span,
    holder: H,
}

/// The places that are taken, and the line. `H` tells a holder that it stands otherwise.
#[derive(Debug)]
pub struct Places<H> {
    /// Of all but this relay.
    most: usize,
    /// Of this relay.
    own: usize,
    /// The most in the line; of this relay as many again.
    waiting: usize,
    taken: Shares<Place<H>>,
    /// Where a place is free, nobody waits for it.
    line: Shares<Waiter<H>>,
    /// Those in the line but this relay: how many places each has, its oldest in the line, and who it is.
    turns: BTreeSet<(usize, u64, Asker)>,
}

impl<H: Clone> Places<H> {
    /// At most `most` places, and `own` for this relay itself; at least one of each. At most `waiting` wait, and as many of
    /// this relay; at least one.
    pub const fn new(most: usize, own: usize, waiting: usize) -> Self {
        Self {
            most: if most == 0 { 1 } else { most },
            own: if own == 0 { 1 } else { own },
            waiting: if waiting == 0 { 1 } else { waiting },
            taken: Shares::new(),
            line: Shares::new(),
            turns: BTreeSet::new(),
        }
    }

    /// One comes, and has a place or waits: its number, and those that stand otherwise, itself among them if it has a place.
    /// A place gets old after `patience`. `again`: it had a place before, which gave way to another asker.
    pub fn take(
        &mut self,
        now: Time,
        asker: &Asker,
        patience: Span,
        again: bool,
        holder: H,
    ) -> (u64, Vec<H>) {
        let is_free = self.taken.counted(asker) < self.most(asker);
        let goes = if is_free { None } else { self.gives_way(now, asker, again) };
        let is_served = is_free || goes.is_some();
        // in a full line the longest wait of whoever waits the most ends
        let is_full = !is_served && self.line.counted(asker) >= self.waiting;
        let goes = if is_full { self.line.next_to_go(asker) } else { goes };
        let mut told = Vec::new();
        if let Some((whose, number)) = goes {
            told.extend(self.leave(&whose, number));
        }
        let waiter = Waiter { patience, holder };
        let number = self.change(asker, |_, line| line.add(asker, waiter));
        if is_served {
            told.extend(self.place(now, asker));
        }
        (number, told)
    }

    /// One is done, or waits no longer. Who has its place from now on.
    pub fn give(&mut self, now: Time, asker: &Asker, number: u64) -> Option<H> {
        let had_place = self.taken.has(asker, number);
        self.leave(asker, number);
        if had_place { self.place_next(now, asker) } else { None }
    }

    /// A place of this asker has got old. Where others of it wait, its oldest gives way.
    pub fn on_old(&mut self, now: Time, asker: &Asker) -> Vec<H> {
        let mut told = Vec::new();
        if self.line.count(asker) > 0
            && let Some(number) = self.old(now, asker)
        {
            told.extend(self.leave(asker, number));
            told.extend(self.place_next(now, asker));
        }
        told
    }

    /// How the one with this number stands.
    pub fn standing(&self, asker: &Asker, number: u64) -> Standing {
        if self.taken.has(asker, number) {
            Standing::Placed
        } else if self.line.has(asker, number) {
            Standing::Waiting
        } else {
            Standing::Gone
        }
    }

    /// How many wait.
    pub const fn waiting(&self) -> usize {
        self.line.len()
    }

    /// The most places that count for this asker.
    const fn most(&self, asker: &Asker) -> usize {
        match asker {
            Asker::Relay => self.own,
            _ => self.most,
        }
    }

    /// The place that gives way to a new one of this asker, if one does.
    fn gives_way(&self, now: Time, asker: &Asker, again: bool) -> Option<(Asker, u64)> {
        let (whose, number) = self.taken.next_to_go(asker)?;
        if whose == *asker {
            return self.old(now, asker).map(|number| (whose, number));
        }
        // those that have one each would take them from each other without end
        let takes_turns = again && self.taken.count(asker) == 0 && self.taken.count(&whose) == 1;
        (!takes_turns).then_some((whose, number))
    }

    /// The oldest place of this asker, if it is old.
    fn old(&self, now: Time, asker: &Asker) -> Option<u64> {
        let (number, place) = self.taken.of(asker).next()?;
        (place.old_at <= now).then_some(number)
    }

    fn leave(&mut self, asker: &Asker, number: u64) -> Option<H> {
        self.change(asker, |taken, line| {
            let placed = taken.remove(asker, number).map(|place| place.holder);
            placed.or_else(|| line.remove(asker, number).map(|waiter| waiter.holder))
        })
    }

    /// A place is free that counted for this asker: it goes to whoever of those that wait has the fewest.
    fn place_next(&mut self, now: Time, of: &Asker) -> Option<H> {
        let next = match of {
            Asker::Relay => Asker::Relay,
            _ => self.turns.first()?.2.clone(),
        };
        self.place(now, &next)
    }

    /// Places the one of this asker that has waited longest.
    fn place(&mut self, now: Time, asker: &Asker) -> Option<H> {
        self.change(asker, |taken, line| {
            let (number, _) = line.of(asker).next()?;
            let Waiter { patience, holder } = line.remove(asker, number)?;
            let place = Place { old_at: now + patience, holder: holder.clone() };
            taken.insert(asker, number, place);
            Some(holder)
        })
    }

    /// Changes what an asker has, and its turn.
    fn change<T>(
        &mut self,
        asker: &Asker,
        change: impl FnOnce(&mut Shares<Place<H>>, &mut Shares<Waiter<H>>) -> T,
    ) -> T {
        if let Some(turn) = self.turn(asker) {
            self.turns.remove(&turn);
        }
        let done = change(&mut self.taken, &mut self.line);
        self.turns.extend(self.turn(asker));
        done
    }

    fn turn(&self, asker: &Asker) -> Option<(usize, u64, Asker)> {
        let (oldest, _) = self.line.of(asker).next()?;
        let has = self.taken.count(asker);
        (*asker != Asker::Relay).then(|| (has, oldest, asker.clone()))
    }
}

#[cfg(test)]
mod laws;
