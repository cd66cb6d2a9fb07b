//! How fast packets leave: a constant rate without drift, or a recorded trace of opportunities.

use crate::units::{Bytes, Rate, Span, Time};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU64;

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

/// Mahimahi's format: each line a time in whole ms at which [`TRACE_OPPORTUNITY`] bytes may leave;
/// repeats after the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// In milliseconds, not decreasing; never empty, and the last one is not 0.
    opportunities: Arc<[u32]>,
}

impl Trace {
    /// Reads a trace file. Errors, with the line: no number, a time before the one above, no line,
    /// or an end at 0 ms.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut opportunities = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let time: u32 = line.parse().map_err(|_| {
                alloc::format!("line {}: `{line}` is not a time in whole milliseconds", at + 1)
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

    /// The rate over one whole round.
    pub fn mean_rate(&self) -> Rate {
        let bytes = Bytes::new(self.opportunities.len() as u64 * TRACE_OPPORTUNITY);
        Rate::of(bytes, self.round()).unwrap_or_default()
    }

    fn round(&self) -> Span {
        Span::from_millis(self.opportunities.last().copied().unwrap_or(1).into())
    }

    pub(super) fn times(&self) -> &[u32] {
        &self.opportunities
    }
}

/// Work is in bits × 10⁹: a rate in bit/s takes `rate` of it each ns, and only times are rounded.
const WORK_PER_BYTE: u128 = 8 * 1_000_000_000;

#[derive(Debug, Clone)]
pub(super) struct SerialiserState {
    kind: Serialiser,
    /// What the last end was rounded down by, in work; below the rate.
    remainder: u64,
    /// When the last packet's end was, rounded down; the remainder belongs to it.
    last_end: Time,
    /// Of the packet on the wire: since when it goes at the present rate, and its work at that time.
    since: Time,
    work: u128,
    /// Of a trace: when it began, the opportunity in use and what is left of it.
    begun: Time,
    cursor: Cursor,
}

#[derive(Debug, Clone, Copy)]
struct Cursor {
    opportunity: u64,
    left: u64,
}

impl Cursor {
    const START: Self = Self { opportunity: 0, left: TRACE_OPPORTUNITY };

    /// Opportunities that passed unused before `since` are lost.
    fn skip(&mut self, trace: &Trace, since: Span) {
        // whole rounds of a long silence at once
        let round = trace.round().max(Span::from_nanos(1));
        let rounds = (since.as_nanos() / round.as_nanos()).saturating_sub(1);
        let passed = rounds.saturating_mul(trace.opportunities.len() as u64);
        if passed > self.opportunity {
            *self = Self { opportunity: passed, ..Self::START };
        }
        while trace.opportunity(self.opportunity) < since {
            *self = Self { opportunity: self.opportunity + 1, ..Self::START };
        }
    }

    /// Uses up `bytes`, and says at which opportunity the last of them goes.
    fn take(&mut self, mut bytes: u64) -> u64 {
        while bytes > self.left {
            bytes -= self.left;
            *self = Self { opportunity: self.opportunity + 1, ..Self::START };
        }
        self.left -= bytes;
        let used = self.opportunity;
        if self.left == 0 {
            *self = Self { opportunity: used + 1, ..Self::START };
        }
        used
    }
}

impl SerialiserState {
    pub(super) const fn new(kind: Serialiser, now: Time) -> Self {
        Self {
            kind,
            remainder: 0,
            last_end: now,
            since: now,
            work: 0,
            begun: now,
            cursor: Cursor::START,
        }
    }

    /// When a packet that starts at `start` has left; [`Time::NEVER`] at rate 0. Rounding does not
    /// add up: a fraction of a nanosecond goes to the next packet.
    pub(super) fn end(&mut self, start: Time, bytes: Bytes) -> Time {
        let carried = if start == self.last_end { u128::from(self.remainder) } else { 0 };
        self.go(start, u128::from(bytes.as_u64()) * WORK_PER_BYTE + carried)
    }

    fn go(&mut self, start: Time, work: u128) -> Time {
        (self.since, self.work) = (start, work);
        match &self.kind {
            Serialiser::Infinite => start,
            Serialiser::Rate(rate) => {
                let rate = rate.as_bits_per_second();
                if rate == 0 {
                    return Time::NEVER;
                }
                let nanos;
                (nanos, self.remainder) = divide(work, rate);
                self.last_end = start + Span::from_nanos(nanos);
                self.last_end
            }
            Serialiser::Trace(trace) => {
                self.cursor.skip(trace, start.since(self.begun));
                let used = self.cursor.take(whole_bytes(work));
                (self.begun + trace.opportunity(used)).max(start)
            }
        }
    }

    /// Another serialiser from `now` on. Returns the new end of the packet on the wire, if any:
    /// exactly what is left of it continues.
    pub(super) fn change(&mut self, kind: Serialiser, now: Time, sending: bool) -> Option<Time> {
        let left = sending.then(|| self.left(now));
        *self = Self::new(kind, now);
        left.map(|left| self.go(now, left))
    }

    /// The work at `now` that is left of the packet on the wire.
    fn left(&self, now: Time) -> u128 {
        match &self.kind {
            Serialiser::Infinite => 0,
            Serialiser::Rate(rate) => {
                let passed = u128::from(now.since(self.since).as_nanos());
                self.work.saturating_sub(passed * u128::from(rate.as_bits_per_second()))
            }
            Serialiser::Trace(trace) => {
                // backwards from where the packet would end: what goes after `now` has not gone yet
                let (total, mut left) = (whole_bytes(self.work), 0);
                let mut at = self.cursor;
                if at.left == TRACE_OPPORTUNITY {
                    at = Cursor { opportunity: at.opportunity.saturating_sub(1), left: 0 };
                }
                while left < total && self.begun + trace.opportunity(at.opportunity) > now {
                    left += TRACE_OPPORTUNITY - at.left;
                    if at.opportunity == 0 {
                        break;
                    }
                    at = Cursor { opportunity: at.opportunity - 1, left: 0 };
                }
                u128::from(left.min(total)) * WORK_PER_BYTE
            }
        }
    }
}

