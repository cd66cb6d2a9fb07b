//! Rates in bits per second.

use super::number::text_unit;
use super::{Bytes, Span};

const UNITS: &[(&str, u64)] = &[
    ("Gbit/s", 1_000_000_000),
    ("Mbit/s", 1_000_000),
    ("kbit/s", 1_000),
    ("bit/s", 1),
    ("Gbps", 1_000_000_000),
    ("Mbps", 1_000_000),
    ("kbps", 1_000),
    ("bps", 1),
];
const PRINT: &[(&str, u64)] =
    &[("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1_000), ("bit/s", 1)];

/// A rate in bits per second; 0 … 18 Ebit/s.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rate(u64);

text_unit!(Rate, "a rate", "25 Mbit/s", read: UNITS, print: PRINT);

impl Rate {
    /// `n` bits per second.
    pub const fn from_bits_per_second(n: u64) -> Self {
        Self(n)
    }
    /// Bits per second.
    pub const fn as_bits_per_second(self) -> u64 {
        self.0
    }
    /// Whole bytes per second, rounded down.
    pub const fn as_bytes_per_second(self) -> u64 {
        self.0 / 8
    }
    /// The rate at which `bytes` pass in `span`; `None` when no time passed.
    pub fn of(bytes: Bytes, span: Span) -> Option<Self> {
        let bits = u128::from(bytes.as_u64()) * 8 * 1_000_000_000;
        let rate = bits.checked_div(u128::from(span.as_nanos()))?;
        Some(Self(u64::try_from(rate).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    #[test]
    fn reads_and_prints() {
        assert_eq!("25 Mbit/s".parse(), Ok(Rate::from_bits_per_second(25_000_000)));
        assert_eq!("1.5Mbps".parse(), Ok(Rate::from_bits_per_second(1_500_000)));
        assert_eq!(Rate::from_bits_per_second(1_500_000).to_string(), "1.5 Mbit/s");
        assert_eq!(Rate::default().to_string(), "0 bit/s");
        for (text, why) in [
            ("25", "the unit is missing, one of Gbit/s, Mbit/s, "),
            ("25 furlongs", "the unit is not known, one of Gbit/s, Mbit/s, "),
            ("-25 Mbit/s", "it is negative"),
        ] {
            let said = text.parse::<Rate>().unwrap_err().to_string();
            assert!(said.contains(why) && said.ends_with("write it like `25 Mbit/s`"), "{said}");
        }
    }

    #[test]
    fn of_bytes_in_a_span() {
        let rate = Rate::of(Bytes::new(1_250), ms(1));
        assert_eq!(rate, Some(Rate::from_bits_per_second(10_000_000)));
        assert_eq!(Rate::of(Bytes::new(1), Span::ZERO), None);
    }

    proptest::proptest! {
        #[test]
        fn printed_value_parses_back(n: u64) {
            let rate = Rate::from_bits_per_second(n);
            proptest::prop_assert_eq!(rate.to_string().parse::<Rate>(), Ok(rate));
        }
    }
}
