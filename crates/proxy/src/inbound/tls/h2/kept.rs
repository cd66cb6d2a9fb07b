//! What the library keeps of what a client sent, beside the windows: the fields of a head that goes on, and pieces of what
//! was read that its table of fields (RFC 7541 §2.3.2) and frames of bodies hold on to. It is an estimate, and no less
//! than it may be.

use super::frames::{Event, Kind};
use ekiden_linux::host::sync::locked;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

/// What is read into at a time. Where a piece of it is kept, all of it is.
const BUFFER: usize = 8 * 1024;
/// What the entries of the table hold on to at most: each has 32 bytes, `:path` and a byte more (RFC 7541 §4.1), of 4,096
/// in all, and may come in the largest frame.
const TABLE: usize = (4096 / 38) * (16 * 1024 + BUFFER);
/// What came, and 1.6 times as much for strings that were decoded (RFC 7541 §5.2).
const DECODED: usize = 3;
/// The library's map takes so much more than the limit of a head counts, where names and values are short.
const MAP: usize = 5;
/// It is told in steps of this.
const STEP: usize = 32 * 1024;

/// Follows what comes.
#[derive(Debug, Default)]
pub(super) struct Kept(Mutex<State>);

#[derive(Debug, Default)]
pub(super) struct State {
    /// All bytes so far.
    came: usize,
    /// The table takes no entry.
    closed: bool,
    /// Bytes that came until the last fields that may have gone to the table.
    table: usize,
    block: Block,
    /// Heads and trailers so far, and whether the last one goes on in the next frame.
    heads: u64,
    goes_on: bool,
    /// Of each stream, how much had come before each frame that nobody has taken.
    bodies: HashMap<u32, VecDeque<usize>>,
    frames: usize,
    /// The frame that comes has been counted.
    counted: bool,
}

/// What comes next of the fields.
#[derive(Debug, Default)]
enum Block {
    /// So many bytes of priority, and then perhaps the size of the table (RFC 7541 §6.3).
    First(usize),
    #[default]
    Rest,
}

impl State {
    pub(super) fn on_event(&mut self, event: &Event<'_>) {
        match event {
            Event::Began(Kind::Fields { priority, .. }) => {
                self.block = Block::First(if *priority { 5 } else { 0 });
                self.heads += 1;
            }
            Event::Began(_) => {}
            Event::Came(Kind::Body(stream), _) => self.on_body(*stream),
            Event::Came(_, bytes) => self.on_fields(bytes),
            Event::Ended(Kind::Fields { whole, .. } | Kind::Continued { whole, .. }) => {
                self.goes_on = !whole;
                if !self.closed {
                    self.table = self.came;
                }
            }
            Event::Ended(_) => self.counted = false,
        }
    }

    fn on_fields(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match (&mut self.block, byte) {
                (Block::Rest, _) => return,
                (Block::First(skip @ 1..), _) => *skip -= 1,
                // all entries go, and no other fits
                (Block::First(_), 0x20) => (self.closed, self.table) = (true, 0),
                (Block::First(_), 0x21..=0x3f) => (self.closed, self.block) = (false, Block::Rest),
                (Block::First(_), _) => self.block = Block::Rest,
            }
        }
    }

    fn on_body(&mut self, stream: u32) {
        if !self.counted
            && let Some(frames) = self.bodies.get_mut(&stream)
        {
            frames.push_back(self.came);
            self.frames += 1;
        }
        self.counted = true;
    }

    /// A buffer for each frame, and no more than has come since the first of them.
    fn of_bodies(&self) -> usize {
        let first = self.bodies.values().filter_map(VecDeque::front).min();
        first.map_or(0, |first| (self.frames * BUFFER).min(self.came - first + 3 * BUFFER))
    }
}

