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

/// Heads that came, less one for each request that was accepted, and trailers likewise. A client that has all streams at
/// once comes to twice as many as there are; each head that was refused stays.
const FIELDS: u32 = 5 * super::STREAMS / 2;

/// Counts those of one connection.
#[derive(Debug, Default)]
pub(super) struct ControlFrames {
    /// Of settings, and of pings.
    buckets: Mutex<[Bucket; 2]>,
    /// See [`FIELDS`]: heads, and trailers.
    fields: [AtomicU32; 2],
    too_many: AtomicBool,
}

impl ControlFrames {
    /// A frame of this kind begins.
    pub(super) fn on_began(&self, kind: Kind, now: impl FnOnce() -> Time) {
        let (nth, allowance) = match kind {
            Kind::Settings => (0, &SETTINGS),
            Kind::Ping => (1, &PINGS),
            // those on a stream that was reset are read for nothing, too
            Kind::Fields { trailer, .. } => {
                self.fields[usize::from(trailer)].fetch_add(1, Relaxed);
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
        for count in &self.fields {
            let _ = count.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1));
        }
    }

    /// Whether there were ever more than a client needs, or refused heads have reached so many times their limit.
    pub(super) fn is_over(&self, times: u32) -> bool {
        let fields: u32 = self.fields.iter().map(|count| count.load(Relaxed)).sum();
        self.too_many.load(Relaxed) || fields >= times * FIELDS
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
            assert!(!control.is_over(1), "{kind:?}");
            control.on_began(kind, || now);
            assert!(control.is_over(1), "{kind:?}");
        }
    }

    #[test]
    fn fields_of_no_accepted_request_become_too_many() {
        let fields = |trailer| Kind::Fields { stream: 1, trailer, priority: false, whole: true };
        let control = ControlFrames::default();
        let came = |trailer| control.on_began(fields(trailer), || Time::ZERO);
        for _ in 0..100 {
            (0..super::super::STREAMS).for_each(|_| came(false));
            assert!(!control.is_over(1));
            (0..super::super::STREAMS).for_each(|_| control.on_accepted());
            (0..super::super::STREAMS).for_each(|_| came(true));
        }
        // requests that are accepted do not pay for heads that are refused
        let control = ControlFrames::default();
        for _ in 0..FIELDS {
            assert!(!control.is_over(1));
            (0..2).for_each(|_| control.on_began(fields(false), || Time::ZERO));
            control.on_accepted();
        }
        assert!(control.is_over(1));
        for trailer in [false, true] {
            let control = ControlFrames::default();
            (1..FIELDS).for_each(|_| control.on_began(fields(trailer), || Time::ZERO));
            assert!(!control.is_over(1));
            control.on_began(fields(trailer), || Time::ZERO);
            assert_eq!([1, 2].map(|times| control.is_over(times)), [true, false]);
        }
    }

    #[test]
    fn other_frames_are_never_too_many() {
        let control = ControlFrames::default();
        for kind in [Kind::Other, Kind::Body(1)] {
            (0..10_000).for_each(|_| control.on_began(kind, || Time::ZERO));
        }
        assert!(!control.is_over(1));
    }
}
