//! Reading and printing "decimal number, unit" without floating point.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Why a quantity cannot be parsed. The message states the expected form and gives an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitError(pub(super) String);

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for UnitError {}

/// A unit and how many base units one of it is.
pub(super) type Unit = (&'static str, u64);

/// Reads a decimal number and one of `units` (exact case first, then any), in base units. A
/// fraction that does not come out whole is refused.
pub(super) fn parse(
    text: &str,
    what: &str,
    example: &str,
    units: &[Unit],
) -> Result<u64, UnitError> {
    let wrong = |why: &str| {
        UnitError(alloc::format!("`{text}` is not {what}: {why}; write it like `{example}`"))
    };
    let text_trimmed = text.trim();
    let end = text_trimmed
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
        .unwrap_or(text_trimmed.len());
    let (number, unit) = text_trimmed.split_at(end);
    let unit = unit.trim();
    let exact = units.iter().find(|(name, _)| *name == unit);
    let any_case = || units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
    let Some(scale) = exact.or_else(any_case).map(|(_, scale)| u128::from(*scale)) else {
        if text_trimmed.starts_with('-') {
            return Err(wrong("it is negative"));
        }
        let why = if unit.is_empty() { "the unit is missing" } else { "the unit is not known" };
        let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        return Err(wrong(&alloc::format!("{why}, one of {names}")));
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return Err(wrong("there is no number"));
    }
    let digits = |part: &str| -> Option<u128> {
        part.bytes().filter(|b| *b != b'_').try_fold(0_u128, |sum, b| {
            b.is_ascii_digit().then_some(())?;
            sum.checked_mul(10)?.checked_add(u128::from(b - b'0'))
        })
    };
    let too_large = || wrong("it is too large");
    let mut value = digits(whole).and_then(|n| n.checked_mul(scale)).ok_or_else(too_large)?;
    let fraction = fraction.trim_end_matches('0');
    if !fraction.is_empty() {
        let power = 10_u128
            .checked_pow(u32::try_from(fraction.len()).unwrap_or(u32::MAX))
            .ok_or_else(|| wrong("it has too many decimals"))?;
        let part = digits(fraction)
            .ok_or_else(|| wrong("it has more than one decimal point"))?
            .checked_mul(scale)
            .ok_or_else(too_large)?;
        if part % power != 0 {
            return Err(wrong("it has more decimals than can be kept"));
        }
        value = value.checked_add(part / power).ok_or_else(too_large)?;
    }
    u64::try_from(value).map_err(|_| too_large())
}

/// Prints exactly, in the largest of `units` (largest first) that leaves at least 1 and at most
/// three decimals.
pub(super) fn print(f: &mut fmt::Formatter<'_>, value: u64, units: &[Unit]) -> fmt::Result {
    let fits =
        |scale: u64| value >= scale && (u128::from(value) * 1000).is_multiple_of(u128::from(scale));
    let chosen = units.iter().find(|(_, scale)| fits(*scale)).or(units.last());
    let Some((name, scale)) = chosen else { return Ok(()) };
    f.pad(&alloc::format!("{} {name}", decimal(value, *scale)))
}

/// `value / scale` in decimals; the scale's only prime factors are 2 and 5, so it comes to an end.
fn decimal(value: u64, scale: u64) -> String {
    let mut text = alloc::format!("{}", value / scale);
    let mut rest = u128::from(value % scale);
    if rest > 0 {
        text.push('.');
    }
    while rest > 0 {
        rest *= 10;
        let digit = (rest / u128::from(scale)) as u8;
        text.push(char::from(b'0' + digit));
        rest %= u128::from(scale);
    }
    text
}

/// Text in both directions for serde, by `Display` and `FromStr`.
macro_rules! serde_as_text {
    ($($type:ty),*) => {$(
        #[cfg(feature = "serde")]
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <alloc::string::String as serde::Deserialize>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
pub(crate) use serde_as_text;

/// Implements `FromStr` (by `$make` from base units and text), `Display`, `Debug` and serde's text.
macro_rules! text_unit {
    ($type:ty, $what:literal, $example:literal, read: $read:expr, print: $print:expr) => {
        $crate::units::number::text_unit!(
            $type, $what, $example, read: $read, print: $print, make: |n, _| Ok(Self(n))
        );
    };
    ($type:ty, $what:literal, $example:literal, read: $read:expr, print: $print:expr, make: $make:expr) => {
        impl core::str::FromStr for $type {
            type Err = $crate::units::UnitError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let make: fn(u64, &str) -> Result<Self, Self::Err> = $make;
                make($crate::units::number::parse(text, $what, $example, $read)?, text)
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                $crate::units::number::print(f, self.0, $print)
            }
        }

        impl core::fmt::Debug for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }

        $crate::units::number::serde_as_text!($type);
    };
}
pub(super) use text_unit;

/// Implements an operator on two units that saturates, and its assigning form.
macro_rules! saturating {
    ($($op:ident $call:ident, $assign:ident $assign_call:ident: $left:ty, $right:ty => $how:ident;)*) => {$(
        impl core::ops::$op<$right> for $left {
            type Output = Self;
            fn $call(self, other: $right) -> Self {
                Self(self.0.$how(other.0))
            }
        }

        impl core::ops::$assign<$right> for $left {
            fn $assign_call(&mut self, other: $right) {
                self.0 = self.0.$how(other.0);
            }
        }
    )*};
}
pub(super) use saturating;

/// Implements `Display` of an enumeration by a name for each variant.
macro_rules! named {
    ($type:ty { $($variant:ident = $name:literal),* $(,)? }) => {
        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(match self {
                    $(Self::$variant => $name,)*
                })
            }
        }
    };
}
pub(crate) use named;
