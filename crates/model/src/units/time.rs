//! Instants and lengths of time, in integer nanoseconds.

use super::number::text_unit;
use core::ops::{Add, AddAssign, Sub};
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
    /// The longest span; as a time-out it means «never».
    pub const MAX: Self = Self(u64::MAX);

    /// `n` nanoseconds.
    #[must_use]
    pub const fn from_nanos(n: u64) -> Self {
        Self(n)
    }
    /// `n` microseconds.
    #[must_use]
    pub const fn from_micros(n: u64) -> Self {
        Self(n.saturating_mul(1_000))
    }
    /// `n` milliseconds.
    #[must_use]
    pub const fn from_millis(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }
    /// `n` seconds.
    #[must_use]
    pub const fn from_secs(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000_000))
    }
    /// In whole nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// In whole microseconds, rounded down.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }
    /// In whole milliseconds, rounded down.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }
    /// In whole seconds, rounded down.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000_000
    }
    /// `self × n`, at most [`Span::MAX`].
    #[must_use]
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

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// An instant: nanoseconds since an origin that the driver chooses (the start of a simulation, the
/// start of the process). Two drivers' instants are not comparable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

text_unit!(Time, "an instant", "1.5 s", read: UNITS, print: PRINT);

impl Time {
    /// The driver's origin.
    pub const ZERO: Self = Self(0);
    /// Later than anything that happens.
    pub const NEVER: Self = Self(u64::MAX);

    /// `n` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(n: u64) -> Self {
        Self(n)
    }
    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// How long ago `earlier` was; zero when it is still to come.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub<Span> for Time {
    type Output = Self;
    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

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
            assert!(error.contains("write it like «40 ms»"), "{text}: {error}");
        }
    }

    #[test]
    fn never_wraps() {
        assert_eq!(Time::NEVER + Span::from_secs(1), Time::NEVER);
        assert_eq!(Time::ZERO.since(Time::NEVER), Span::ZERO);
    }

    proptest::proptest! {
        #[test]
        fn what_is_printed_parses_back(n: u64) {
            let span = Span::from_nanos(n);
            proptest::prop_assert_eq!(span.to_string().parse::<Span>(), Ok(span));
        }
    }
}
