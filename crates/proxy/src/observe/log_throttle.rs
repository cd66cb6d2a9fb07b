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

/// Counts log lines, for tests.
#[cfg(test)]
pub(crate) mod counting {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    #[derive(Clone, Default)]
    struct Lines(Arc<AtomicUsize>);

    impl Subscriber for Lines {
        fn enabled(&self, about: &Metadata<'_>) -> bool {
            *about.level() <= Level::INFO
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Relaxed);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// How many lines of level `info` or above `work` makes in this thread.
    pub(crate) fn lines_of(work: impl FnOnce()) -> usize {
        let lines = Lines::default();
        tracing::subscriber::with_default(lines.clone(), work);
        lines.0.load(Relaxed)
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
