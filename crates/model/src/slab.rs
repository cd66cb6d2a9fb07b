//! Entries at fixed places, and doubly linked lists through them: constant time, no allocation once
//! the maximum number of entries has been reached. An entry may be in up to `N` lists. Links are
//! indices, so nothing is unsafe.

use alloc::vec::Vec;

/// "No entry": so many do not fit into memory.
const NONE: u32 = u32::MAX;
/// What stands for "before" in an entry that is in no list.
const NOWHERE: u32 = u32::MAX - 1;

/// Which entry, until it is removed: a handle kept for longer finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    index: u32,
    generation: u32,
}

#[derive(Debug, Clone, Copy)]
struct Links {
    before: u32,
    after: u32,
}

const UNLINKED: Links = Links { before: NOWHERE, after: NONE };

#[derive(Debug, Clone)]
struct Slot<T, const N: usize> {
    generation: u32,
    /// The next free slot where this one is free.
    next_free: u32,
    links: [Links; N],
    value: Option<T>,
}

#[derive(Debug, Clone)]
pub(crate) struct Slab<T, const N: usize> {
    slots: Vec<Slot<T, N>>,
    free: u32,
    len: usize,
}

impl<T, const N: usize> Slab<T, N> {
    pub(crate) fn with_capacity(entries: usize) -> Self {
        Self { slots: Vec::with_capacity(entries), free: NONE, len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    #[cfg(test)]
    pub(crate) const fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// Puts an entry in, which stands in no list yet.
    pub(crate) fn insert(&mut self, value: T) -> Handle {
        self.len += 1;
        if let Some(slot) = self.slots.get_mut(self.free as usize) {
            let index = self.free;
            self.free = slot.next_free;
            slot.value = Some(value);
            slot.links = [UNLINKED; N];
            return Handle { index, generation: slot.generation };
        }
        let index = self.slots.len() as u32;
        self.slots.push(Slot {
            generation: 0,
            next_free: NONE,
            links: [UNLINKED; N],
            value: Some(value),
        });
        Handle { index, generation: 0 }
    }

    /// Takes an entry out, which must have left its lists; `None` when it is gone.
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<T> {
        let slot = self.slots.get_mut(handle.index as usize)?;
        if slot.generation != handle.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.next_free = self.free;
        self.free = handle.index;
        self.len -= 1;
        Some(value)
    }

    pub(crate) fn get(&self, handle: Handle) -> Option<&T> {
        let slot = self.slots.get(handle.index as usize)?;
        slot.value.as_ref().filter(|_| slot.generation == handle.generation)
    }

    pub(crate) fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let slot = self.slots.get_mut(handle.index as usize)?;
        slot.value.as_mut().filter(|_| slot.generation == handle.generation)
    }

    /// The entry behind `handle` in list `which`.
    pub(crate) fn after(&self, which: usize, handle: Handle) -> Option<Handle> {
        self.handle(self.slots.get(handle.index as usize)?.links[which].after)
    }

    /// The entry before `handle` in list `which`.
    pub(crate) fn before(&self, which: usize, handle: Handle) -> Option<Handle> {
        self.handle(self.slots.get(handle.index as usize)?.links[which].before)
    }

    fn handle(&self, index: u32) -> Option<Handle> {
        let slot = self.slots.get(index as usize)?;
        Some(Handle { index, generation: slot.generation })
    }

    fn links(&mut self, which: usize, index: u32) -> Option<&mut Links> {
        self.slots.get_mut(index as usize).map(|slot| &mut slot.links[which])
    }
}

/// One list through a slab by its entries' links number `which`. Many lists may share a number, as
/// long as each entry stands in one of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List {
    which: usize,
    head: u32,
    tail: u32,
}

impl List {
    pub(crate) const fn new(which: usize) -> Self {
        Self { which, head: NONE, tail: NONE }
    }

    pub(crate) fn head<T, const N: usize>(&self, slab: &Slab<T, N>) -> Option<Handle> {
        slab.handle(self.head)
    }

