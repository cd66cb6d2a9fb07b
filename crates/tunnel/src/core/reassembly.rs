//! A flow's bytes put in order: pieces come on either lane, in any order, and some come twice.

use bytes::{Buf, Bytes, BytesMut};
use std::collections::{BTreeMap, VecDeque};

/// Pieces that follow one another are kept together up to so many bytes. They are copied: a slice would keep all that
/// came with it, and a peer may send one byte of a flow in each packet.
const CHUNK: usize = 4_096;
/// Bytes from which on a piece in order is kept as it is: its datagram is at most twice as long.
pub(super) const WHOLE: usize = 1_024;

/// Bytes in order.
#[derive(Debug)]
enum Ready {
    /// Others may be added.
    Open(BytesMut),
    Whole(Bytes),
}

/// One direction of a flow at its receiver.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    /// Up to here everything has come.
    complete: u64,
    /// Pieces beyond, by offset; they do not overlap.
    parts: BTreeMap<u64, BytesMut>,
    /// In order, not yet taken.
    ready: VecDeque<Ready>,
    ready_bytes: u64,
    /// Bytes in `parts`.
    apart: u64,
    /// Bytes that had come before.
    pub(super) twice: u64,
}

impl Assembly {
    /// Adds a piece, without the bytes that are there already.
    pub(super) fn insert(&mut self, mut offset: u64, mut bytes: Bytes) {
        let length = bytes.len() as u64;
        let before = self.came();
        if offset < self.complete {
            let known = (self.complete - offset).min(length);
            bytes.advance(known as usize);
            offset += known;
        }
        // in order, with nothing to be found behind a gap
        if offset == self.complete && self.parts.is_empty() {
            let new = bytes.len() as u64;
            self.complete += new;
            self.ready_bytes += new;
            self.twice += length - new;
            return self.append(bytes);
        }
        // the piece before it may reach into it
        if let Some((at, part)) = self.parts.range(..=offset).next_back() {
            let known = (at + part.len() as u64).saturating_sub(offset).min(bytes.len() as u64);
            bytes.advance(known as usize);
            offset += known;
        }
        // and it into those behind it
        while !bytes.is_empty() {
            let next = self.parts.range(offset..).next().map(|(at, part)| (*at, part.len() as u64));
            let gap = next.map_or(u64::MAX, |(at, _)| at - offset);
            let new = bytes.split_to(gap.min(bytes.len() as u64) as usize);
            let length = new.len() as u64;
            if length > 0 {
                self.apart += length;
                self.keep(offset, &new);
                offset += length;
            }
            if let Some((_, known)) = next.filter(|_| !bytes.is_empty()) {
                let known = known.min(bytes.len() as u64);
                bytes.advance(known as usize);
                offset += known;
            }
        }
        self.twice += length - (self.came() - before);
        while let Some(entry) = self.parts.first_entry()
            && *entry.key() == self.complete
        {
            let part = entry.remove();
            let length = part.len() as u64;
            self.complete += length;
            self.apart -= length;
            self.ready_bytes += length;
            match self.last_with_room(part.len()) {
                Some(last) => last.extend_from_slice(&part),
                None => self.ready.push_back(Ready::Open(part)),
            }
        }
    }

    /// Whether the next bytes begin at `offset` and nothing waits: they count as taken then, and are the caller's.
    pub(super) fn pass(&mut self, offset: u64, length: u64) -> bool {
        let next = offset == self.complete && self.parts.is_empty() && self.ready.is_empty();
        self.complete += if next { length } else { 0 };
        next
    }

    fn append(&mut self, piece: Bytes) {
        match piece.len() {
            0 => {}
            WHOLE.. => self.ready.push_back(Ready::Whole(piece)),
            length => match self.last_with_room(length) {
                Some(last) => last.extend_from_slice(&piece),
                None => self.ready.push_back(Ready::Open(BytesMut::from(&piece[..]))),
            },
        }
    }

    fn last_with_room(&mut self, length: usize) -> Option<&mut BytesMut> {
        match self.ready.back_mut()? {
            Ready::Open(last) if last.len() + length <= CHUNK => Some(last),
            Ready::Open(_) | Ready::Whole(_) => None,
        }
    }

