//! Figures with three digits and their unit.

use super::dash;
use ekiden_model::units::{Bytes, Rate, Span};

/// A number of things: `1 failure`, `2 failures`.
pub(crate) fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A size of memory or disk to three digits.
pub(crate) fn size(bytes: u64) -> String {
    round(bytes, &[(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")])
        .unwrap_or_else(|| Bytes::new(bytes).to_string())
}

/// Bytes that were moved, to three digits: decimal, as rates are, and as quotas are sold. Memory is [`size`].
pub(crate) fn traffic(bytes: u64) -> String {
    let units =
        [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    round(bytes, &units).unwrap_or_else(|| format!("{bytes} B"))
}

/// A rate to three digits.
pub(crate) fn rate(bits: u64) -> String {
    round(bits, &[(1_000_000_000, "Gbit/s"), (1_000_000, "Mbit/s"), (1_000, "kbit/s")])
        .unwrap_or_else(|| Rate::from_bits_per_second(bits).to_string())
}

/// A round-trip time to three digits.
pub(crate) fn rtt(micros: u32) -> String {
    // the kernel's value for "not measured yet"
    if micros == 0 {
        return dash();
    }
    let nanos = u64::from(micros) * 1_000;
    round(nanos, &[(1_000_000_000, "s"), (1_000_000, "ms")])
        .unwrap_or_else(|| Span::from_nanos(nanos).to_string())
}

/// A share of 0 to 1.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

fn round(value: u64, units: &[(u64, &str)]) -> Option<String> {
    let (scale, unit) = units.iter().find(|(scale, _)| value >= *scale)?;
    let value = value as f64 / *scale as f64;
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    Some(format!("{value:.decimals$} {unit}"))
}

/// A time as `4.2 s`, `3 min 5 s`, `2 h 4 min`, `3 d 2 h`.
pub(crate) fn seconds(seconds: f64) -> String {
    // negative and not-a-number become 0
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{:.1} s", seconds.max(0.0)),
        60..3_600 => format!("{} min {} s", whole / 60, whole % 60),
        3_600..86_400 => format!("{} h {} min", whole / 3_600, whole / 60 % 60),
        _ => format!("{} d {} h", whole / 86_400, whole / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        assert_eq!(
            [size(0), size(1_023), size(1_536), size(10 << 20), size(u64::MAX)].join(", "),
            "0 B, 1023 B, 1.50 KiB, 10.0 MiB, 16777216 TiB"
        );
        assert_eq!(
            [traffic(0), traffic(999), traffic(1_500), traffic(300_000_000_000)].join(", "),
            "0 B, 999 B, 1.50 kB, 300 GB"
        );
        assert_eq!(
            [rate(999), rate(25_000_000), rate(999_999_999)].join(", "),
            "999 bit/s, 25.0 Mbit/s, 1000 Mbit/s"
        );
        assert_eq!(
            [rtt(0), rtt(250), rtt(52_345), rtt(1_500_000)].join(", "),
            "-, 250 us, 52.3 ms, 1.50 s"
        );
        assert_eq!(
            [
                seconds(4.23),
                seconds(185.0),
                seconds(7_500.0),
                seconds(270_000.0),
                seconds(f64::NAN)
            ]
            .join(", "),
            "4.2 s, 3 min 5 s, 2 h 5 min, 3 d 3 h, 0.0 s"
        );
    }
}
