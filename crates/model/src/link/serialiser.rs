//! How fast packets leave: a constant rate without drift, or a recorded trace of opportunities.

use crate::units::{Bytes, Rate, Span, Time};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Bytes that one line of a trace lets through (Mahimahi's MTU).
pub const TRACE_OPPORTUNITY: u64 = 1504;

/// How fast packets leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Serialiser {
    /// At once.
    Infinite,
    /// At a constant rate; 0 means never.
    Rate(Rate),
    /// By a trace.
    Trace(Trace),
}

/// A trace in Mahimahi's format: each line is a time in whole milliseconds at which
/// [`TRACE_OPPORTUNITY`] bytes may leave; the whole is repeated after the last line's time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// In milliseconds, not decreasing; never empty, and the last one is not 0.
    opportunities: Arc<[u32]>,
}

impl Trace {
    /// Reads the text of a trace file.
    ///
    /// # Errors
    /// In words, with the line: not a number, a time before the one above, an empty trace, or one
    /// that ends at 0 ms.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut opportunities = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let time: u32 = line.parse().map_err(|_| {
                alloc::format!("line {}: «{line}» is not a time in whole milliseconds", at + 1)
            })?;
            if opportunities.last().is_some_and(|before| *before > time) {
                return Err(alloc::format!("line {}: {time} ms is before the line above", at + 1));
            }
            opportunities.push(time);
        }
        match opportunities.last() {
            None => Err("the trace has no lines; write one time in milliseconds a line".into()),
            Some(0) => Err("the trace ends at 0 ms, so it cannot be repeated".into()),
            Some(_) => Ok(Self { opportunities: opportunities.into() }),
        }
    }

    /// The time of the n-th opportunity since the trace began.
    fn opportunity(&self, n: u64) -> Span {
        let length = self.opportunities.len() as u64;
        let period = u64::from(self.opportunities.last().copied().unwrap_or(1));
        let within = self.opportunities[(n % length) as usize];
        Span::from_millis((n / length).saturating_mul(period).saturating_add(within.into()))
    }

    /// The rate over one whole period.
    #[must_use]
    pub fn mean_rate(&self) -> Rate {
        let period = Span::from_millis(self.opportunities.last().copied().unwrap_or(1).into());
        let bytes = Bytes::new(self.opportunities.len() as u64 * TRACE_OPPORTUNITY);
        Rate::of(bytes, period).unwrap_or_default()
    }
}

#[derive(Debug, Clone)]
pub(super) struct SerialiserState {
    kind: Serialiser,
    /// Nanoseconds × rate that the last end was rounded down by, in bits·ns/s; below the rate.
    remainder: u64,
    /// When the last packet's end was, rounded down; the remainder belongs to it.
    last_end: Time,
    /// Of a trace: when it began, the opportunity in use and what is left of it.
    begun: Time,
    used: u64,
    left: u64,
}

impl SerialiserState {
    pub(super) const fn new(kind: Serialiser, now: Time) -> Self {
        Self { kind, remainder: 0, last_end: now, begun: now, used: 0, left: 0 }
    }

    /// When a packet that starts at `start` has left. Back-to-back packets do not drift: the part of a
    /// nanosecond that one end is rounded down by goes to the next packet.
    pub(super) fn end(&mut self, start: Time, bytes: Bytes) -> Time {
        match &self.kind {
            Serialiser::Infinite => start,
            Serialiser::Rate(rate) => {
                let rate = u128::from(rate.as_bits_per_second());
                if rate == 0 {
                    return Time::NEVER;
                }
                let carried = if start == self.last_end { u128::from(self.remainder) } else { 0 };
                let work = u128::from(bytes.as_u64()) * 8 * 1_000_000_000 + carried;
                let nanos = u64::try_from(work / rate).unwrap_or(u64::MAX);
                self.remainder = (work % rate) as u64;
                self.last_end = start + Span::from_nanos(nanos);
                self.last_end
            }
            Serialiser::Trace(trace) => {
                let since = start.since(self.begun);
                // opportunities that passed unused are lost
                if trace.opportunity(self.used) < since || self.left == 0 {
                    while trace.opportunity(self.used) < since {
                        self.used += 1;
                        self.left = TRACE_OPPORTUNITY;
                    }
                    if self.left == 0 {
                        self.left = TRACE_OPPORTUNITY;
                    }
                }
                let mut wanted = bytes.as_u64();
                while wanted > self.left {
                    wanted -= self.left;
                    self.used += 1;
                    self.left = TRACE_OPPORTUNITY;
                }
                self.left -= wanted;
                let end = self.begun + trace.opportunity(self.used);
                if self.left == 0 {
                    self.used += 1;
                    self.left = TRACE_OPPORTUNITY;
                }
                end.max(start)
            }
        }
    }

    /// Another serialiser from `now` on. Says when the packet on the wire, which would have ended at
    /// `end`, ends now: what is left of it goes at the new rate.
    pub(super) fn change(
        &mut self,
        kind: Serialiser,
        now: Time,
        end: Option<Time>,
    ) -> Option<Time> {
        let before = core::mem::replace(self, Self::new(kind, now)).kind;
        let end = end?;
        let left = match before {
            Serialiser::Rate(rate) if end != Time::NEVER => {
                let bits =
                    u128::from(end.since(now).as_nanos()) * u128::from(rate.as_bits_per_second());
                Bytes::new(u64::try_from(bits.div_ceil(8_000_000_000)).unwrap_or(u64::MAX))
            }
            // a stopped link or a trace does not say how much is left: the packet is sent whole
            _ => Bytes::new(TRACE_OPPORTUNITY),
        };
        Some(self.end(now, left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_rates_do_not_drift() {
        for bits in [3_000_000, 7_300_000, 999_999_937] {
            let rate = Rate::from_bits_per_second(bits);
            let mut state = SerialiserState::new(Serialiser::Rate(rate), Time::ZERO);
            let mut now = Time::ZERO;
            for _ in 0..100_000 {
                now = state.end(now, Bytes::new(1500));
            }
            let exact = 100_000_u128 * 1500 * 8 * 1_000_000_000 / u128::from(bits);
            assert_eq!(u128::from(now.as_nanos()), exact, "{rate}");
        }
    }

    #[test]
    fn a_trace_lets_a_packet_through_at_each_line_and_repeats() {
        let trace = Trace::parse("# two in 10 ms\n5\n10\n").unwrap();
        assert_eq!(trace.mean_rate(), Rate::from_bits_per_second(2 * 1504 * 800));
        let mut state = SerialiserState::new(Serialiser::Trace(trace), Time::ZERO);
        let mut ends = Vec::new();
        let mut now = Time::ZERO;
        for _ in 0..5 {
            now = state.end(now, Bytes::new(1504));
            ends.push(now.as_nanos() / 1_000_000);
        }
        assert_eq!(ends, [5, 10, 15, 20, 25]);
    }

    #[test]
    fn opportunities_nobody_used_are_gone() {
        let trace = Trace::parse("1\n2\n3\n4\n").unwrap();
        let mut state = SerialiserState::new(Serialiser::Trace(trace), Time::ZERO);
        let late = Time::ZERO + Span::from_micros(2_500);
        assert_eq!(state.end(late, Bytes::new(1504)), Time::ZERO + Span::from_millis(3));
    }

    #[test]
    fn traces_are_refused_with_their_line() {
        for (text, part) in
            [("", "no lines"), ("5\nx\n", "line 2"), ("5\n4\n", "line 2"), ("0\n", "0 ms")]
        {
            assert!(Trace::parse(text).unwrap_err().contains(part), "{text:?}");
        }
    }
}
