//! Entries whose places are used again.

/// Entries in slots, each with a generation that tells a late event of a closed connection from the next one's.
#[derive(Debug)]
pub(super) struct Table<T> {
    slots: Vec<(u32, Option<T>)>,
    vacant: Vec<usize>,
}

impl<T> Table<T> {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), vacant: Vec::new() }
    }

    /// The slot's place and generation.
    pub(super) fn put(&mut self, entry: T) -> (usize, u32) {
        let at = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() - 1
        });
        let generation = (self.slots[at].0 + 1) & 0x3fff_ffff;
        self.slots[at] = (generation, Some(entry));
        (at, generation)
    }

    pub(super) fn get(&mut self, (at, generation): (usize, u32)) -> Option<&mut T> {
        let (own, entry) = self.slots.get_mut(at)?;
        entry.as_mut().filter(|_| *own == generation)
    }

    pub(super) fn remove(&mut self, at: usize) -> Option<T> {
        let entry = self.slots.get_mut(at)?.1.take()?;
        self.vacant.push(at);
        Some(entry)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }
}
