//! Whether an upstream is worth trying: after failures it rests, for longer each time.

use crate::units::{Span, Time};

/// How long an upstream rests after failing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// After the first failure; doubled with each further one. Default 1 s.
    pub first_rest: Span,
    /// But never longer than this. Default 60 s.
    pub longest_rest: Span,
}

impl Default for Config {
    fn default() -> Self {
        Self { first_rest: Span::from_secs(1), longest_rest: Span::from_secs(60) }
    }
}

/// The health of one upstream, from failures and successes alone. Resting is advice: when every
/// alternative rests the caller tries them all, so a wrong verdict costs a delay and no refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    config: Config,
    failures: u32,
    rests_until: Time,
}

impl Health {
    /// An upstream nothing is known against.
    pub const fn new(config: Config) -> Self {
        Self { config, failures: 0, rests_until: Time::ZERO }
    }

    /// It answered.
    pub const fn on_success(&mut self) {
        self.failures = 0;
        self.rests_until = Time::ZERO;
    }

    /// An attempt failed. Simultaneous attempts count as one failure: one short outage is one
    /// back-off.
    pub fn on_failure(&mut self, now: Time) {
        if !self.is_available(now) {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        let doublings = (self.failures - 1).min(32);
        let rest = self.config.first_rest.saturating_mul(1 << doublings);
        self.rests_until = now + rest.min(self.config.longest_rest);
    }

    /// Whether it should be tried before others that rest.
    pub fn is_available(&self, now: Time) -> bool {
        now >= self.rests_until
    }

    /// When it is to be tried again.
    pub const fn deadline(&self) -> Time {
        self.rests_until
    }

    /// Failures in a row.
    pub const fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_double_up_to_the_longest_and_a_success_forgets_them() {
        let mut health = Health::new(Config::default());
        let mut now = Time::ZERO;
        let mut rests = std::vec::Vec::new();
        for _ in 0..8 {
            assert!(health.is_available(now));
            health.on_failure(now);
            rests.push(health.deadline().since(now).as_secs());
            now = health.deadline();
        }
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 60, 60]);
        health.on_success();
        assert_eq!((health.failures(), health.is_available(Time::ZERO)), (0, true));
    }

    #[test]
    fn failures_of_one_outage_count_once() {
        let mut health = Health::new(Config::default());
        for _ in 0..100 {
            health.on_failure(Time::ZERO);
        }
        assert_eq!(health.failures(), 1);
    }
}
