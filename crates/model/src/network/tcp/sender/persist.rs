//! Window probes, because the announcement that a small window has opened can be lost.

use super::Sender;
use crate::network::tcp::{Reason, Segment};
use crate::units::{Span, Time};

/// No two probes are further apart: as time-outs (RFC 6298 §2.5).
const MOST: Span = Span::from_secs(60);

/// The persist timer (RFC 9293 §3.8.6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Persist {
    due: Time,
    /// Probes since the window was last worth a segment.
    probes: u32,
}

impl Default for Persist {
    fn default() -> Self {
        Self { due: Time::NEVER, probes: 0 }
    }
}

impl Persist {
    pub(super) const fn deadline(&self) -> Time {
        self.due
    }
}

impl Sender {
    /// The segment that goes anyway; or, after a time-out with nothing outstanding and a window too
    /// small for what waits, what it takes, at least a byte. Probes without effect double their
    /// interval. (A receiver with no room would not keep that byte; this one does.)
    pub(super) fn or_probe(&mut self, now: Time, segment: Option<Segment>) -> Option<Segment> {
        let Some(persist) = &mut self.persist else { return segment };
        if segment.is_some() || self.una < self.max {
            // what is outstanding may be a probe, whose answer is still to come
            if segment.is_some() {
                persist.probes = 0;
            }
            persist.due = Time::NEVER;
            return segment;
        }
        let wanted = (self.end - self.max).min(self.chunk());
        let Some(persist) = &mut self.persist else { return segment };
        if wanted == 0 || self.peer_window >= wanted {
            *persist = Persist::default();
            return segment;
        }
        if persist.due == Time::NEVER {
            let wait = self.rto.timeout().saturating_mul(1 << persist.probes.min(6)).min(MOST);
            persist.due = now + wait;
        }
        if persist.due > now {
            return None;
        }
        persist.due = Time::NEVER;
        persist.probes += 1;
        let len = self.peer_window.clamp(1, wanted) as u32;
        Some(Segment { start: self.max, len, reason: Reason::New, reduced: false })
    }
}
