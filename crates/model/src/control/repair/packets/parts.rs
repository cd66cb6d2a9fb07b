//! Packets that are longer than a datagram has room for, in parts, each a symbol of its own.
//!
//! A path may seem narrower for a while (RFC 8899 §4.3 takes losses for that), and some paths are. As parts, packets that
//! fitted before stay repaired, and arrive as one.

use alloc::vec::Vec;
use core::ops::{Deref, Range};

/// No packet is longer once it is joined: none that goes whole is (design/protocol.md).
const MOST_JOINED: usize = 16_376;

/// Which part of a packet a symbol is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    #[default]
    Whole,
    /// Its first bytes; the next number has more.
    First,
    /// More bytes; the next number has more.
    Middle,
    /// Its last bytes.
    Last,
}

impl Part {
    /// As it is written: 0 to 3.
    pub const fn bits(self) -> u8 {
        match self {
            Self::Whole => 0,
            Self::First => 1,
            Self::Last => 2,
            Self::Middle => 3,
        }
    }

    /// Read; bits beyond the last two are ignored.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Whole,
            1 => Self::First,
            2 => Self::Last,
            _ => Self::Middle,
        }
    }
}

/// Parts of a packet of `length` bytes that have at most `most` each, as even as can be. A packet has one at least.
pub fn parts(length: usize, most: usize) -> impl Iterator<Item = (Part, Range<usize>)> {
    let count = length.div_ceil(most.max(1)).max(1);
    (0..count).map(move |nth| {
        let part = match (nth == 0, nth + 1 == count) {
            (true, true) => Part::Whole,
            (true, false) => Part::First,
            (false, false) => Part::Middle,
            (false, true) => Part::Last,
        };
        (part, length * nth / count..length * (nth + 1) / count)
    })
}

/// Joins parts as they are released.
#[derive(Debug, Clone, Default)]
pub(super) struct Joining {
    begun: Vec<u8>,
    /// The number of the part that is to come; none is where no packet has begun.
    next: Option<u64>,
}

impl Joining {
    /// Takes a symbol; a packet where that is complete. What has lost a part is dropped.
    pub(super) fn take<B>(&mut self, number: u64, part: Part, bytes: B) -> Option<B>
    where
        B: Deref<Target = [u8]> + From<Vec<u8>>,
    {
        let follows = self.next.take() == Some(number);
        let mut begun = core::mem::take(&mut self.begun);
        match part {
            Part::Whole => return Some(bytes),
            Part::First => begun = Vec::new(),
            Part::Middle | Part::Last if !follows => return None,
            Part::Middle | Part::Last => {}
        }
        if begun.len() + bytes.len() > MOST_JOINED {
            return None;
        }
        begun.extend_from_slice(&bytes);
        if part == Part::Last {
            return Some(B::from(begun));
        }
        (self.begun, self.next) = (begun, number.checked_add(1));
        None
    }

    /// Memory in use, bytes.
    pub(super) fn kept(&self) -> usize {
        self.begun.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_that_all_arrive_are_the_packet(
            length in 0_usize..5_000, most in 1_usize..2_000, lost in proptest::option::of(0_usize..8),
        ) {
            let packet: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let all: Vec<_> = parts(length, most).collect();
            prop_assert!(all.iter().all(|(_, range)| range.len() <= most));
            let mut joining = Joining::default();
            let mut joined = Vec::new();
            for (nth, (part, range)) in all.iter().enumerate() {
                prop_assert_eq!(Part::from_bits(part.bits()), *part);
                if lost != Some(nth) {
                    joined.extend(joining.take(nth as u64, *part, packet[range.clone()].to_vec()));
                }
            }
            let complete = lost.is_none_or(|lost| lost >= all.len());
            prop_assert_eq!(joined, if complete { vec![packet] } else { vec![] });
            // whatever came before, a whole one is one
            let whole = joining.take(9_000, Part::Whole, vec![7]);
            prop_assert_eq!(whole, Some(vec![7]));
        }
    }

    #[test]
    fn parts_without_end_are_dropped() {
        let mut joining = Joining::default();
        assert_none(joining.take(0, Part::First, vec![0; 1_000]));
        for number in 1..100 {
            assert_none(joining.take(number, Part::Middle, vec![0; 1_000]));
            assert!(joining.kept() <= 2 * MOST_JOINED);
        }
        assert_eq!(joining.kept(), 0);
        assert_none(joining.take(100, Part::Last, vec![0; 1_000]));
        // the last one makes it too long
        assert_none(joining.take(200, Part::First, vec![0; MOST_JOINED - 10]));
        assert_none(joining.take(201, Part::Last, vec![0; 11]));
        assert_eq!(joining.kept(), 0);
    }

    fn assert_none(joined: Option<Vec<u8>>) {
        assert!(joined.is_none());
    }
}
