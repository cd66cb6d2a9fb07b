//! Bytes that show any compression, shift, loss or repetition; cheaper than hashing, and finds the first wrong
//! byte.

use super::servers;
use ekiden_model::rng::Rng;
use std::io::Read;
use std::sync::OnceLock;

/// Bytes until they begin again: a prime, so that no whole number of packets or buffers is a period.
const PERIOD: u64 = 1_048_573;
/// Any; both ends have the same.
const SEED: u64 = 7;

static BLOCK: OnceLock<Vec<u8>> = OnceLock::new();

fn block() -> &'static [u8] {
    BLOCK.get_or_init(|| {
        let mut block = Vec::with_capacity(PERIOD as usize);
        // from memory: there is nothing to fail
        let _all = servers::pattern(SEED, PERIOD).read_to_end(&mut block);
        block
    })
}

/// A place in the sequence, from its beginning on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pattern {
    /// Where it began.
    begin: u64,
    offset: u64,
}

impl Pattern {
    /// The sequence of this seed: two seeds begin at different places, so that bytes of another connection show.
    pub fn of(seed: u64) -> Self {
        let begin = Rng::new(seed).below(PERIOD);
        Self { begin, offset: begin }
    }

    /// What comes next, at most so many bytes and at least one unless none was asked for; it is passed by.
    pub fn next(&mut self, most: usize) -> &'static [u8] {
        let block = block();
        let at = (self.offset % PERIOD) as usize;
        let end = block.len().min(at.saturating_add(most));
        let piece = block.get(at..end).unwrap_or_default();
        self.offset += piece.len() as u64;
        piece
    }

    /// Passes by as many bytes as these are. Errors: the offset of the first that is not what it should be, from where
    /// this began.
    pub fn check(&mut self, mut bytes: &[u8]) -> Result<(), u64> {
        while !bytes.is_empty() {
            let before = self.offset;
            let piece = self.next(bytes.len());
            let (ours, rest) = bytes.split_at(piece.len());
            if ours != piece {
                let same = ours.iter().zip(piece).take_while(|(a, b)| a == b).count();
                return Err(before - self.begin + same as u64);
            }
            bytes = rest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_is_the_same_for_every_chunking() {
        let mut from = Pattern::default();
        let mut sent = Vec::new();
        while sent.len() < 3 << 20 {
            sent.extend_from_slice(from.next(70_001));
        }
        let mut to = Pattern::default();
        for piece in sent.chunks(9_973) {
            assert_eq!(to.check(piece), Ok(()));
        }
        assert_eq!(from, to);
        assert!(from.next(0).is_empty());
    }

    #[test]
    fn bytes_of_another_seed_are_wrong() {
        let sent = Pattern::of(1).next(1_000);
        assert_eq!(Pattern::of(1).check(sent), Ok(()));
        assert!(Pattern::of(2).check(sent).is_err());
    }

    #[test]
    fn locates_losses_copies_and_changes() {
        let sent = Pattern::default().next(5_000);
        let lost = [&sent[..1_000], &sent[1_001..]].concat();
        let copied = [&sent[..1_000], &sent[500..]].concat();
        let mut changed = sent.to_vec();
        changed[1_000] ^= 1;
        for wrong in [lost, copied, changed] {
            let at = Pattern::default().check(&wrong).unwrap_err();
            // chance may make a byte or two alike
            assert!((1_000..1_004).contains(&at), "{at}");
        }
    }
}
