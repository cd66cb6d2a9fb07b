//! A token bucket with loans: credit grows at a rate up to a burst; lent bytes count as present
//! until they are settled. Credit is in bits × 10⁹, as by [`crate::control::pacing::Pacer`].
//!
//! **Envelope.** Credit and loans never exceed the burst: in any interval of length τ at most rate
//! · τ / 8 + burst bytes are used, whether at the time of the loan or of the use.

use crate::units::{Rate, Span, Time};

const BYTE: u128 = 8 * 1_000_000_000;

/// How long a rate may be saved up for (algorithms/split-connections C.9).
const BURST: Span = Span::from_millis(200);

/// The smallest burst: a buffer of bytes that are looked at on their way.
pub(super) const BUFFER: u64 = 16 * 1024;

/// A turn while others wait: this much time of a rate. Shorter is smoother and costs more calls.
const TURN: Span = Span::from_millis(10);

/// Bounds of a turn, in bytes: a packet, and one copy.
const TURNS: (u64, u64) = (1_500, 64 * 1024);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bucket {
    /// Bits per second; `None`: unlimited.
    rate: Option<u64>,
    burst: u64,
    credit: u128,
    /// Used without a loan, and not covered by credit: the next that comes pays for it.
    owed: u128,
    out: u64,
    as_of: Time,
}

/// Bytes that a rate brings in a span.
fn bytes(rate: Rate, span: Span) -> u64 {
    let bits = u128::from(rate.as_bits_per_second()) * u128::from(span.as_nanos());
    u64::try_from(bits / BYTE).unwrap_or(u64::MAX)
}

impl Bucket {
    /// A full bucket with the burst that belongs to the rate.
    pub(super) fn new(rate: Option<Rate>, now: Time) -> Self {
        Self::with_burst(rate, Self::burst(rate), now)
    }

    pub(super) fn with_burst(rate: Option<Rate>, burst: u64, now: Time) -> Self {
        let credit = u128::from(burst) * BYTE;
        Self {
            rate: rate.map(Rate::as_bits_per_second),
            burst,
            credit,
            owed: 0,
            out: 0,
            as_of: now,
        }
    }

    /// The burst of a rate: 200 ms of it, at least a buffer.
    pub(super) fn burst(rate: Option<Rate>) -> u64 {
        rate.map_or(u64::MAX, |rate| bytes(rate, BURST).max(BUFFER))
    }

    /// Sets another rate. Credit is cut to the new burst; a bucket that was unlimited begins empty.
    pub(super) fn set_rate(&mut self, now: Time, rate: Option<Rate>) {
        self.set(now, rate, Self::burst(rate));
    }

    pub(super) fn set(&mut self, now: Time, rate: Option<Rate>, burst: u64) {
        let unbounded = self.rate.is_none();
        self.go_on(now);
        self.rate = rate.map(Rate::as_bits_per_second);
        self.burst = burst;
        self.credit = if unbounded { 0 } else { self.credit.min(self.room()) };
        if self.rate.is_none() {
            self.owed = 0;
        }
    }

    pub(super) fn available(&mut self, now: Time) -> u64 {
        self.go_on(now);
        match self.rate {
            None => u64::MAX,
            Some(_) => u64::try_from(self.credit / BYTE).unwrap_or(u64::MAX),
        }
    }

    /// The size of a turn while others wait, in bytes; never more than the burst.
    pub(super) fn turn(&self) -> u64 {
        let (least, most) = TURNS;
        self.rate.map_or(most, |rate| {
            bytes(Rate::from_bits_per_second(rate), TURN).clamp(least, most).min(self.burst)
        })
    }

    /// Below this, one who wants so much is not served yet: otherwise each byte would be a turn of its own.
    pub(super) fn least(&self, want: u64) -> u64 {
        want.min(self.turn())
    }

    /// When there will be so many bytes; [`Time::NEVER`] where a loan has to come back first.
    pub(super) fn when(&self, bytes: u64) -> Time {
        let Some(rate) = self.rate else { return self.as_of };
        let missing = (u128::from(bytes) * BYTE + self.owed).saturating_sub(self.credit);
        if missing == 0 {
            return self.as_of;
        }
        if rate == 0 || (bytes > 0 && bytes.saturating_add(self.out) > self.burst) {
            return Time::NEVER;
        }
        // rounded up: never early
        let nanos = u64::try_from(missing.div_ceil(u128::from(rate))).unwrap_or(u64::MAX);
        self.as_of + Span::from_nanos(nanos)
    }

    /// So many bytes, which are available, may be used.
    pub(super) fn lend(&mut self, bytes: u64) {
        self.out = self.out.saturating_add(bytes);
        if self.rate.is_some() {
            self.credit = self.credit.saturating_sub(u128::from(bytes) * BYTE);
        }
    }

    /// Settles a loan: this much was used.
    pub(super) fn settle(&mut self, now: Time, lent: u64, used: u64) {
        self.go_on(now);
        self.out = self.out.saturating_sub(lent);
        if self.rate.is_some() {
            self.gain(u128::from(lent.saturating_sub(used)) * BYTE);
        }
    }