    pub(crate) fn tail<T, const N: usize>(&self, slab: &Slab<T, N>) -> Option<Handle> {
        slab.handle(self.tail)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// The first becomes the last.
    pub(crate) fn rotate<T, const N: usize>(&mut self, slab: &mut Slab<T, N>) {
        if let Some(head) = self.head(slab) {
            self.unlink(slab, head);
            self.push_back(slab, head);
        }
    }

    /// Appends an entry that stands in no list of this number.
    pub(crate) fn push_back<T, const N: usize>(&mut self, slab: &mut Slab<T, N>, entry: Handle) {
        let before = self.tail;
        if let Some(links) = slab.links(self.which, entry.index) {
            *links = Links { before, after: NONE };
        }
        match slab.links(self.which, before) {
            Some(links) => links.after = entry.index,
            None => self.head = entry.index,
        }
        self.tail = entry.index;
    }

    /// Takes an entry out of this list; nothing when it does not stand in it.
    pub(crate) fn unlink<T, const N: usize>(&mut self, slab: &mut Slab<T, N>, entry: Handle) {
        let Some(links) = slab.links(self.which, entry.index) else { return };
        let Links { before, after } = *links;
        if before == NOWHERE {
            return;
        }
        *links = UNLINKED;
        match slab.links(self.which, before) {
            Some(links) => links.after = after,
            None => self.head = after,
        }
        match slab.links(self.which, after) {
            Some(links) => links.before = before,
            None => self.tail = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn forwards(slab: &Slab<u32, 2>, list: &List) -> Vec<u32> {
        let mut told = Vec::new();
        let mut at = list.head(slab);
        while let Some(handle) = at {
            told.push(*slab.get(handle).unwrap());
            at = slab.after(list.which, handle);
        }
        told
    }

    fn backwards(slab: &Slab<u32, 2>, list: &List) -> Vec<u32> {
        let mut told = Vec::new();
        let mut at = list.tail(slab);
        while let Some(handle) = at {
            told.insert(0, *slab.get(handle).unwrap());
            at = slab.before(list.which, handle);
        }
        told
    }

    proptest! {
        #[test]
        fn lists_match_two_plain_queues(steps in proptest::collection::vec((0_u8..5, 0_usize..20), 0..200)) {
            let mut slab = Slab::<u32, 2>::with_capacity(0);
            let mut lists = [List::new(0), List::new(1)];
            let mut expected: [Vec<u32>; 2] = Default::default();
            let mut live: Vec<(u32, Handle)> = Vec::new();
            let mut gone: Vec<Handle> = Vec::new();
            for (n, (step, at)) in steps.into_iter().enumerate() {
                let n = n as u32;
                if step < 2 || live.is_empty() {
                    let handle = slab.insert(n);
                    live.push((n, handle));
                    for which in 0..2 {
                        lists[which].push_back(&mut slab, handle);
                        expected[which].push(n);
                    }
                } else if step == 2 {
                    // to the back of one list alone
                    let (value, handle) = live[at % live.len()];
                    lists[1].unlink(&mut slab, handle);
                    lists[1].push_back(&mut slab, handle);
                    expected[1].retain(|other| *other != value);
                    expected[1].push(value);
                } else {
                    let (value, handle) = live.swap_remove(at % live.len());
                    for which in 0..2 {
                        lists[which].unlink(&mut slab, handle);
                        lists[which].unlink(&mut slab, handle);
                        expected[which].retain(|other| *other != value);
                    }
                    prop_assert_eq!(slab.remove(handle), Some(value));
                    gone.push(handle);
                }
                for which in 0..2 {
                    prop_assert_eq!(&forwards(&slab, &lists[which]), &expected[which]);
                    prop_assert_eq!(&backwards(&slab, &lists[which]), &expected[which]);
                }
                prop_assert_eq!(slab.len(), live.len());
                prop_assert!(gone.iter().all(|handle| slab.get(*handle).is_none()));
            }
        }
    }
}
