//! Shares of askers: where room is needed, the oldest of whoever has the most gives way. So who has fewer than others loses
//! none. The relay's own are apart. Each change takes a time logarithmic in all that is held.

use super::asker::Asker;
use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Reverse;

/// How much an asker has, its oldest, and who it is.
type Rank = (usize, Reverse<u64>, Asker);

/// What askers have, of whatever kind; later numbers are newer.
#[derive(Debug)]
pub(super) struct Shares<T> {
    held: BTreeMap<Asker, BTreeMap<u64, T>>,
    /// All askers but this relay. Whoever has the most is last; of equals, the one with the oldest.
    order: BTreeSet<Rank>,
    /// All that is held.
    len: usize,
    next: u64,
}

impl<T> Shares<T> {
    pub(super) const fn new() -> Self {
        Self { held: BTreeMap::new(), order: BTreeSet::new(), len: 0, next: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// How many count for this asker: the relay's own, or those of all others.
    pub(super) fn counted(&self, asker: &Asker) -> usize {
        let own = self.count(&Asker::Relay);
        if *asker == Asker::Relay { own } else { self.len - own }
    }

    pub(super) fn count(&self, asker: &Asker) -> usize {
        self.held.get(asker).map_or(0, BTreeMap::len)
    }

    /// What this asker has, the oldest first.
    pub(super) fn of(&self, asker: &Asker) -> impl Iterator<Item = (u64, &T)> {
        self.held.get(asker).into_iter().flatten().map(|(number, one)| (*number, one))
    }

    pub(super) fn has(&self, asker: &Asker, number: u64) -> bool {
        self.held.get(asker).is_some_and(|own| own.contains_key(&number))
    }

    /// An asker has one more, the newest of all; its number.
    pub(super) fn add(&mut self, asker: &Asker, one: T) -> u64 {
        self.next += 1;
        self.insert(asker, self.next, one);
        self.next
    }

    /// An asker has what another had, as old as it is.
    pub(super) fn insert(&mut self, asker: &Asker, number: u64, one: T) {
        self.change(asker, |own| own.insert(number, one));
    }

    /// `None`: it was taken before.
    pub(super) fn remove(&mut self, asker: &Asker, number: u64) -> Option<T> {
        self.change(asker, |own| own.remove(&number))
    }

    /// For one more of this asker, takes the oldest from another with more than it will have, or from itself.
    pub(super) fn give_way(&mut self, asker: &Asker) -> Option<(Asker, u64, T)> {
        let (holder, number) = self.next_to_go(asker)?;
        let one = self.remove(&holder, number)?;
        Some((holder, number, one))
    }

    /// What [`Self::give_way`] would take, and whose it is.
    pub(super) fn next_to_go(&self, asker: &Asker) -> Option<(Asker, u64)> {
        let own = self.held.get(asker);
        let many = own.map_or(0, BTreeMap::len);
        match self.order.last() {
            // where the asker itself is last, neither holds
            Some((most, Reverse(oldest), other))
                if *asker != Asker::Relay && (many == 0 || *most > many + 1) =>
            {
                Some((other.clone(), *oldest))
            }
            _ => Some((asker.clone(), *own?.first_key_value()?.0)),
        }
    }

    /// Changes what an asker has, and its place in the order.
    fn change(
        &mut self,
        asker: &Asker,
        change: impl FnOnce(&mut BTreeMap<u64, T>) -> Option<T>,
    ) -> Option<T> {
        let mut own = self.held.remove(asker).unwrap_or_default();
        if let Some(rank) = rank(asker, &own) {
            self.order.remove(&rank);
        }
        self.len -= own.len();
        let gone = change(&mut own);
        self.len += own.len();
        self.order.extend(rank(asker, &own));
        if !own.is_empty() {
            self.held.insert(asker.clone(), own);
        }
        gone
    }
}

fn rank<T>(asker: &Asker, own: &BTreeMap<u64, T>) -> Option<Rank> {
    let (oldest, _) = own.first_key_value()?;
    (*asker != Asker::Relay).then(|| (own.len(), Reverse(*oldest), asker.clone()))
}

#[cfg(test)]
impl<T: PartialEq + core::fmt::Debug> Shares<T> {
    /// Nothing else is held, and the order is what a look at all of it says.
    pub(super) fn check(&self, all: impl IntoIterator<Item = (Asker, u64, T)>) {
        let mut held: BTreeMap<Asker, BTreeMap<u64, T>> = BTreeMap::new();
        for (asker, number, one) in all {
            held.entry(asker).or_default().insert(number, one);
        }
        let mut order: BTreeSet<Rank> = BTreeSet::new();
        for (asker, own) in held.iter().filter(|(asker, _)| **asker != Asker::Relay) {
            order.extend(
                own.keys().min().map(|oldest| (own.len(), Reverse(*oldest), asker.clone())),
            );
        }
        assert_eq!(self.order, order);
        assert_eq!(self.len, held.values().map(BTreeMap::len).sum::<usize>());
        assert_eq!(self.held, held);
    }
}
