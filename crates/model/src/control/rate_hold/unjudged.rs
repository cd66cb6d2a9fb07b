//! What packets without an outcome take of the rate: acknowledgements of the other direction.
//!
//! They are paced with all others, but nothing is learned from them. A direction that carries little else never
//! looks full, so a low estimate of it would stay, and hold the other direction down.

use super::RateHold;
use crate::units::{Bytes, Rate, Span, Time};

/// Acknowledgements' part of what they acknowledge, twice (E.10 asks for less than 4 %). A fade that is over is over
/// for both directions, and the first acknowledgements after it must not wait for an estimate.
const ACKS: f64 = 0.01;
/// They are counted by seconds.
const WINDOW: Span = Span::from_secs(1);

/// Bytes of this second and of the one before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unjudged {
    since: Time,
    bytes: u64,
    before: u64,
}

impl Unjudged {
    pub(super) const fn new(now: Time) -> Self {
        Self { since: now, bytes: 0, before: 0 }
    }

    pub(super) fn on_sent(&mut self, now: Time, bytes: Bytes) {
        self.advance(now);
        self.bytes = self.bytes.saturating_add(bytes.as_u64());
    }

    pub(super) fn advance(&mut self, now: Time) {
        let passed = now.since(self.since);
        if passed >= WINDOW {
            self.before = if passed < WINDOW.saturating_mul(2) { self.bytes } else { 0 };
            (self.since, self.bytes) = (now, 0);
        }
    }

    /// Twice what they took, so that they can become more: bits a second.
    pub(super) fn needs(&self) -> f64 {
        2.0 * 8.0 * self.before.max(self.bytes) as f64
    }
}

impl RateHold {
    /// Sets what the other direction may carry.
    pub const fn set_reverse(&mut self, reverse: Rate) {
        self.config.reverse = reverse;
    }

    /// No line is believed to give less, bits a second: the floor, and what acknowledgements need, up to a quarter.
    pub(super) fn least(&self) -> f64 {
        let all = self.config.reverse.as_bits_per_second() as f64 * ACKS;
        let needs = self.unjudged.needs().max(all).min(self.allotted() / 4.0);
        needs.max(self.config.floor.as_bits_per_second() as f64)
    }

    /// A packet left of which no outcome will be told: it acknowledges, and is not acknowledged itself.
    pub fn on_sent_unjudged(&mut self, now: Time, bytes: Bytes) {
        self.unjudged.on_sent(now, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    #[test]
    fn twice_the_last_second_and_nothing_after_silence() {
        let mut seen = Unjudged::new(at(0));
        for ms in (0..3_000).step_by(10) {
            seen.on_sent(at(ms), Bytes::new(80));
        }
        assert_eq!(seen.needs(), 128_000.0);
        seen.advance(at(3_500));
        assert_eq!(seen.needs(), 128_000.0);
        seen.advance(at(9_000));
        assert_eq!(seen.needs(), 0.0);
    }
}
