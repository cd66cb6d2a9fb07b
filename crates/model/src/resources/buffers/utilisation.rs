//! A buffer's use by its own filling, where the pairing is unknown (algorithms/buffers A.5).
//!
//! An empty send buffer waits for data: less arrives than the equation asked for. A full receive
//! buffer limits its sender. Both symptoms come three periods late, and are wrong where a
//! connection is idle by nature: a keystroke in an empty buffer halves it like a slow server.

use crate::units::Span;

/// The weight of a sample (algorithms/buffers A.5).
const WEIGHT: f64 = 1.0 / 8.0;
/// Filled less than this: too large. Filled more than one minus this: too small (algorithms/buffers A.5).
const LITTLE: f64 = 0.25;
/// So many periods in a row before a buffer is halved (algorithms/buffers A.5).
const PERIODS: u8 = 3;
/// A sender's buffer may grow once it stops it a twentieth of its busy time (algorithms/buffers
/// A.5).
const STOPPED: u64 = 20;
/// No more halvings or doublings than take any buffer from the ceiling to the floor.
const MOST: i8 = 12;

/// The filling of a send buffer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SendUse {
    filled: Option<f64>,
    sampled: bool,
    low: u8,
    halvings: i8,
    stuck: bool,
}

impl SendUse {
    /// A sample, each 100 ms while data is outstanding: bytes `queued` in a buffer of `size`.
    pub fn on_sample(&mut self, queued: u64, size: u64) {
        let now = (queued as f64 / size.max(1) as f64).min(1.0);
        let filled = self.filled.unwrap_or(now);
        self.filled = Some(filled + WEIGHT * (now - filled));
        self.sampled = true;
    }

    /// A period ended: data was outstanding for `busy`, the buffer in its way for `limited`; with
    /// `None` it may always grow.
    pub fn on_period(&mut self, busy: Span, limited: Option<Span>) {
        let sampled = core::mem::take(&mut self.sampled);
        let Some(filled) = self.filled.filter(|_| sampled) else { return };
        self.stuck = limited.is_some_and(|limited| limited.saturating_mul(STOPPED) <= busy);
        self.low = if filled < LITTLE { self.low + 1 } else { 0 };
        if self.low == PERIODS {
            self.low = 0;
            self.halvings = (self.halvings + 1).min(MOST);
        } else if filled > 1.0 - LITTLE {
            self.halvings = 0;
        }
    }

    /// The remaining part of the equation's `demand` for a buffer of size `granted`.
    pub fn apply(&self, demand: u64, granted: Option<u64>) -> u64 {
        let halved = demand >> self.halvings;
        match granted {
            Some(granted) if self.stuck => halved.min(granted),
            _ => halved,
        }
    }

    /// How often it is halved now.
    pub const fn halvings(&self) -> i8 {
        self.halvings
    }
}

/// A receive buffer's filling: unread bytes and a round trip's arrivals, because the window is
/// taken by both. (By unread bytes alone the window of a long path with a fast reader would close.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceiveUse {
    sampled: bool,
    full: bool,
    /// Whether a quarter of it was ever taken in this period.
    quarter: bool,
    low: u8,
    doublings: i8,
}

impl ReceiveUse {
    /// A sample: `taken` bytes of a buffer of `size`; whether unread bytes are left so on purpose.
    pub const fn on_sample(&mut self, taken: u64, size: u64, held_back: bool) {
        let quarter = size / 4;
        self.sampled = true;
        self.full |= !held_back && size.saturating_sub(taken) < quarter;
        self.quarter |= taken >= quarter;
    }

    /// A period ended.
    pub fn on_period(&mut self) {
        let Self { sampled, full, quarter, .. } = *self;
        if !sampled {
            return;
        }
        (self.sampled, self.full, self.quarter) = (false, false, false);
        self.low = if quarter { 0 } else { self.low + 1 };
        if full {
            self.doublings = (self.doublings + 1).min(MOST);
        } else if self.low == PERIODS {
            self.low = 0;
            self.doublings = (self.doublings - 1).max(-MOST);
        }
    }

    /// The corrected `demand`.
    pub const fn apply(&self, demand: u64) -> u64 {
        if self.doublings < 0 {
            demand >> self.doublings.unsigned_abs()
        } else {
            demand.saturating_mul(1 << self.doublings)
        }
    }

    /// How often it is doubled now; below 0, halved.
    pub const fn doublings(&self) -> i8 {
        self.doublings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Span = Span::from_secs(1);

    /// A period of ten samples.
    fn send(used: &mut SendUse, queued: u64, limited: Option<Span>) {
        (0..10).for_each(|_| used.on_sample(queued, 100));
        used.on_period(SECOND, limited);
    }

    #[test]
    fn three_low_periods_halve_and_a_full_one_restores() {
        let mut used = SendUse::default();
        let told: std::vec::Vec<u64> = (0..7)
            .map(|_| {
                send(&mut used, 10, None);
                used.apply(64, Some(8))
            })
            .collect();
        assert_eq!(told, [64, 64, 32, 32, 32, 16, 16]);
        send(&mut used, 50, None);
        assert_eq!(used.apply(64, None), 16, "between the marks nothing changes");
        (0..2).for_each(|_| send(&mut used, 100, None));
        assert_eq!(used.apply(64, None), 64);
    }

    #[test]
    fn the_average_moves_by_an_eighth() {
        let mut used = SendUse::default();
        used.on_sample(100, 100);
        used.on_sample(0, 100);
        assert_eq!(used.filled, Some(0.875));
    }

    #[test]
    fn grows_only_where_the_buffer_stops_the_sender() {
        let mut used = SendUse::default();
        send(&mut used, 50, Some(Span::from_millis(50)));
        assert_eq!(used.apply(64, Some(20)), 20, "5 % is not more than 5 %");
        assert_eq!(used.apply(10, Some(20)), 10, "it may shrink");
        send(&mut used, 50, Some(Span::from_millis(51)));
        assert_eq!(used.apply(64, Some(20)), 64);
    }

    #[test]
    fn a_period_without_samples_says_nothing() {
        let mut used = SendUse::default();
        (0..2).for_each(|_| send(&mut used, 0, None));
        used.on_period(SECOND, None);
        assert_eq!(used.halvings(), 0);
        send(&mut used, 0, None);
        assert_eq!(used.halvings(), 1);
        let mut unread = ReceiveUse::default();
        (0..9).for_each(|_| unread.on_period());
        assert_eq!(unread.doublings(), 0);
    }

    #[test]
    fn a_receive_buffer_that_is_full_doubles_and_one_that_is_empty_halves() {
        let mut used = ReceiveUse::default();
        let mut period = |taken, held_back| {
            used.on_sample(taken, 100, held_back);
            used.on_period();
            used.apply(64)
        };
        assert_eq!(period(76, false), 128);
        assert_eq!(period(75, false), 128, "a quarter is free");
        assert_eq!(period(100, true), 128, "its own program does not read");
        assert_eq!([period(24, false), period(25, false)], [128; 2]);
        assert_eq!([24; 6].map(|taken| period(taken, false)), [128, 128, 64, 64, 64, 32]);
    }
}
