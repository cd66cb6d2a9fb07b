//! Instants and lengths of time, in integer nanoseconds.

use super::number::{saturating, text_unit};
use core::time::Duration;

const UNITS: &[(&str, u64)] = &[
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("ns", 1),
];
// minutes and above do not divide into decimals exactly, so printing starts at seconds
const PRINT: &[(&str, u64)] = &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// A length of time in nanoseconds; 0 … 584 years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

text_unit!(Span, "a length of time", "40 ms", read: UNITS, print: PRINT);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest span; as a time-out it means "never".
    pub const MAX: Self = Self(u64::MAX);

    /// `n` nanoseconds.
    pub const fn from_nanos(n: u64) -> Self {
        Self(n)
    }
    /// `n` microseconds.
    pub const fn from_micros(n: u64) -> Self {
        Self(n.saturating_mul(1_000))
    }
    /// `n` milliseconds.
    pub const fn from_millis(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }
    /// `n` seconds.
    pub const fn from_secs(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000_000))
    }
    /// `seconds` in whole nanoseconds, 0 … [`Span::MAX`].
    pub const fn from_secs_f64(seconds: f64) -> Self {
        Self((seconds * 1e9) as u64)
    }
    /// In seconds.
    pub const fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// In whole nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// In whole microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }
    /// In whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }
    /// In whole seconds, rounded down.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000_000
    }
    /// `self × n`, at most [`Span::MAX`].
    pub const fn saturating_mul(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        Self::from_nanos(span.0)
    }
}

impl From<Duration> for Span {
    /// At most [`Span::MAX`].
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

saturating! {
    Add add, AddAssign add_assign: Span, Span => saturating_add;
    Add add, AddAssign add_assign: Time, Span => saturating_add;
    Sub sub, SubAssign sub_assign: Time, Span => saturating_sub;
}

/// An instant: nanoseconds since an origin that the driver chooses; not comparable between drivers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

text_unit!(Time, "an instant", "1.5 s", read: UNITS, print: PRINT);

impl Time {
    /// The driver's origin.
    pub const ZERO: Self = Self(0);
    /// Later than anything that happens.
    pub const NEVER: Self = Self(u64::MAX);

    /// `n` nanoseconds after the origin.
    pub const fn from_nanos(n: u64) -> Self {
        Self(n)
    }
    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// How long ago `earlier` was; zero when it is still to come.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    #[test]
    fn reads_every_unit_a_person_would_write() {
        for (text, nanos) in [
            ("40 ms", 40_000_000),
            ("40ms", 40_000_000),
            ("1.5s", 1_500_000_000),
            ("2 min", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("0.5 us", 500),
            ("7µs", 7_000),
        ] {
            assert_eq!(text.parse::<Span>().map(Span::as_nanos), Ok(nanos), "{text}");
        }
    }

    #[test]
    fn refuses_with_an_example() {
        for text in ["", "ms", "40", "4 parsecs", "1..2 s", "-1 s", "0.1 ns", "99999999999 h"] {
            let error = text.parse::<Span>().unwrap_err().to_string();
            assert!(error.contains("write it like `40 ms`"), "{text}: {error}");
        }
    }

    #[test]
    fn never_wraps() {
        assert_eq!(Time::NEVER + Span::from_secs(1), Time::NEVER);
        assert_eq!(Time::ZERO.since(Time::NEVER), Span::ZERO);
    }

    proptest::proptest! {
        #[test]
        fn printed_value_parses_back(n: u64) {
            let span = Span::from_nanos(n);
            proptest::prop_assert_eq!(span.to_string().parse::<Span>(), Ok(span));
        }
    }
}
