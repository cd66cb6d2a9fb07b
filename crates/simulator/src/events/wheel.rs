//! A hierarchical timing wheel: near events in narrow slots, far ones in wide slots, moved inwards.
//!
//! A slot of level 0 is one tick of 33 µs, of each further level all 64 slots below: 2.1 ms, 134
//! ms, 8.6 s, 9.2 min, 9.8 h, 26 days, 4.6 years, 292 years. Nine levels reach all 64-bit
//! nanoseconds.
//!
//! An event's level is the highest digit (base 64) in which its tick differs from the current one.
//! So only slots after the current one are occupied, a level comes before the next, and the next
//! occupied slot is two bit counts away. The current tick may be set back while nothing is due
//! before it: an event then stands where it should or lower. Early ones from a slot are put in
//! again.

use super::Entry;

/// Bits of a tick's nanoseconds. Packets on a long link then stand at the second level with few
/// others, and a packet of 1,500 bytes at 1 Gbit/s shares its tick with a handful. By
/// `benches/dumbbell.rs` 4 µs are too fine; 16 to 64 are alike.
const TICK_BITS: u32 = 15;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = (u64::BITS - TICK_BITS).div_ceil(SLOT_BITS) as usize;
/// Entries to a block: few waste little cache, many are read in a row. By `benches/events.rs` 4 are
/// too few; 8, 16 and 32 are alike.
const BLOCK: usize = 16;
/// A slot with at most this many entries goes to the front unsorted by levels, which is cheaper for
/// rare events. By `benches/events.rs`.
const FEW: u32 = 16;
/// Beyond this many in front, what is after one tick goes back, so that insertion there stays
/// cheap.
const MANY: usize = 32;
const NONE: u32 = u32::MAX;

/// A chain of blocks, of which only the first may be less than full.
#[derive(Debug, Clone, Copy)]
struct Slot {
    first: u32,
    held: u32,
}

/// As if its block were full, so that the next entry asks for one.
const EMPTY: Slot = Slot { first: NONE, held: BLOCK as u32 };

#[derive(Debug, Clone)]
struct Block<E> {
    next: u32,
    entries: [Entry<E>; BLOCK],
}

/// All that is due after the current tick.
#[derive(Debug, Clone)]
pub(super) struct Wheel<E> {
    /// The current tick: what is due by its end stands in the front.
    tick: u64,
    /// By bit, the levels that hold something.
    levels: u32,
    /// By level and bit, the slots that do.
    occupied: [u64; LEVELS],
    slots: Box<[Slot]>,
    /// All blocks, in use or free: bounded by the most events there ever were.
    blocks: Vec<Block<E>>,
    free: u32,
}

impl<E: Copy> Wheel<E> {
    pub(super) fn new(now: u64) -> Self {
        Self {
            tick: now >> TICK_BITS,
            levels: 0,
            occupied: [0; LEVELS],
            slots: vec![EMPTY; LEVELS * SLOTS].into_boxed_slice(),
            blocks: Vec::new(),
            free: NONE,
        }
    }

    /// Whether `at` is after the current tick.
    pub(super) const fn reaches(&self, at: u64) -> bool {
        at >> TICK_BITS > self.tick
    }

    /// Puts in an entry that is due after the current tick.
    pub(super) fn place(&mut self, entry: Entry<E>) {
        let tick = entry.at >> TICK_BITS;
        let level = (tick ^ self.tick).ilog2() / SLOT_BITS;
        let digit = (tick >> (level * SLOT_BITS)) % SLOTS as u64;
        self.levels |= 1 << level;
        self.occupied[level as usize] |= 1 << digit;
        let at = level as usize * SLOTS + digit as usize;
        if self.slots[at].held == BLOCK as u32 {
            let next = self.slots[at].first;
            self.slots[at] = Slot { first: self.block(next, entry), held: 0 };
        }
        let slot = &mut self.slots[at];
        self.blocks[slot.first as usize].entries[slot.held as usize] = entry;
        slot.held += 1;
    }

    /// Moves the next occupied ticks to `front`, latest first; leaves it empty when there is
    /// nothing.
    pub(super) fn advance(&mut self, front: &mut Vec<Entry<E>>) {
        while front.is_empty() && self.levels != 0 {
            let level = self.levels.trailing_zeros();
            let occupied = &mut self.occupied[level as usize];
            let digit = occupied.trailing_zeros();
            *occupied &= *occupied - 1;
            if *occupied == 0 {
                self.levels &= self.levels - 1;
            }
            // to where that slot begins: digits above stay, those below are 0; to its end, they are 63
            let shift = level * SLOT_BITS;
            let above = (self.tick >> shift >> SLOT_BITS) << SLOT_BITS;
            let at = level as usize * SLOTS + digit as usize;
            self.tick = (above | u64::from(digit)) << shift;
            if self.is_few(at) {
                self.tick |= (1 << shift) - 1;
            }
            self.empty(at, front);
        }
        front.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.rank()));
    }

    fn is_few(&self, at: usize) -> bool {
        let Slot { first, held } = self.slots[at];
        held <= FEW && self.blocks[first as usize].next == NONE
    }

    /// Takes back from a `front` of many what is due after its first tick, which is then the current one.
    pub(super) fn take_back(&mut self, front: &mut Vec<Entry<E>>) {
        let Some(earliest) = front.last().filter(|_| front.len() >= MANY) else { return };
        self.tick = earliest.at >> TICK_BITS;
        let later = front.partition_point(|entry| self.reaches(entry.at));
        for entry in front.drain(..later) {
            self.place(entry);
        }
    }

    /// Moves what a slot holds to `front` if it is due by the end of the current tick, else to lower levels.
    fn empty(&mut self, at: usize, front: &mut Vec<Entry<E>>) {
        let Slot { mut first, mut held } = std::mem::replace(&mut self.slots[at], EMPTY);
        while first != NONE {
            for n in 0..held as usize {
                let entry = self.blocks[first as usize].entries[n];
                if self.reaches(entry.at) {
                    self.place(entry);
                } else {
                    front.push(entry);
                }
            }
            let block = &mut self.blocks[first as usize];
            let next = std::mem::replace(&mut block.next, self.free);
            self.free = first;
            (first, held) = (next, BLOCK as u32);
        }
    }

    /// A block before `next`. `any` fills a new one: entries beyond a slot's count are never read.
    fn block(&mut self, next: u32, any: Entry<E>) -> u32 {
        if let Some(block) = self.blocks.get_mut(self.free as usize) {
            std::mem::replace(&mut self.free, std::mem::replace(&mut block.next, next))
        } else {
            self.blocks.push(Block { next, entries: [any; BLOCK] });
            self.blocks.len() as u32 - 1
        }
    }

    /// Blocks in all, in use or free.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.blocks.len()
    }
}