/// [`SerialiserState`] at a constant rate, for a link that asks for every packet and knows itself when
/// the last one ended.
#[derive(Debug, Clone)]
pub(super) struct ConstantRate {
    rate: NonZeroU64,
    remainder: u64,
    /// What the last size came to, whole and rest: packets are mostly of one size, and dividing is slow.
    bytes: u64,
    nanos: u64,
    rest: u64,
}

impl ConstantRate {
    /// A serialiser at `rate`; `None` at 0, which never ends, and where two rests might not fit together.
    pub(super) fn new(rate: Rate) -> Option<Self> {
        let rate = NonZeroU64::new(rate.as_bits_per_second())?;
        let (remainder, bytes, nanos, rest) = (0, 0, 0, 0);
        (rate.get() <= u64::MAX / 2).then_some(Self { rate, remainder, bytes, nanos, rest })
    }

    /// As [`SerialiserState::end`], to the nanosecond; `follows`: it starts when the last one ended.
    #[inline]
    pub(super) fn end(&mut self, start: Time, follows: bool, bytes: Bytes) -> Time {
        let (rate, bytes) = (self.rate.get(), bytes.as_u64());
        if bytes != self.bytes {
            self.measure(bytes);
        }
        // both are below the rate: at most one nanosecond more, without a branch that is
        // mispredicted half the time
        let rest = self.rest + self.remainder * u64::from(follows);
        let over = u64::from(rest >= rate);
        self.remainder = rest - rate * over;
        start + Span::from_nanos(self.nanos.saturating_add(over))
    }

    #[cold]
    fn measure(&mut self, bytes: u64) {
        self.bytes = bytes;
        (self.nanos, self.rest) = divide(u128::from(bytes) * WORK_PER_BYTE, self.rate.get());
    }
}

/// Quotient and remainder; nearly all work fits into 64 bits, whose division takes a fraction of the time.
fn divide(work: u128, rate: u64) -> (u64, u64) {
    match u64::try_from(work) {
        Ok(work) => (work / rate, work % rate),
        Err(_) => {
            let rate = u128::from(rate);
            (u64::try_from(work / rate).unwrap_or(u64::MAX), (work % rate) as u64)
        }
    }
}

/// A trace takes whole bytes: a part of one is sent as one.
fn whole_bytes(work: u128) -> u64 {
    u64::try_from(work.div_ceil(WORK_PER_BYTE)).unwrap_or(u64::MAX)
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

    #[test]
    fn skips_a_long_silence_exactly() {
        let trace = Trace::parse("1\n2\n2\n5\n").unwrap();
        for late in (0..60).map(|n| Span::from_micros(n * 500)) {
            let mut step = Cursor::START;
            while trace.opportunity(step.opportunity) < late {
                step = Cursor { opportunity: step.opportunity + 1, ..Cursor::START };
            }
            let mut jump = Cursor::START;
            jump.skip(&trace, late);
            assert_eq!(jump.opportunity, step.opportunity, "{late}");
        }
    }

    /// A packet of 3,000 bytes that has gone half way by one serialiser, and then goes by another.
    #[test]
    fn partially_sent_packet_survives_a_serialiser_change() {
        let ms = |n| Time::ZERO + Span::from_millis(n);
        let rate = |bits| Serialiser::Rate(Rate::from_bits_per_second(bits));
        let trace = || Serialiser::Trace(Trace::parse("1\n2\n3\n4\n").unwrap());
        let begin = |kind| {
            let mut state = SerialiserState::new(kind, Time::ZERO);
            state.end(Time::ZERO, Bytes::new(3_000));
            state
        };
        // 24,000 bits at 12 Mbit/s take 2 ms: at 1 ms 1,500 bytes are left
        let mut half = begin(rate(12_000_000));
        assert_eq!(half.change(rate(0), ms(1), true), Some(Time::NEVER));
        assert_eq!(half.change(rate(0), ms(7), true), Some(Time::NEVER));
        assert_eq!(half.change(rate(6_000_000), ms(10), true), Some(ms(12)));
        let mut half = begin(rate(12_000_000));
        let end = half.change(trace(), ms(1), true);
        assert_eq!(end, Some(ms(2)), "the first line of the new trace");
        // 1,504 of them pass at 1 ms, 1,496 are left
        let mut half = begin(trace());
        let end = half.change(rate(1_496 * 8 * 1_000), ms(1), true);
        assert_eq!(end, Some(ms(2)));
        // 900 bytes of another packet share the first opportunity
        let mut second = SerialiserState::new(trace(), Time::ZERO);
        second.end(Time::ZERO, Bytes::new(900));
        assert_eq!(second.end(ms(1), Bytes::new(3_000)), ms(3));
        let end = second.change(rate((3_000 - 604 - 1_504) * 8 * 1_000), ms(2), true);
        assert_eq!(end, Some(ms(3)));
        // nothing has gone of what began stopped
        let mut stopped = begin(rate(0));
        assert_eq!(stopped.change(rate(24_000_000), ms(5), true), Some(ms(6)));
        assert_eq!(begin(rate(1)).change(Serialiser::Infinite, ms(5), true), Some(ms(5)));
        assert_eq!(begin(rate(1)).change(Serialiser::Infinite, ms(5), false), None);
    }
}
