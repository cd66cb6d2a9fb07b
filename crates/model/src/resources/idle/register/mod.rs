//! The register: which idle connection is reused, evicted, expired or shrunk.

#[cfg(test)]
mod laws;

use super::Handle;
use crate::slab::{List, Slab};
use crate::units::{Span, Time};
use core::hash::{BuildHasher, Hash};
use hashbrown::HashTable;
use hashbrown::hash_table::{Entry as Place, OccupiedEntry};

/// When idle connections are closed and shrunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// T_persist: an entry idle for this long is [due](Register::due). Default 15 s (Apache 1.3's
    /// `KeepAliveTimeout`; the study gives none). [`Span::MAX`] for never.
    pub persist: Span,
    /// T_h: an entry's buffers are halved after each such span (scheme 4: 1 s); `None` for never.
    pub halve_every: Option<Span>,
}

impl Default for Config {
    fn default() -> Self {
        Self { persist: Span::from_secs(15), halve_every: None }
    }
}

/// An idle connection as it leaves the register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idle<K, P> {
    /// What it was kept under.
    pub key: K,
    /// What the driver gave with it.
    pub payload: P,
    /// Since when it was idle.
    pub since: Time,
}

/// One look at a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Snapshot {
    /// Idle connections.
    pub idle: usize,
    /// Keys they are kept under.
    pub keys: usize,
    /// Since when the longest idle one is.
    pub oldest: Option<Time>,
    /// Found again by a request.
    pub reused: u64,
    /// Closed because resources were low.
    pub evicted: u64,
    /// Closed because they were idle for the persistent time-out.
    pub expired: u64,
    /// Left by [`Register::remove`].
    pub removed: u64,
}

#[derive(Debug, Clone)]
struct Entry<K, P> {
    key: K,
    payload: P,
    since: Time,
    halve_at: Time,
}

// the three lists an entry stands in
const TIME: usize = 0;
const KEY: usize = 1;
const HALVING: usize = 2;

/// The register; see the module for the order of calls.
#[derive(Debug, Clone)]
pub struct Register<K, P, S> {
    config: Config,
    hasher: S,
    entries: Slab<Entry<K, P>, 3>,
    /// A list for each key that has entries, the longest idle at its head.
    keys: HashTable<List>,
    by_time: List,
    halving: List,
    now: Time,
    reused: u64,
    evicted: u64,
    expired: u64,
    removed: u64,
}

impl<K: Hash + Eq, P, S: BuildHasher> Register<K, P, S> {
    /// A register with nothing in it.
    pub fn new(config: Config, hasher: S) -> Self {
        Self::with_capacity(config, hasher, 0)
    }

    /// A register that does not allocate before it holds more than `entries`.
    pub fn with_capacity(config: Config, hasher: S, entries: usize) -> Self {
        Self {
            config,
            hasher,
            entries: Slab::with_capacity(entries),
            // a table that is at most half full cleans up after those who left without growing
            keys: HashTable::with_capacity(2 * entries),
            by_time: List::new(TIME),
            halving: List::new(HALVING),
            now: Time::ZERO,
            reused: 0,
            evicted: 0,
            expired: 0,
            removed: 0,
        }
    }

    /// Sets other limits: the persistent time-out for every entry at once, halving from each next
    /// one on.
    pub const fn set_config(&mut self, config: Config) {
        self.config = config;
    }

    /// A connection became idle.
    pub fn insert(&mut self, now: Time, key: K, payload: P) -> Handle {
        self.now = self.now.max(now);
        let hash = self.hasher.hash_one(&key);
        let halve_at = self.config.halve_every.map_or(Time::NEVER, |every| self.now + every);
        let handle = self.entries.insert(Entry { key, payload, since: self.now, halve_at });
        self.by_time.push_back(&mut self.entries, handle);
        if halve_at < Time::NEVER {
            self.halving.push_back(&mut self.entries, handle);
        }
        let (entries, hasher) = (&self.entries, &self.hasher);
        let key_of = |list: &List| list.head(entries).and_then(|head| entries.get(head));
        let own = entries.get(handle);
        let same = |list: &List| matches!((key_of(list), own), (Some(there), Some(own)) if there.key == own.key);
        let hash_of = |list: &List| key_of(list).map_or(0, |entry| hasher.hash_one(&entry.key));
        match self.keys.entry(hash, same, hash_of) {
            Place::Occupied(mut place) => place.get_mut().push_back(&mut self.entries, handle),
            Place::Vacant(place) => {
                // in the table only once it has a head, by which its key is known
                let mut list = List::new(KEY);
                list.push_back(&mut self.entries, handle);
                place.insert(list);
            }
        }
        handle
    }

    /// Takes the connection that became idle last under `key`: the freshest window and round-trip
    /// time.
    pub fn reuse(&mut self, key: &K) -> Option<Idle<K, P>> {
        let hash = self.hasher.hash_one(key);
        let entries = &self.entries;
        let place = self.keys.find_entry(hash, |list| Self::is_of(entries, list, key)).ok()?;
        let last = place.get().tail(entries)?;
        Self::leave(&mut self.entries, place, last);
        let found = self.take_out(last);
        self.reused += u64::from(found.is_some());
        found
    }

