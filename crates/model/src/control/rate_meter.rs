//! The rate at which bytes moved lately, for people who look.

use crate::units::{Bytes, Rate, Span, Time};

/// How far back a rate looks. Shorter shows a page's bursts, longer hides that a download ended.
const WINDOW: Span = Span::from_secs(2);

/// The mean rate over the last two seconds, or since the start where that is less.
///
/// Two windows stand for the sliding one: of the last whole window the part that is still within
/// reach counts, as if its bytes had come evenly.
#[derive(Debug, Clone)]
pub struct RateMeter {
    start: Time,
    /// When the current window began.
    since: Time,
    last: u64,
    current: u64,
}

impl RateMeter {
    /// A meter that has seen nothing.
    pub const fn new(now: Time) -> Self {
        Self { start: now, since: now, last: 0, current: 0 }
    }

    /// Counts bytes that moved.
    pub fn on_moved(&mut self, now: Time, bytes: u64) {
        self.roll(now);
        self.current = self.current.saturating_add(bytes);
    }

    /// The rate now.
    pub fn rate(&self, now: Time) -> Rate {
        let mut seen = self.clone();
        seen.roll(now);
        let within = now.since(seen.since).as_nanos();
        let window = WINDOW.as_nanos();
        let part = u128::from(seen.last) * u128::from(window - within) / u128::from(window);
        let bytes = u64::try_from(part).unwrap_or(u64::MAX).saturating_add(seen.current);
        let span = now.since(self.start).min(WINDOW).max(Span::from_millis(100));
        Rate::of(Bytes::new(bytes), span).unwrap_or(Rate::from_bits_per_second(u64::MAX))
    }

    fn roll(&mut self, now: Time) {
        let past = now.since(self.since);
        if past < WINDOW {
            return;
        }
        let windows = past.as_nanos() / WINDOW.as_nanos();
        self.last = if windows == 1 { self.current } else { 0 };
        self.current = 0;
        self.since += Span::from_nanos(windows * WINDOW.as_nanos());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn follows_a_stream_and_forgets_it() {
        let mut meter = RateMeter::new(at(0));
        assert_eq!(meter.rate(at(0)).as_bits_per_second(), 0);
        for millis in (0..10_000).step_by(10) {
            meter.on_moved(at(millis), 1_250);
        }
        let mbit = meter.rate(at(10_000)).as_bits_per_second();
        assert!((990_000..=1_010_000).contains(&mbit), "{mbit}");
        assert!(meter.rate(at(11_000)).as_bits_per_second() <= 510_000);
        assert_eq!(meter.rate(at(14_000)).as_bits_per_second(), 0);
    }

    #[test]
    fn a_young_stream_is_not_spread_over_time_before_it() {
        let mut meter = RateMeter::new(at(0));
        meter.on_moved(at(400), 50_000);
        assert_eq!(meter.rate(at(500)).as_bits_per_second(), 800_000);
    }

    proptest! {
        /// No rate exceeds what moved within two windows.
        #[test]
        fn is_bounded_by_what_moved(
            steps in prop::collection::vec((0_u64..3_000, 0_u64..1_000_000), 1..50),
        ) {
            let mut meter = RateMeter::new(at(0));
            let mut moved = Vec::new();
            let mut now = 2_000;
            for (pause, bytes) in steps {
                now += pause;
                meter.on_moved(at(now), bytes);
                moved.push((now, bytes));
                let recent: u64 =
                    moved.iter().filter(|(when, _)| when + 4_000 > now).map(|(_, n)| n).sum();
                prop_assert!(meter.rate(at(now)).as_bits_per_second() <= recent * 8 / 2);
            }
        }
    }
}