impl Kept {
    /// So many bytes have come, whose events follow.
    pub(super) fn on_came(&self, bytes: usize) -> MutexGuard<'_, State> {
        let mut state = locked(&self.0);
        state.came += bytes;
        state
    }

    /// A session takes the frames of this stream, until [`Self::close`].
    pub(super) fn open(&self, stream: u32) {
        locked(&self.0).bodies.insert(stream, VecDeque::new());
    }

    /// It has taken one.
    pub(super) fn take(&self, stream: u32) {
        let state = &mut *locked(&self.0);
        let frames = state.bodies.get_mut(&stream);
        state.frames -= usize::from(frames.is_some_and(|frames| frames.pop_front().is_some()));
    }

    /// All that it has not taken is gone.
    pub(super) fn close(&self, stream: u32) {
        let state = &mut *locked(&self.0);
        state.frames -= state.bodies.remove(&stream).map_or(0, |frames| frames.len());
    }

    /// The number of the head that goes on in another frame.
    pub(super) fn unfinished(&self) -> Option<u64> {
        let state = locked(&self.0);
        state.goes_on.then_some(state.heads)
    }

    /// Bytes beside those that count for a head, at most `head` long, and for the connection's window.
    pub(super) fn beside(&self, head: usize, window: usize) -> usize {
        let state = locked(&self.0);
        let table = (DECODED * state.table).min(TABLE).saturating_sub(head);
        let map = if state.goes_on { MAP * head } else { 0 };
        (table + map + state.of_bodies().saturating_sub(window)).next_multiple_of(STEP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: usize = 64 * 1024;
    const FIELDS: Kind = Kind::Fields { stream: 1, trailer: false, priority: false, whole: true };
    const BEGUN: Kind = Kind::Fields { stream: 1, trailer: false, priority: true, whole: false };
    const LAST: Kind = Kind::Continued { stream: 1, trailer: false, whole: true };

    /// A frame after so many other bytes.
    fn frame(kept: &Kept, before: usize, kind: Kind, bytes: &[u8]) {
        let mut state = kept.on_came(before + bytes.len());
        for event in [Event::Began(kind), Event::Came(kind, bytes), Event::Ended(kind)] {
            state.on_event(&event);
        }
    }

    #[test]
    fn a_head_that_goes_on_counts_until_it_ends() {
        let kept = Kept::default();
        frame(&kept, 0, BEGUN, &[0; 9]);
        assert_eq!((kept.beside(HEAD, 0), kept.unfinished()), (MAP * HEAD, Some(1)));
        frame(&kept, 0, LAST, &[0; 9]);
        assert_eq!((kept.beside(HEAD, 0), kept.unfinished()), (0, None));
    }

    #[test]
    fn bytes_count_until_the_table_is_closed() {
        let kept = Kept::default();
        frame(&kept, HEAD, FIELDS, &[0x82]);
        assert_eq!(kept.beside(HEAD, 0), (2 * HEAD + 3).next_multiple_of(STEP));
        // what follows the fields is not kept by them
        drop(kept.on_came(10 * HEAD));
        assert_eq!(kept.beside(HEAD, 0), (2 * HEAD + 3).next_multiple_of(STEP));
        frame(&kept, 100 * HEAD, FIELDS, &[0x82]);
        assert_eq!(kept.beside(HEAD, 0), (TABLE - HEAD).next_multiple_of(STEP));
        frame(&kept, 0, BEGUN, &[0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x82]);
        frame(&kept, 0, LAST, &[0x3f, 0xe1, 0x1f]);
        assert_eq!(kept.beside(HEAD, 0), 0);
        frame(&kept, 100 * HEAD, FIELDS, &[0x82, 0x3f]);
        assert_eq!(kept.beside(HEAD, 0), 0);
        // it may be opened again until the client has acknowledged
        frame(&kept, 0, FIELDS, &[0x20, 0x3f, 0xe1, 0x1f]);
        assert!(kept.beside(HEAD, 0) > 0);
    }

    #[test]
    fn priority_is_no_size_of_the_table() {
        let kept = Kept::default();
        frame(&kept, HEAD, BEGUN, &[0x20, 0x20, 0x20, 0x20, 0x20, 0x82]);
        frame(&kept, 0, LAST, &[0x20]);
        assert!(kept.beside(HEAD, 0) > 0);
    }

    #[test]
    fn frames_of_bodies_count_while_nobody_takes_them() {
        let kept = Kept::default();
        let body = Kind::Body(1);
        frame(&kept, 0, body, &[0; 9]);
        assert_eq!(kept.beside(HEAD, 0), 0, "of a stream that nobody serves");
        kept.open(1);
        for _ in 0..10 {
            frame(&kept, BUFFER, body, &[0]);
        }
        assert_eq!(kept.beside(HEAD, 0), (10 * BUFFER).next_multiple_of(STEP));
        assert_eq!(kept.beside(HEAD, 10 * BUFFER), 0, "the window counts already");
        (0..9).for_each(|_| kept.take(1));
        assert_eq!(kept.beside(HEAD, 0), STEP);
        for _ in 0..1_000 {
            frame(&kept, 0, body, &[0]);
        }
        let few = kept.beside(HEAD, 0);
        assert!(few <= 2 * STEP, "{few}: they share a buffer");
        kept.close(1);
        assert_eq!((kept.beside(HEAD, 0), locked(&kept.0).frames), (0, 0));
        kept.take(1);
    }
}