    /// Takes one entry out; `None` when it has left before.
    pub fn remove(&mut self, handle: Handle) -> Option<Idle<K, P>> {
        let found = self.take(handle);
        self.removed += u64::from(found.is_some());
        found
    }

    /// Takes the longest idle entry, to be closed. Look at the socket once more before: its peer
    /// may be speaking. A request cut off now and then is repeated by its client (RFC 9112 §9.3.1).
    pub fn evict(&mut self) -> Option<Idle<K, P>> {
        let found = self.by_time.head(&self.entries).and_then(|head| self.take(head));
        self.evicted += u64::from(found.is_some());
        found
    }

    /// The entry that is idle longest: its key, its payload, and since when.
    pub fn head(&self) -> Option<(&K, &P, Time)> {
        let head = self.entries.get(self.by_time.head(&self.entries)?)?;
        Some((&head.key, &head.payload, head.since))
    }

    /// Takes an entry that was idle for the persistent time-out, to be closed; ask until `None`.
    pub fn due(&mut self, now: Time) -> Option<Idle<K, P>> {
        self.now = self.now.max(now);
        let (_, _, since) = self.head()?;
        if self.now < since + self.config.persist {
            return None;
        }
        let found = self.by_time.head(&self.entries).and_then(|head| self.take(head));
        self.expired += u64::from(found.is_some());
        found
    }

    /// Calls `halve` for each entry due for halving, the longest overdue first; returns their
    /// number. `halve` says whether to halve again a span later. A late call halves once, not for
    /// each missed span (algorithms/buffers A.6).
    pub fn shrink(&mut self, now: Time, mut halve: impl FnMut(&K, &mut P) -> bool) -> usize {
        self.now = self.now.max(now);
        // later than now, so that a span of zero means once a call and not for ever
        let later = |every: Span| self.now + every.max(Span::from_nanos(1));
        let again = self.config.halve_every.map_or(Time::NEVER, later);
        let mut halved = 0;
        while let Some(head) = self.halving.head(&self.entries) {
            let Some(entry) = self.entries.get_mut(head) else { break };
            if entry.halve_at > self.now {
                break;
            }
            let more = halve(&entry.key, &mut entry.payload);
            entry.halve_at = again;
            self.halving.unlink(&mut self.entries, head);
            if more && again < Time::NEVER {
                self.halving.push_back(&mut self.entries, head);
            }
            halved += 1;
        }
        halved
    }

    /// When [`Register::due`] or [`Register::shrink`] has work; [`Time::NEVER`] while nothing is
    /// idle.
    pub fn deadline(&self) -> Time {
        let due = self.head().map_or(Time::NEVER, |(_, _, since)| since + self.config.persist);
        let halving = self.halving.head(&self.entries).and_then(|head| self.entries.get(head));
        due.min(halving.map_or(Time::NEVER, |entry| entry.halve_at))
    }

    /// Idle connections.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is idle.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is idle, the longest idle first.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &P, Time)> {
        let first = self.by_time.head(&self.entries);
        core::iter::successors(first, |at| self.entries.after(TIME, *at))
            .filter_map(|at| self.entries.get(at))
            .map(|entry| (&entry.key, &entry.payload, entry.since))
    }

    /// One look.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            idle: self.len(),
            keys: self.keys.len(),
            oldest: self.head().map(|(_, _, since)| since),
            reused: self.reused,
            evicted: self.evicted,
            expired: self.expired,
            removed: self.removed,
        }
    }

    fn is_of(entries: &Slab<Entry<K, P>, 3>, list: &List, key: &K) -> bool {
        list.head(entries).and_then(|head| entries.get(head)).is_some_and(|entry| entry.key == *key)
    }

    fn take(&mut self, handle: Handle) -> Option<Idle<K, P>> {
        let entries = &self.entries;
        let key = &entries.get(handle)?.key;
        let hash = self.hasher.hash_one(key);
        let place = self.keys.find_entry(hash, |list| Self::is_of(entries, list, key));
        if let Ok(place) = place {
            Self::leave(&mut self.entries, place, handle);
        }
        self.take_out(handle)
    }

    /// Takes an entry out of its key's list, and that out of the table when it was the last.
    fn leave(
        entries: &mut Slab<Entry<K, P>, 3>,
        mut place: OccupiedEntry<'_, List>,
        handle: Handle,
    ) {
        place.get_mut().unlink(entries, handle);
        if place.get().head(entries).is_none() {
            place.remove();
        }
    }

    /// Takes an entry that has left its key's list out of the others and of the register.
    fn take_out(&mut self, handle: Handle) -> Option<Idle<K, P>> {
        self.by_time.unlink(&mut self.entries, handle);
        self.halving.unlink(&mut self.entries, handle);
        let Entry { key, payload, since, .. } = self.entries.remove(handle)?;
        Some(Idle { key, payload, since })
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> (usize, usize) {
        (self.entries.capacity(), self.keys.allocation_size())
    }
}
