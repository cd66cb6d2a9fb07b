//! Frames that a client needs few of, and that cost more than others. For each SETTINGS or GOAWAY the library walks all
//! streams, and may wake them; each PING is answered. A head that is too long is refused by the library, with 431.

use super::frames::Kind;
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::initial_rate::{Allowance, Bucket};
use ekiden_model::units::{Span, Time};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// A client says its settings at first, and seldom again.
const SETTINGS: Allowance = Allowance { burst: 32, interval: Span::from_millis(500) };
/// Go's clients send one with each stream that they reset, while none is on its way: a hundred a second over 10 ms.
const PINGS: Allowance = Allowance { burst: 256, interval: Span::from_millis(10) };

/// Heads of requests that came and are not accepted: those of all streams at once, and some that were refused.
const HEADS: u32 = 3 * super::STREAMS;

/// Counts those of one connection.
#[derive(Debug, Default)]
pub(super) struct ControlFrames {
    /// Of settings, and of pings.
    buckets: Mutex<[Bucket; 2]>,
    /// Heads of requests that came, less those that were accepted.
    heads: AtomicU32,
    too_many: AtomicBool,
}

impl ControlFrames {
    /// A frame of this kind begins.
    pub(super) fn on_began(&self, kind: Kind, now: impl FnOnce() -> Time) {
        let (nth, allowance) = match kind {
            Kind::Settings => (0, &SETTINGS),
            Kind::Ping => (1, &PINGS),
            Kind::Fields { trailer: false, .. } => {
                if self.heads.fetch_add(1, Relaxed) >= HEADS {
                    self.too_many.store(true, Relaxed);
                }
                return;
            }
            _ => return,
        };
        if !locked(&self.buckets)[nth].takes(now(), allowance) {
            self.too_many.store(true, Relaxed);
        }
    }

    /// The library gave a request to the relay.
    pub(super) fn on_accepted(&self) {
        let one_less = |count: u32| count.checked_sub(1);
        let _ = self.heads.fetch_update(Relaxed, Relaxed, one_less);
    }

    /// Whether there were ever more than a client needs.
    pub(super) fn are_too_many(&self) -> bool {
        self.too_many.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_pings_are_too_many_above_their_rate() {
        for (kind, Allowance { burst, interval }) in
            [(Kind::Settings, SETTINGS), (Kind::Ping, PINGS)]
        {
            let control = ControlFrames::default();
            (0..burst).for_each(|_| control.on_began(kind, || Time::ZERO));
            let mut now = Time::ZERO;
            for _ in 0..1_000 {
                now += interval;
                control.on_began(kind, || now);
            }
            // a burst again, after a pause
            now += interval.saturating_mul(burst.into());
            (0..burst).for_each(|_| control.on_began(kind, || now));
            assert!(!control.are_too_many(), "{kind:?}");
            control.on_began(kind, || now);
            assert!(control.are_too_many(), "{kind:?}");
        }
    }

    #[test]
    fn heads_that_are_not_accepted_become_too_many() {
        let control = ControlFrames::default();
        let head = Kind::Fields { stream: 1, trailer: false, priority: false, whole: true };
        for _ in 0..10_000 {
            control.on_began(head, || Time::ZERO);
            control.on_accepted();
        }
        (0..HEADS).for_each(|_| control.on_began(head, || Time::ZERO));
        assert!(!control.are_too_many());
        control.on_began(head, || Time::ZERO);
        assert!(control.are_too_many());
    }

    #[test]
    fn other_frames_are_never_too_many() {
        let control = ControlFrames::default();
        for kind in [Kind::Other, Kind::Body(1)] {
            (0..10_000).for_each(|_| control.on_began(kind, || Time::ZERO));
        }
        assert!(!control.are_too_many());
    }
}
