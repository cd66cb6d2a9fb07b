//! What a buffer permits over a delay.

use ekiden_model::units::{Bytes, Rate, Span};
use std::fmt;

/// The round-trip time of a geostationary satellite link, the longest that relays are built for.
pub(super) const LONG: Delay = Delay(Span::from_millis(600));

/// A round-trip time, as shown.
#[derive(Clone, Copy)]
pub(super) struct Delay(Span);

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// So many bytes of payload in flight each round-trip time, in words.
pub(super) fn permitted(buffer: Bytes, delay: Delay) -> String {
    let bits = Rate::of(buffer, delay.0).unwrap_or_default().as_bits_per_second();
    // three figures at most: more would be pretended
    let (unit, scale) = match bits {
        0..1_000_000 => ("kbit/s", 1_000),
        1_000_000..1_000_000_000 => ("Mbit/s", 1_000_000),
        _ => ("Gbit/s", 1_000_000_000),
    };
    let tenths = bits * 10 / scale;
    if tenths < 100 {
        format!("about {}.{} {unit}", tenths / 10, tenths % 10)
    } else {
        format!("about {} {unit}", tenths / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_over_a_delay_is_a_rate() {
        assert_eq!(permitted(Bytes::mib(4), LONG), "about 55 Mbit/s");
        assert_eq!(permitted(Bytes::kib(208), LONG), "about 2.8 Mbit/s");
        assert_eq!(permitted(Bytes::ZERO, LONG), "about 0.0 kbit/s");
    }
}
