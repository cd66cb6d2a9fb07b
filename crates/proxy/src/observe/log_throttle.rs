//! A limit on log lines about events that clients or a full disk can repeat without end.

use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::units::{Span, Time};
use std::sync::Mutex;

/// The shortest time between two lines about the same event.
const APART: Span = Span::from_secs(10);

/// The time of the last line about an event.
#[derive(Debug, Default)]
pub struct LogThrottle(Mutex<Option<Time>>);

impl LogThrottle {
    /// An event that was not logged yet.
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Whether to log the event now, at most every ten seconds. A `true` counts as logged.
    pub fn is_due(&self) -> bool {
        self.is_due_at(clock::now())
    }

    fn is_due_at(&self, now: Time) -> bool {
        let mut last = locked(&self.0);
        let due = last.is_none_or(|last| now.since(last) >= APART);
        if due {
            *last = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_a_flood_every_ten_seconds() {
        let throttle = LogThrottle::new();
        let text = (0..25).filter(|s| throttle.is_due_at(Time::ZERO + Span::from_secs(*s)));
        assert_eq!(text.collect::<Vec<_>>(), [0, 10, 20]);
    }
}
