//! Splice or copy: which of the two moves a direction's bytes with less work.
//!
//! `splice` moves page references and costs two system calls more per turn; copying costs per byte.
//! Small messages are cheaper copied, streams cheaper spliced.

use crate::rng::Rng;

/// How a direction chooses between splice and copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyMode {
    /// Copy at first, splice once a direction moves many bytes at a time. The default.
    Auto,
    /// `splice` wherever bytes need not be read.
    Splice,
    /// `read` and `write` only.
    Copy,
    /// Switch at random, by this seed; for tests.
    Random(u64),
}

/// How one turn's bytes are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyMethod {
    /// Through a pipe, without passing through user space.
    Splice,
    /// By `read` and `write`.
    Copy,
}

/// Bytes in one turn from which on splicing is taken to pay: an estimate (copying 16 KiB at 8 GB/s
/// is 2 µs, about two further system calls and the pipe's locking), not a measurement.
const WORTH_SPLICING: usize = 16 * 1024;
/// Turns in a row that must agree before the method changes, so that one odd turn does not.
const AGREEMENT: u8 = 3;

/// Chooses the method for one direction of one connection, from each turn's size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopySelector {
    mode: CopyMode,
    rng: Rng,
    splicing: bool,
    against: u8,
}

impl CopySelector {
    /// A direction that has moved nothing.
    pub fn new(mode: CopyMode) -> Self {
        let seed = if let CopyMode::Random(seed) = mode { seed } else { 0 };
        let splicing = matches!(mode, CopyMode::Splice);
        Self { mode, rng: Rng::new(seed), splicing, against: 0 }
    }

    /// How to move the bytes that are readable now.
    pub fn method(&mut self) -> CopyMethod {
        if let CopyMode::Random(_) = self.mode {
            self.splicing = self.rng.below(2) == 0;
        }
        if self.splicing { CopyMethod::Splice } else { CopyMethod::Copy }
    }

    /// One turn moved `bytes`.
    pub fn on_moved(&mut self, bytes: usize) {
        if self.mode != CopyMode::Auto || (bytes >= WORTH_SPLICING) == self.splicing {
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
        let mut selector = CopySelector::new(CopyMode::Auto);
        assert_eq!(selector.method(), CopyMethod::Copy);
        (0..3).for_each(|_| selector.on_moved(64 * 1024));
        assert_eq!(selector.method(), CopyMethod::Splice);
        selector.on_moved(100);
        selector.on_moved(64 * 1024);
        assert_eq!(selector.method(), CopyMethod::Splice, "one odd turn changes nothing");
        (0..3).for_each(|_| selector.on_moved(100));
        assert_eq!(selector.method(), CopyMethod::Copy);
    }

    #[test]
    fn fixed_mode_stays_and_random_uses_both() {
        let mut fixed = CopySelector::new(CopyMode::Splice);
        (0..9).for_each(|_| fixed.on_moved(1));
        assert_eq!(fixed.method(), CopyMethod::Splice);
        let mut random = CopySelector::new(CopyMode::Random(1));
        let spliced = (0..1000).filter(|_| random.method() == CopyMethod::Splice).count();
        assert!((400..600).contains(&spliced), "{spliced}");
    }
}
