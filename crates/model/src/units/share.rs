//! Parts of a whole: loss ratios, weights, watermarks.

use super::number::{UnitError, text_unit};

const UNITS: &[(&str, u64)] = &[("%", 10_000_000), ("ppm", 1_000), ("ppb", 1)];
const PRINT: &[(&str, u64)] = &[("%", 10_000_000)];

/// A part of a whole in parts per 10⁹; 0 … 100 %.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Share(u64);

const WHOLE: u64 = 1_000_000_000;

text_unit!(Share, "a share", "0.1 %", read: UNITS, print: PRINT, make: |parts, text| {
    Self::from_parts_per_billion(parts).ok_or_else(|| {
        UnitError(alloc::format!("`{text}` is more than the whole; a share is at most `100 %`"))
    })
});

impl Share {
    /// Nothing of it.
    pub const NONE: Self = Self(0);
    /// All of it.
    pub const ALL: Self = Self(WHOLE);

    /// `n` parts per 10⁹; `None` above the whole.
    pub const fn from_parts_per_billion(n: u64) -> Option<Self> {
        if n <= WHOLE { Some(Self(n)) } else { None }
    }
    /// `n` percent; `None` above 100.
    pub const fn from_percent(n: u64) -> Option<Self> {
        if n <= 100 { Some(Self(n * 10_000_000)) } else { None }
    }
    /// Parts per 10⁹.
    pub const fn as_parts_per_billion(self) -> u64 {
        self.0
    }
    /// This share of `n`, rounded down.
    pub const fn of(self, n: u64) -> u64 {
        // at most n, so it fits
        (n as u128 * self.0 as u128 / WHOLE as u128) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    #[test]
    fn reads_and_prints() {
        let share: Share = "0.1%".parse().unwrap();
        assert_eq!(share.as_parts_per_billion(), 1_000_000);
        assert_eq!(share.to_string(), "0.1 %");
        assert_eq!(share.of(10_000), 10);
        assert!("120 %".parse::<Share>().unwrap_err().to_string().contains("at most"));
    }

    proptest::proptest! {
        #[test]
        fn printed_value_parses_back(n in 0..=WHOLE) {
            let share = Share::from_parts_per_billion(n).unwrap();
            proptest::prop_assert_eq!(share.to_string().parse::<Share>(), Ok(share));
        }
    }
}
