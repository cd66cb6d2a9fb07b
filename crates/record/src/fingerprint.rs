//! A number for a sequence of events: the same on every machine and build, another if anything
//! differs.

/// FNV-1a over 64-bit words, with MurmurHash3's finaliser so that the last word spreads. Not
/// against malice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fingerprint {
    /// Of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in one word.
    pub const fn add(&mut self, word: u64) {
        // the rotation lets high bits come down, which multiplication alone does not
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    }

    /// Takes in an event.
    pub fn add_all(&mut self, words: impl IntoIterator<Item = u64>) {
        words.into_iter().for_each(|word| self.add(word));
    }

    /// The number so far.
    pub const fn value(self) -> u64 {
        let x = self.0;
        let x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        x ^ (x >> 33)
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[u64]) -> u64 {
        let mut fingerprint = Fingerprint::new();
        fingerprint.add_all(words.iter().copied());
        fingerprint.value()
    }

    #[test]
    fn never_changes() {
        let mut fingerprint = Fingerprint::new();
        fingerprint.add_all(1..=1000);
        // results kept with this number depend on it
        assert_eq!(fingerprint.to_string(), "84257dfcdae7a996");
    }

    proptest::proptest! {
        #[test]
        fn fingerprint_changes_with_any_bit(mut words in proptest::collection::vec(proptest::prelude::any::<u64>(), 1..50), at: usize, bit in 0_u32..64) {
            let before = of(&words);
            let at = at % words.len();
            words[at] ^= 1 << bit;
            proptest::prop_assert_ne!(before, of(&words));
        }
    }
}
