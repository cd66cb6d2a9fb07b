//! Splice or copy: which of the two moves a direction's bytes with less work.
//!
//! `splice` moves page references and costs two system calls more per turn; copying costs per byte.
//! Small messages are cheaper copied, streams cheaper spliced.

use crate::rng::Rng;

/// How one turn's bytes are to be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Through a pipe, without passing through user space.
    Splice,
    /// By `read` and `write`.
    Copy,
}

/// How the way is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// By what the direction does.
    Auto,
    /// Always the same.
    Always(Way),
    /// At random at each turn; for tests.
    Random(Rng),
}

/// Bytes in one turn from which on splicing is taken to pay: an estimate (copying 16 KiB at 8 GB/s is
/// 2 µs, about two further system calls and the pipe's locking), not a measurement.
const WORTH_SPLICING: usize = 16 * 1024;
/// Turns in a row that must agree before the way changes, so that one odd turn does not.
const AGREEMENT: u8 = 3;

/// The choice for one direction of one connection, told of each turn's size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Movement {
    choice: Choice,
    splicing: bool,
    /// Turns in a row that spoke for the other way.
    against: u8,
}

impl Movement {
    /// A direction that has moved nothing.
    #[must_use]
    pub const fn new(choice: Choice) -> Self {
        Self { choice, splicing: false, against: 0 }
    }

    /// How to move what is readable now.
    pub fn way(&mut self) -> Way {
        let splice = match &mut self.choice {
            Choice::Always(way) => return *way,
            Choice::Random(rng) => rng.below(2) == 0,
            Choice::Auto => self.splicing,
        };
        if splice { Way::Splice } else { Way::Copy }
    }

    /// One turn moved `bytes`.
    pub const fn on_moved(&mut self, bytes: usize) {
        if (bytes >= WORTH_SPLICING) == self.splicing {
            self.against = 0;
            return;
        }
        self.against += 1;
        if self.against >= AGREEMENT {
            self.splicing = !self.splicing;
            self.against = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_come_to_be_spliced_and_keystrokes_copied() {
        let mut movement = Movement::new(Choice::Auto);
        assert_eq!(movement.way(), Way::Copy);
        (0..3).for_each(|_| movement.on_moved(64 * 1024));
        assert_eq!(movement.way(), Way::Splice);
        movement.on_moved(100);
        movement.on_moved(64 * 1024);
        assert_eq!(movement.way(), Way::Splice, "one odd turn changes nothing");
        (0..3).for_each(|_| movement.on_moved(100));
        assert_eq!(movement.way(), Way::Copy);
    }

    #[test]
    fn what_is_fixed_stays_and_random_is_both() {
        let mut fixed = Movement::new(Choice::Always(Way::Splice));
        (0..9).for_each(|_| fixed.on_moved(1));
        assert_eq!(fixed.way(), Way::Splice);
        let mut random = Movement::new(Choice::Random(Rng::new(1)));
        let spliced = (0..1000).filter(|_| random.way() == Way::Splice).count();
        assert!((400..600).contains(&spliced), "{spliced}");
    }
}
