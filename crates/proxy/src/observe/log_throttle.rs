//! A limit on log lines about events that clients or a full disk can repeat without end.

use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::units::{Span, Time};
use std::sync::Mutex;

/// The shortest time between two lines about the same event.
const APART: Span = Span::from_secs(10);

/// The time of the last line about an event, and how many events since then have none.
#[derive(Debug, Default)]
pub struct LogThrottle(Mutex<(Option<Time>, u64)>);

impl LogThrottle {
    /// An event that was not logged yet.
    pub const fn new() -> Self {
        Self(Mutex::new((None, 0)))
    }

    /// Whether to log the event now, at most every ten seconds. A `true` counts as logged.
    pub fn is_due(&self) -> bool {
        self.due().is_some()
    }

    /// The same, with how many events were left out since the last line; `None`: no line now.
    pub(crate) fn due(&self) -> Option<u64> {
        self.due_at(clock::now())
    }

    fn due_at(&self, now: Time) -> Option<u64> {
        let mut state = locked(&self.0);
        let (last, left_out) = &mut *state;
        if last.is_some_and(|last| now.since(last) < APART) {
            *left_out = left_out.saturating_add(1);
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(left_out))
    }
}

/// Kinds of refused requests that have a line.
const REFUSALS: usize = 4;

/// When each kind of refusal was in the log last.
#[derive(Debug, Default)]
pub(crate) struct RefusalLines {
    /// Clients refused before they ask for anything: those without an account, and those of one or of a peer. A scanner's
    /// refusals hide none of these.
    pub(crate) door: [LogThrottle; 2],
    /// Requests and datagrams of the same.
    pub(crate) requests: [[LogThrottle; REFUSALS]; 2],
    /// Log-ins with a wrong user or password.
    pub(crate) wrong_log_ins: LogThrottle,
    /// Log-ins whose password was not checked, because too many wrong ones came before.
    pub(crate) late_log_ins: LogThrottle,
    /// Log-ins whose password crossed the network in cleartext.
    pub(crate) in_the_clear: LogThrottle,
}

/// How many events a line stands for besides its own, in words that follow others.
pub(crate) fn left_out_in_words(left_out: u64) -> String {
    match left_out {
        0 => String::new(),
        n => format!("; {n} more since the last such line"),
    }
}

/// Reads log lines, for tests.
#[cfg(test)]
pub(crate) mod counting {
    use ekiden_linux::host::sync::locked;
    use std::fmt::{Debug, Write as _};
    use std::sync::{Arc, Mutex};
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    #[derive(Clone)]
    struct Lines {
        level: Level,
        said: Arc<Mutex<Vec<String>>>,
    }

    /// Each field as `name=value` and a space.
    struct Text(String);

    impl Visit for Text {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            let _never_fails = write!(self.0, "{}={value:?} ", field.name());
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, about: &Metadata<'_>) -> bool {
            *about.level() <= self.level
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            let mut text = Text(String::new());
            event.record(&mut text);
            locked(&self.said).push(text.0);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// The lines of this level or above that `work` makes in this thread.
    pub(crate) fn said(level: Level, work: impl FnOnce()) -> Vec<String> {
        let lines = Lines { level, said: Arc::default() };
        // while there is one subscriber, what other threads without one say first is thought to interest nobody
        let _second = tracing::Dispatch::new(lines.clone());
        tracing::subscriber::with_default(lines.clone(), work);
        std::mem::take(&mut *locked(&lines.said))
    }

    /// How many lines of level `info` or above `work` makes in this thread.
    pub(crate) fn lines_of(work: impl FnOnce()) -> usize {
        said(Level::INFO, work).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_a_flood_every_ten_seconds() {
        let throttle = LogThrottle::new();
        let due = |s: u64| Some((s, throttle.due_at(Time::ZERO + Span::from_secs(s))?));
        // with how many were left out
        assert_eq!((0..25).filter_map(due).collect::<Vec<_>>(), [(0, 0), (10, 9), (20, 9)]);
    }
}