    fn keep(&mut self, offset: u64, piece: &[u8]) {
        let before = self.parts.range_mut(..offset).next_back();
        let before = before.filter(|(at, part)| {
            **at + part.len() as u64 == offset && part.len() + piece.len() <= CHUNK
        });
        match before {
            Some((_, part)) => part.extend_from_slice(piece),
            None => {
                self.parts.insert(offset, BytesMut::from(piece));
            }
        }
    }

    /// Pieces that wait for one before them; each takes some 100 bytes beside its own.
    pub(super) fn pieces(&self) -> usize {
        self.parts.len()
    }

    /// The next bytes in order.
    pub(super) fn take(&mut self) -> Option<Bytes> {
        let bytes = match self.ready.pop_front()? {
            Ready::Open(bytes) => bytes.freeze(),
            Ready::Whole(bytes) => bytes,
        };
        self.ready_bytes -= bytes.len() as u64;
        Some(bytes)
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) const fn taken(&self) -> u64 {
        self.complete - self.ready_bytes
    }

    pub(super) const fn complete(&self) -> u64 {
        self.complete
    }

    /// Bytes that have come, each counted once.
    pub(super) const fn came(&self) -> u64 {
        self.complete + self.apart
    }

    /// Beyond the last byte that has come.
    pub(super) fn reaches(&self) -> u64 {
        let last = self.parts.last_key_value();
        last.map_or(self.complete, |(at, part)| at + part.len() as u64)
    }

    pub(super) const fn held(&self) -> u64 {
        self.ready_bytes + self.apart
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn byte(at: u64) -> u8 {
        (at * 7 + at / 251) as u8
    }

    #[test]
    fn small_pieces_share_memory() {
        let mut assembly = Assembly::default();
        (1..5_000).for_each(|at| assembly.insert(at, piece(at, at + 1)));
        assert_eq!(assembly.pieces(), 2);
        assembly.insert(0, piece(0, 1));
        assert_eq!((assembly.pieces(), assembly.ready.len()), (0, 3));
        (5_000..9_000).for_each(|at| assembly.insert(at, piece(at, at + 1)));
        assert_eq!(assembly.ready.len(), 4);
        let room = assembly.ready.iter().map(|ready| match ready {
            Ready::Open(bytes) => bytes.capacity(),
            Ready::Whole(bytes) => bytes.len(),
        });
        let room: usize = room.sum();
        assert!(room < 3 * 9_000, "{room}");
        // a piece of a packet does not keep the packet
        let packet = piece(9_000, 9_400);
        assembly.insert(9_000, packet.slice(..1));
        assert!(packet.is_unique());
        // a full one is not copied
        let full = piece(9_001, 10_401);
        assembly.insert(9_001, full.clone());
        assert!(!full.is_unique());
    }

    fn piece(from: u64, to: u64) -> Bytes {
        (from..to).map(byte).collect()
    }

    proptest! {
        /// Pieces in any order, overlapping as they like: each byte comes out once and in order.
        #[test]
        fn each_byte_once_and_in_order(
            pieces in prop::collection::vec((0_u64..500, 1_u64..80), 0..60),
            length in 1_u64..500,
        ) {
            let mut assembly = Assembly::default();
            let (mut out, mut came) = (Vec::new(), 0);
            let whole = (0..length).step_by(37).map(|at| (at, 37));
            for (at, long) in pieces.into_iter().chain(whole) {
                let to = (at + long).min(length);
                if at >= to {
                    continue;
                }
                came += to - at;
                assembly.insert(at, piece(at, to));
                prop_assert_eq!(assembly.came() + assembly.twice, came);
                prop_assert!(assembly.reaches() >= to && assembly.reaches() <= length);
                while let Some(bytes) = assembly.take() {
                    out.extend_from_slice(&bytes);
                    prop_assert_eq!(assembly.taken() as usize, out.len());
                }
            }
            prop_assert_eq!(out, (0..length).map(byte).collect::<Vec<_>>());
            prop_assert_eq!(assembly.held(), 0);
        }
    }
}
