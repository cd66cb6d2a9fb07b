//! Samples at a fixed step, the oldest overwritten by the newest.
//!
//! A slot is found by its time and says which time it holds, so a clock that jumps leaves gaps: slots of another time
//! are not read as this one's. Values are kept in 16 bits, 5 of exponent and 11 of fraction: within 0.05 %.

/// Values of a sample.
pub(super) const VALUES: usize = 5;
/// Bytes of a slot on disk: its time's number, its values and a check.
pub(super) const SLOT: usize = 16;

/// What was measured over one step; `None` where nothing is known.
pub(super) type Sample = [Option<u64>; VALUES];

const FRACTION: u32 = 11;
const NOTHING: u16 = u16::MAX;

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Ring {
    /// Seconds from one slot to the next.
    step: u64,
    slots: Vec<Slot>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    /// Steps since 1970; 0 for none.
    number: u32,
    codes: [u16; VALUES],
}

const EMPTY: Slot = Slot { number: 0, codes: [NOTHING; VALUES] };

impl Ring {
    /// An empty one of `slots` slots, `step` seconds each.
    pub(super) fn new(step: u64, slots: usize) -> Self {
        Self { step, slots: vec![EMPTY; slots] }
    }

    /// Seconds from one slot to the next.
    pub(super) const fn step(&self) -> u64 {
        self.step
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Puts what was measured up to `at`, in seconds since 1970; the place of its slot.
    pub(super) fn put(&mut self, at: u64, sample: &Sample) -> usize {
        let number = self.number(at);
        let place = self.place(number);
        self.slots[place] = Slot { number, codes: sample.map(code) };
        place
    }

    /// What was measured at `at`; `None` where that is not known or was overwritten.
    pub(super) fn at(&self, at: u64) -> Option<Sample> {
        let number = self.number(at);
        let slot = self.slots[self.place(number)];
        (number != 0 && slot.number == number).then(|| slot.codes.map(value))
    }

    /// The mean of each value over `span` seconds from `from` on, of those that are known.
    pub(super) fn mean(&self, from: u64, span: u64) -> Sample {
        let mut sums = [(0_u128, 0_u128); VALUES];
        for at in (from..from + span).step_by(self.step as usize) {
            for (sum, value) in sums.iter_mut().zip(self.at(at).unwrap_or_default()) {
                if let Some(value) = value {
                    *sum = (sum.0 + u128::from(value), sum.1 + 1);
                }
            }
        }
        sums.map(|(sum, n)| (n > 0).then(|| u64::try_from(sum / n).unwrap_or(u64::MAX)))
    }

    /// When the newest sample was taken, in seconds since 1970; 0 where there is none.
    pub(super) fn newest(&self) -> u64 {
        self.slots.iter().map(|slot| u64::from(slot.number)).max().unwrap_or(0) * self.step
    }

    /// A slot as it is kept.
    pub(super) fn bytes(&self, place: usize) -> [u8; SLOT] {
        let Slot { number, codes } = self.slots[place];
        let mut bytes = [0; SLOT];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        for (to, code) in bytes[4..14].chunks_mut(2).zip(codes) {
            to.copy_from_slice(&code.to_le_bytes());
        }
        let check = check(&bytes[..14]);
        bytes[14..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Takes a slot that was kept; one that is damaged, or not in its place, stays empty.
    pub(super) fn restore(&mut self, place: usize, bytes: &[u8; SLOT]) {
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let number = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if word(14) == check(&bytes[..14]) && number != 0 && self.place(number) == place {
            self.slots[place] = Slot { number, codes: [4, 6, 8, 10, 12].map(word) };
        }
    }

    fn number(&self, at: u64) -> u32 {
        u32::try_from(at / self.step).unwrap_or(0)
    }

    fn place(&self, number: u32) -> usize {
        number as usize % self.slots.len()
    }
}

/// FNV-1a of 32 bits, folded: a slot that was half written is not read.
fn check(bytes: &[u8]) -> u16 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let hash = bytes.iter().fold(0x811c_9dc5, step);
    (hash ^ (hash >> 16)) as u16
}

fn code(value: Option<u64>) -> u16 {
    let Some(value) = value else { return NOTHING };
    let exponent = (u64::BITS - value.leading_zeros()).saturating_sub(FRACTION + 1) + 1;
    let below = 1 << FRACTION;
    match exponent {
        _ if value < below => value as u16,
        1..=31 => {
            let fraction = (value >> (exponent - 1)) - below;
            (((exponent as u16) << FRACTION) | fraction as u16).min(NOTHING - 1)
        }
        _ => NOTHING - 1,
    }
}

fn value(code: u16) -> Option<u64> {
    let (exponent, fraction) = (code >> FRACTION, u64::from(code & ((1 << FRACTION) - 1)));
    match exponent {
        _ if code == NOTHING => None,
        0 => Some(fraction),
        _ => Some((fraction + (1 << FRACTION)) << (exponent - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(n: u64) -> Sample {
        [Some(n), None, Some(2 * n), Some(0), None]
    }

    #[test]
    fn the_oldest_is_overwritten_and_gaps_stay_gaps() {
        let mut ring = Ring::new(10, 6);
        for at in [1_000, 1_010, 1_030] {
            ring.put(at, &sample(at));
        }
        assert_eq!(ring.at(1_005), Some(sample(1_000)));
        assert_eq!(ring.at(1_020), None);
        assert_eq!(ring.mean(1_000, 40)[0], Some((1_000 + 1_010 + 1_030) / 3));
        assert_eq!(ring.mean(1_000, 40)[1], None);
        ring.put(1_060, &sample(7));
        assert_eq!((ring.at(1_000), ring.at(1_060)), (None, Some(sample(7))));
        assert_eq!(ring.newest(), 1_060);
    }

    #[test]
    fn a_clock_that_jumps_leaves_a_gap() {
        let mut ring = Ring::new(10, 6);
        ring.put(1_000, &sample(1));
        // far ahead, and back
        ring.put(900_000_000, &sample(2));
        ring.put(1_010, &sample(3));
        assert_eq!(ring.mean(1_000, 60), ring.mean(1_000, 20));
        assert_eq!((ring.at(1_010), ring.at(1_020)), (Some(sample(3)), None));
        ring.put(990, &sample(4));
        assert_eq!((ring.at(990), ring.at(1_000)), (Some(sample(4)), Some(sample(1))));
    }

    #[test]
    fn a_damaged_slot_is_none() {
        let mut ring = Ring::new(10, 6);
        let place = ring.put(1_000, &sample(5));
        let mut bytes = ring.bytes(place);
        let mut other = Ring::new(10, 6);
        other.restore(place, &bytes);
        assert_eq!(other.at(1_000), Some(sample(5)));
        let mut moved = Ring::new(10, 6);
        moved.restore((place + 1) % 6, &bytes);
        bytes[5] ^= 1;
        moved.restore(place, &bytes);
        moved.restore(place, &[0; SLOT]);
        assert_eq!(moved.newest(), 0);
    }

    proptest! {
        #[test]
        fn values_are_kept_within_half_a_thousandth(n in 0_u64..(4_094 << 30)) {
            let kept = value(code(Some(n))).unwrap();
            prop_assert!(kept <= n && (n - kept) as f64 <= n as f64 / 2_048.0, "{n}: {kept}");
        }

        #[test]
        fn larger_values_are_the_largest(n in (4_095_u64 << 30)..) {
            prop_assert_eq!(value(code(Some(n))), Some(4_094 << 30));
        }
    }
}
