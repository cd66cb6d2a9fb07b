//! The share of handshakes lost recently.

use crate::units::{Share, Span, Time};

/// A new leg's estimate, below [`super::LEAST_LOSS`]: no extra SYN before a handshake was lost.
pub const PRIOR: Share = match Share::from_parts_per_billion(5_000_000) {
    Some(share) => share,
    None => Share::NONE,
};

/// Its weight in handshakes: a loss among the first ten gives 5 to 10 %, below 1 % after 100 clean.
pub const PRIOR_WEIGHT: u64 = 10;

/// "Lately" is this window and the one before.
const WINDOW: Span = Span::from_secs(300);

/// Most handshakes of a window; half are forgotten then, so that a change shows after a few
/// hundred.
const MOST: u32 = 256;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    seen: u32,
    lost: u32,
}

/// Handshakes of the last five to ten minutes, and how many of their first SYNs got no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    began: Time,
    now: Counts,
    before: Counts,
}

impl Loss {
    /// Nothing seen.
    pub const fn new(now: Time) -> Self {
        let none = Counts { seen: 0, lost: 0 };
        Self { began: now, now: none, before: none }
    }

    /// A handshake ended.
    pub fn on_handshake(&mut self, now: Time, lost: bool) {
        let passed = now.since(self.began);
        if passed >= WINDOW {
            let next = passed < WINDOW.saturating_mul(2);
            self.before = if next { self.now } else { Counts::default() };
            self.now = Counts::default();
            self.began = now;
        }
        if self.now.seen >= MOST {
            self.now = Counts { seen: self.now.seen / 2, lost: self.now.lost / 2 };
        }
        self.now.seen += 1;
        self.now.lost += u32::from(lost);
    }

    /// The share lost lately, as it was; `None` where nothing was seen.
    pub fn seen(&self, now: Time) -> Option<Share> {
        let (seen, lost) = self.lately(now);
        let parts = (lost * Share::ALL.as_parts_per_billion()).checked_div(seen)?;
        Share::from_parts_per_billion(parts)
    }

    /// The share lost lately; `prior` counts as if seen of [`PRIOR_WEIGHT`] handshakes.
    pub fn share(&self, now: Time, prior: Share) -> Share {
        let (seen, lost) = self.lately(now);
        let whole = Share::ALL.as_parts_per_billion();
        let parts = lost * whole + PRIOR_WEIGHT * prior.as_parts_per_billion();
        // no more are lost than seen, so this is a share
        Share::from_parts_per_billion(parts / (seen + PRIOR_WEIGHT)).unwrap_or(Share::ALL)
    }

    /// How many were seen in both windows, and how many of them lost.
    fn lately(&self, now: Time) -> (u64, u64) {
        let passed = now.since(self.began);
        let windows = match passed {
            passed if passed < WINDOW => [self.now, self.before],
            passed if passed < WINDOW.saturating_mul(2) => [self.now, Counts::default()],
            _ => [Counts::default(); 2],
        };
        let sum = |of: fn(&Counts) -> u32| windows.iter().map(|c| u64::from(of(c))).sum::<u64>();
        (sum(|counts| counts.seen), sum(|counts| counts.lost))
    }
}

#[cfg(test)]
mod tests {
    use super::super::LEAST_LOSS;
    use super::*;

    fn at(secs: u64) -> Time {
        Time::ZERO + Span::from_secs(secs)
    }

    #[test]
    fn hundred_clean_handshakes_outweigh_a_loss() {
        let mut loss = Loss::new(at(0));
        assert_eq!((loss.share(at(0), PRIOR), loss.seen(at(0))), (PRIOR, None));
        loss.on_handshake(at(1), true);
        assert_eq!(loss.seen(at(1)), Some(Share::ALL));
        assert_eq!(loss.share(at(1), PRIOR).as_parts_per_billion(), 1_050_000_000 / 11);
        let mut clean = 0;
        while loss.share(at(1), PRIOR) >= LEAST_LOSS {
            loss.on_handshake(at(1), false);
            clean += 1;
        }
        assert!((90..=100).contains(&clean), "{clean}");
        let raw = loss.seen(at(1)).unwrap().as_parts_per_billion();
        assert_eq!(raw, 1_000_000_000 / (1 + clean));
    }

    #[test]
    fn ten_minutes_later_it_is_forgotten() {
        let mut loss = Loss::new(at(0));
        loss.on_handshake(at(0), true);
        loss.on_handshake(at(301), false);
        assert!(loss.share(at(302), PRIOR) > LEAST_LOSS, "it is in the window before");
        assert!(loss.share(at(601), PRIOR) < LEAST_LOSS);
        loss.on_handshake(at(301 + 601), true);
        assert_eq!(loss.before, Counts::default());
        assert_eq!((loss.share(at(5_000), PRIOR), loss.seen(at(5_000))), (PRIOR, None));
        // a window begins when it is needed, so data after the first is kept
        let mut later = Loss::new(at(0));
        later.on_handshake(at(0), false);
        later.on_handshake(at(301), true);
        assert!(later.share(at(650), PRIOR) > LEAST_LOSS);
    }

    #[test]
    fn busy_destination_shows_changes_soon() {
        let mut loss = Loss::new(at(0));
        for _ in 0..100_000 {
            loss.on_handshake(at(0), false);
        }
        for nth in 0..300 {
            loss.on_handshake(at(0), nth % 10 == 0);
        }
        assert!(loss.share(at(0), PRIOR) > "5 %".parse().unwrap());
    }
}
