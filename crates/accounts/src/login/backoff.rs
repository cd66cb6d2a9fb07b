//! Exponential back-off after wrong guesses. A pure value: time is an argument.

use ekiden_model::units::{Span, Time};
use std::collections::BTreeMap;

/// How much is forgiven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackoffLimits {
    /// Failures without any wait.
    pub free: u32,
    /// The wait after the next one; each further failure doubles it.
    pub first: Span,
    /// The longest wait.
    pub most: Span,
    /// Without a failure for so long all is forgotten.
    pub forget: Span,
    /// So many are remembered; for another the one whose last failure is longest ago is forgotten.
    pub remembered: usize,
}

/// Failures by whom they are held against.
#[derive(Debug)]
pub struct Backoff<K> {
    patience: BackoffLimits,
    known: BTreeMap<K, Failures>,
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Time,
    until: Time,
}

impl<K: Ord + Clone> Backoff<K> {
    /// Nobody has failed yet.
    pub const fn new(patience: BackoffLimits) -> Self {
        Self { patience, known: BTreeMap::new() }
    }

    /// How long `who` has still to wait; zero for who may try.
    pub fn wait(&self, now: Time, who: &K) -> Span {
        self.known.get(who).map_or(Span::ZERO, |failures| failures.until.since(now))
    }

    /// Whether a failure of `who` is remembered.
    pub fn has_failed(&self, now: Time, who: &K) -> bool {
        let forget = self.patience.forget;
        self.known.get(who).is_some_and(|failures| now.since(failures.last) < forget)
    }

    /// `who` guessed wrong, for so many times now.
    pub fn on_failure(&mut self, now: Time, who: &K) -> u32 {
        let BackoffLimits { free, first, most, forget, remembered } = self.patience;
        if !self.known.contains_key(who) && self.known.len() >= remembered {
            self.make_room(now);
        }
        let fresh = Failures { count: 0, last: now, until: now };
        let failures = self.known.entry(who.clone()).or_insert(fresh);
        if now.since(failures.last) >= forget {
            *failures = fresh;
        }
        failures.count = failures.count.saturating_add(1);
        failures.last = now;
        if let Some(beyond) = failures.count.checked_sub(free.saturating_add(1)) {
            let wait =
                first.saturating_mul(1_u64.checked_shl(beyond).unwrap_or(u64::MAX)).min(most);
            failures.until = now + wait;
        }
        failures.count
    }

    fn make_room(&mut self, now: Time) {
        let forget = self.patience.forget;
        self.known.retain(|_, failures| now.since(failures.last) < forget);
        if self.known.len() < self.patience.remembered {
            return;
        }
        let oldest = self.known.iter().min_by_key(|(_, failures)| failures.last);
        if let Some(oldest) = oldest.map(|(who, _)| who.clone()) {
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PATIENCE: BackoffLimits = BackoffLimits {
        free: 3,
        first: Span::from_secs(1),
        most: Span::from_secs(60),
        forget: Span::from_secs(900),
        remembered: 4,
    };

    fn at(second: u64) -> Time {
        Time::from_nanos(second * 1_000_000_000)
    }

    #[test]
    fn doubles_after_the_free_failures() {
        let mut backoff = Backoff::new(PATIENCE);
        let mut waits = Vec::new();
        for _ in 0..12 {
            backoff.on_failure(at(5), &"a");
            waits.push(backoff.wait(at(5), &"a").as_secs());
        }
        assert_eq!(waits, [0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(backoff.wait(at(35), &"a").as_secs(), 30);
        assert_eq!(backoff.wait(at(5), &"b"), Span::ZERO);
    }

    #[test]
    fn forgets_old_failures() {
        let mut backoff = Backoff::new(PATIENCE);
        for _ in 0..9 {
            backoff.on_failure(at(0), &"a");
        }
        backoff.on_failure(at(900), &"a");
        assert_eq!(backoff.wait(at(900), &"a"), Span::ZERO);
    }

    proptest! {
        #[test]
        fn stays_within_its_bounds(who in prop::collection::vec(0_u8..20, 1..200)) {
            let mut backoff = Backoff::new(PATIENCE);
            for (second, who) in who.iter().enumerate() {
                backoff.on_failure(at(second as u64), who);
                prop_assert!(backoff.known.len() <= PATIENCE.remembered);
                // whoever failed just now is remembered
                prop_assert!(backoff.known.contains_key(who));
                prop_assert!(backoff.wait(at(second as u64), who) <= PATIENCE.most);
            }
        }
    }
}
