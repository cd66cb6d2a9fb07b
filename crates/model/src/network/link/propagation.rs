//! When a packet that has left arrives: a fixed delay, and jitter that reorders only where asked.

use crate::rng::Rng;
use crate::units::{Span, Time};

#[derive(Debug, Clone)]
pub(super) struct Propagation {
    pub(super) delay: Span,
    jitter: Span,
    reorder: bool,
    last_due: Time,
    rng: Rng,
}

impl Propagation {
    pub(super) const fn new(delay: Span, jitter: Span, reorder: bool, rng: Rng, now: Time) -> Self {
        Self { delay, jitter, reorder, last_due: now, rng }
    }

    /// The arrival of what left at `departed`.
    pub(super) fn due(&mut self, departed: Time) -> Time {
        let jitter = match self.jitter.as_nanos() {
            0 => Span::ZERO,
            most => Span::from_nanos(self.rng.below(most.saturating_add(1))),
        };
        let due = departed + self.delay + jitter;
        if self.reorder {
            return due;
        }
        self.last_due = self.last_due.max(due);
        self.last_due
    }
}