    /// So many bytes were used that nobody asked for. What credit does not cover delays all that follows.
    pub(super) fn charge(&mut self, now: Time, bytes: u64) {
        self.go_on(now);
        if self.rate.is_some() {
            let bytes = u128::from(bytes) * BYTE;
            let paid = bytes.min(self.credit);
            self.credit -= paid;
            self.owed = self.owed.saturating_add(bytes - paid);
        }
    }

    /// When what is owed is paid.
    pub(super) fn paid_at(&mut self, now: Time) -> Time {
        self.go_on(now);
        if self.owed == 0 { now } else { self.when(0) }
    }

    pub(super) const fn lent(&self) -> u64 {
        self.out
    }

    pub(super) fn rate(&self) -> Option<Rate> {
        self.rate.map(Rate::from_bits_per_second)
    }

    /// What the bucket still takes beside what is lent.
    fn room(&self) -> u128 {
        u128::from(self.burst.saturating_sub(self.out)) * BYTE
    }

    /// Advances to `now`; an earlier time counts as the last one.
    fn go_on(&mut self, now: Time) {
        let passed = u128::from(now.since(self.as_of).as_nanos());
        self.as_of = self.as_of.max(now);
        if let Some(rate) = self.rate {
            self.gain(passed.saturating_mul(u128::from(rate)));
        }
    }

    fn gain(&mut self, bits: u128) {
        let paid = bits.min(self.owed);
        self.owed -= paid;
        self.credit = self.credit.saturating_add(bits - paid).min(self.room());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn rate(bits: u64) -> Option<Rate> {
        Some(Rate::from_bits_per_second(bits))
    }

    #[test]
    fn two_hundred_milliseconds_are_saved_and_a_buffer_at_least() {
        assert_eq!(Bucket::burst(rate(5_000_000)), 125_000);
        assert_eq!(Bucket::burst(rate(256_000)), BUFFER);
        let mut bucket = Bucket::new(rate(5_000_000), at(0));
        assert_eq!(bucket.available(at(0)), 125_000);
        assert_eq!(bucket.available(at(5_000)), 125_000, "silence saves no more");
        bucket.lend(125_000);
        bucket.settle(at(5_000), 125_000, 125_000);
        assert_eq!(bucket.available(at(5_008)), 5_000);
        assert_eq!(bucket.when(6_250), at(5_010));
    }

    #[test]
    fn loans_leave_no_further_credit() {
        let mut bucket = Bucket::new(rate(5_000_000), at(0));
        bucket.lend(100_000);
        assert_eq!(bucket.available(at(10_000)), 25_000, "as if it were still there");
        assert_eq!(bucket.when(25_001), Time::NEVER);
        bucket.settle(at(10_000), 100_000, 40_000);
        assert_eq!(bucket.available(at(10_000)), 85_000);
    }

    #[test]
    fn charged_bytes_delay_what_follows() {
        let mut bucket = Bucket::new(rate(8_000_000), at(0));
        bucket.charge(at(0), 150_000);
        bucket.charge(at(0), 100_000);
        assert_eq!((bucket.available(at(49)), bucket.when(1_000)), (0, at(51)));
        assert_eq!(bucket.available(at(51)), 1_000);
        bucket.lend(1_000);
        bucket.charge(at(51), 500);
        bucket.settle(at(51), 1_000, 0);
        assert_eq!(bucket.available(at(51)), 500, "what comes back pays, too");
        bucket.set_rate(at(51), None);
        bucket.charge(at(51), 1 << 40);
        assert_eq!(bucket.available(at(51)), u64::MAX);
    }

    #[test]
    fn lower_rate_applies_at_once() {
        let mut bucket = Bucket::new(rate(100_000_000), at(0));
        bucket.set_rate(at(1), rate(1_000_000));
        assert_eq!(bucket.available(at(1)), 25_000);
        let mut bucket = Bucket::new(None, at(0));
        assert_eq!(bucket.available(at(1)), u64::MAX);
        bucket.set_rate(at(1), rate(1_000_000));
        assert_eq!(bucket.available(at(1)), 0, "nothing was saved up without a rate");
        assert_eq!(bucket.available(at(2)), 125);
    }

    #[test]
    fn odd_rates_do_not_drift() {
        for bits in [3_000_000, 7_300_000, 999_999_937] {
            let mut bucket = Bucket::new(rate(bits), at(0));
            let first = bucket.available(at(0));
            bucket.lend(first);
            bucket.settle(at(0), first, first);
            let mut now = at(0);
            for _ in 0..100_000 {
                now = bucket.when(1_500);
                assert!(bucket.available(now) >= 1_500);
                bucket.lend(1_500);
                bucket.settle(now, 1_500, 1_500);
            }
            let exact = (100_000_u128 * 1_500 * BYTE).div_ceil(bits.into());
            assert_eq!(u128::from(now.as_nanos()), exact, "{bits}");
        }
    }

    #[test]
    fn turn_is_10_ms_between_one_packet_and_one_copy() {
        for (bits, turn) in [(8_000, 1_500), (5_000_000, 6_250), (1_000_000_000, 65_536)] {
            assert_eq!(Bucket::new(rate(bits), at(0)).turn(), turn, "{bits}");
        }
    }
}
