//! Sizes in bytes.

use super::number::{saturating, text_unit};

const UNITS: &[(&str, u64)] = &[
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
];
const PRINT: &[(&str, u64)] =
    &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A number of bytes. `KiB` is 2¹⁰ and `kB` is 10³.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(u64);

text_unit!(Bytes, "a size", "8 MiB", read: UNITS, print: PRINT);

impl Bytes {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// `n` bytes.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }
    /// `n` × 2¹⁰ bytes.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }
    /// `n` × 2²⁰ bytes.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
    /// The number of bytes.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
    /// The number of bytes as an index; at most `usize::MAX`.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

saturating!(Add add, AddAssign add_assign: Bytes, Bytes => saturating_add;);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    #[test]
    fn reads_and_prints() {
        assert_eq!("8 MiB".parse(), Ok(Bytes::mib(8)));
        assert_eq!("64KiB".parse(), Ok(Bytes::kib(64)));
        assert_eq!("1.5 kB".parse(), Ok(Bytes::new(1_500)));
        assert_eq!("12 B".parse(), Ok(Bytes::new(12)));
        assert_eq!(Bytes::new(1_536).to_string(), "1.5 KiB");
        assert!("8".parse::<Bytes>().unwrap_err().to_string().contains("unit is missing"));
    }

    proptest::proptest! {
        #[test]
        fn printed_value_parses_back(n: u64) {
            let size = Bytes::new(n);
            proptest::prop_assert_eq!(size.to_string().parse::<Bytes>(), Ok(size));
        }
    }
}
