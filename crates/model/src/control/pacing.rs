//! Pacing: when packets may leave to keep a rate; exact, without drift, and with bounded credit
//! (algorithms/satellite E.4).
//!
//! ```text
//! next(now)             when the next packet may leave; no deadline(), because credit grows with now
//! together(now)         when as many as permitted may leave at once, if that is soon
//! on_sent(now, bytes)   a packet was handed over
//! left(now)             the last packets left by now, perhaps later than planned
//! set_rate(now, rate)   from here on; outstanding debt is paid at the new rate
//! ```
//! Work is in bits × 10⁹, so a rate in bit/s removes `rate` of it each nanosecond and only returned
//! times are rounded.
//!
//! **Envelope.** In any interval of length τ at most rate · τ / 8 + slack + one packet leave. Slack
//! is the credit for catching up after a late wake-up; after silence it is all the credit there is.

use crate::units::{Bytes, Rate, Span, Time};

const BYTE: i128 = 8 * 1_000_000_000;
/// From this rate on a burst is counted in time and no longer in packets: E.4's 200 Mbit/s.
const FAST: u64 = 200_000_000;
/// A burst's length there: E.4's 100 µs, as rates a second.
const BURSTS_A_SECOND: u64 = 10_000;
/// Where 100 µs are fewer bytes, a burst grows with the square of the rate up to these: what the kernel takes as one
/// (64 KiB with heads). TCP's own bursts there are a millisecond's worth, up to the same (tcp_tso_autosize in Linux).
const AS_ONE: u64 = 60_000;
/// Up to [`FAST`], packets that may leave within so long leave together.
const TOGETHER: Span = Span::from_micros(100);

/// A schedule at a rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pacer {
    rate: u64,
    slack: i128,
    /// The time at which `work` was computed.
    as_of: Time,
    /// Debt if positive, credit if negative.
    work: i128,
    /// What of it came at `as_of`.
    fresh: i128,
}

impl Pacer {
    /// A schedule on which a packet may leave at once. A rate of 0 lets nothing leave.
    pub fn new(rate: Rate, slack: Bytes, now: Time) -> Self {
        Self {
            rate: rate.as_bits_per_second(),
            slack: i128::from(slack.as_u64()) * BYTE,
            as_of: now,
            work: 0,
            fresh: 0,
        }
    }

    /// E.4's credit for catching up: two packets up to 200 Mbit/s, 100 µs' worth there, and above as much as the kernel
    /// sends as one.
    pub fn slack(rate: Rate, packet: Bytes) -> Bytes {
        let packet = packet.as_u64();
        let rate = rate.as_bits_per_second();
        if rate <= FAST {
            return Bytes::new(packet);
        }
        let in_time = (rate / 8).div_ceil(BURSTS_A_SECOND);
        let squared = u128::from(in_time) * u128::from(rate) / u128::from(FAST);
        let as_one = u64::try_from(squared).unwrap_or(u64::MAX).min(AS_ONE);
        Bytes::new(in_time.max(as_one).max(2 * packet) - packet)
    }

    /// When the next packet may leave: not before `now`, and [`Time::NEVER`] at rate 0.
    pub fn next(&self, now: Time) -> Time {
        if self.rate == 0 {
            return Time::NEVER;
        }
        let owed = u128::try_from(self.work).unwrap_or(0);
        // rounded up: never early
        let nanos = u64::try_from(owed.div_ceil(u128::from(self.rate))).unwrap_or(u64::MAX);
        Time::from_nanos(self.as_of.as_nanos().saturating_add(nanos)).max(now)
    }

    /// When as many packets may leave together as slack allows, if that is soon after the next may; otherwise when the
    /// next may. It spares wake-ups, from some 120 Mbit/s on.
    pub fn together(&self, now: Time) -> Time {
        let next = self.next(now);
        let whole = u128::try_from(self.slack + self.work).unwrap_or(0);
        let nanos = whole.checked_div(u128::from(self.rate)).unwrap_or(u128::MAX);
        let whole = self.as_of.as_nanos().saturating_add(u64::try_from(nanos).unwrap_or(u64::MAX));
        let whole = Time::from_nanos(whole).max(now);
        let soon = self.rate > FAST || whole.since(next) <= TOGETHER;
        if soon { whole.max(next) } else { next }
    }

    /// Whether [`Pacer::together`] is as far as slack goes.
    pub fn leaves_together(&self) -> bool {
        self.rate > FAST || self.slack <= i128::from(TOGETHER.as_nanos()) * i128::from(self.rate)
    }

    /// A packet of so many bytes, as the rate counts them, left now.
    pub fn on_sent(&mut self, now: Time, bytes: Bytes) {
        self.go_on(now);
        let work = i128::from(bytes.as_u64()) * BYTE;
        self.work += work;
        self.fresh += work;
    }

    /// The last packets left by now, not when they were taken, so that the envelope holds for
    /// actual departures. Only the first call counts.
    pub fn left(&mut self, now: Time) {
        let fresh = core::mem::take(&mut self.fresh);
        self.work -= fresh;
        self.go_on(now);
        self.work += fresh;
    }

    /// Another rate and slack from now on.
    pub fn set_rate(&mut self, now: Time, rate: Rate, slack: Bytes) {
        self.go_on(now);
        self.rate = rate.as_bits_per_second();
        self.slack = i128::from(slack.as_u64()) * BYTE;
        self.work = self.work.max(-self.slack);
    }

    /// The rate kept.
    pub const fn rate(&self) -> Rate {
        Rate::from_bits_per_second(self.rate)
    }

    /// Advances to `now`; an earlier time counts as the last one.
    fn go_on(&mut self, now: Time) {
        if now > self.as_of {
            self.fresh = 0;
        }
        let passed = i128::from(now.since(self.as_of).as_nanos());
        self.as_of = self.as_of.max(now);
        self.work = (self.work - passed * i128::from(self.rate)).max(-self.slack);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    const PACKET: Bytes = Bytes::new(1500);

    fn rate(bits: u64) -> Rate {
        Rate::from_bits_per_second(bits)
    }

    fn at(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    /// E.4's spacing of packets of 1,500 bytes.
    #[test]
    fn packets_are_apart_as_far_as_they_should_be() {
        for (bits, apart) in [
            (500_000, 24_000_000),
            (1_500_000, 8_000_000),
            (4_000_000, 3_000_000),
            (50_000_000, 240_000),
            (700_000_000, 17_143),
            (1_000_000_000, 12_000),
        ] {
            let mut pacer = Pacer::new(rate(bits), Bytes::new(0), at(0));
            assert_eq!(pacer.next(at(0)), at(0));
            pacer.on_sent(at(0), PACKET);
            assert_eq!(pacer.next(at(0)), at(apart), "{bits}");
        }
    }

    #[test]
    fn odd_rates_do_not_drift() {
        for bits in [3_000_000, 7_300_000, 999_999_937] {
            let mut pacer = Pacer::new(rate(bits), PACKET, at(0));
            let mut now = at(0);
            for _ in 0..100_000 {
                pacer.on_sent(now, PACKET);
                now = pacer.next(now);
            }
            let exact = (100_000_u128 * 1500 * BYTE as u128).div_ceil(bits.into());
            // each packet leaves up to a nanosecond late, and none of it is lost
            assert_eq!(u128::from(now.as_nanos()), exact, "{bits}");
        }
    }

    #[test]
    fn late_packets_are_caught_up_within_slack() {
        let mut pacer = Pacer::new(rate(12_000_000), PACKET, at(0));
        let ms = |n: u64| at(n * 1_000_000);
        pacer.on_sent(ms(0), PACKET);
        assert_eq!(pacer.next(ms(0)), ms(1));
        // half a packet late: the next one is due on the old schedule
        pacer.on_sent(at(1_500_000), PACKET);
        assert_eq!(pacer.next(at(1_500_000)), ms(2));
        // ten packets late: one of them is caught up with
        pacer.on_sent(ms(12), PACKET);
        assert_eq!(pacer.next(ms(12)), ms(12));
        pacer.on_sent(ms(12), PACKET);
        assert_eq!(pacer.next(ms(12)), ms(13));
    }

    #[test]
    fn reports_late_departures_once() {
        let ms = |n: u64| at(n * 1_000_000);
        let mut pacer = Pacer::new(rate(12_000_000), PACKET, at(0));
        // two were taken, and left three packets' time later: as if sent then, and no credit is left of before
        pacer.on_sent(ms(0), PACKET);
        pacer.on_sent(ms(0), PACKET);
        assert_eq!(pacer.next(ms(0)), ms(2));
        pacer.left(ms(3));
        assert_eq!(pacer.next(ms(3)), ms(4));
        // others' packets leave later
        pacer.left(at(3_500_000));
        assert_eq!(pacer.next(ms(3)), ms(4));
        pacer.left(ms(9));
        assert_eq!(pacer.next(ms(9)), ms(9));
    }

    #[test]
    fn two_leave_together_where_they_follow_each_other_soon() {
        for (megabits, packets) in
            [(20, 1), (100, 1), (120, 2), (200, 2), (400, 6), (1_000, 40), (10_000, 83)]
        {
            let rate = rate(megabits * 1_000_000);
            let mut pacer = Pacer::new(rate, Pacer::slack(rate, PACKET), at(0));
            let (mut now, mut sent) = (at(0), 0_u64);
            while sent < 10_000 {
                now = pacer.together(now);
                let mut burst = 0;
                while pacer.next(now) <= now {
                    pacer.on_sent(now, PACKET);
                    burst += 1;
                }
                sent += burst;
                // the first ones have credit of before
                assert!(burst == packets || sent == burst, "{megabits}: {burst}");
            }
            // as fast as one by one, but for a burst at either end
            let exact = sent * 12_000_000 / megabits;
            let off = now.as_nanos().abs_diff(exact);
            assert!(off <= (packets + 1) * 12_000_000 / megabits, "{megabits}: {off}");
        }
    }

    #[test]
    fn debt_is_paid_at_the_new_rate() {
        let mut pacer = Pacer::new(rate(12_000_000), PACKET, at(0));
        pacer.on_sent(at(0), PACKET);
        pacer.set_rate(at(500_000), rate(0), PACKET);
        assert_eq!(pacer.next(at(500_000)), Time::NEVER);
        // half a packet is left, whenever it goes on
        pacer.set_rate(at(9_000_000), rate(6_000_000), PACKET);
        assert_eq!(pacer.next(at(9_000_000)), at(10_000_000));
        assert_eq!(pacer.rate(), rate(6_000_000));
    }

    #[test]
    fn slack_is_a_packet_and_on_fast_links_a_time() {
        assert_eq!(Pacer::slack(rate(4_000_000), PACKET), PACKET);
        assert_eq!(Pacer::slack(rate(200_000_000), PACKET), PACKET);
        assert_eq!(Pacer::slack(rate(400_000_000), PACKET), Bytes::new(10_000 - 1_500));
        assert_eq!(Pacer::slack(rate(1_000_000_000), PACKET), Bytes::new(60_000 - 1_500));
        assert_eq!(Pacer::slack(rate(10_000_000_000), PACKET), Bytes::new(125_000 - 1_500));
    }

    proptest! {
        /// Whatever the driver's lateness, what holds it up before a packet leaves, and the changes of rate.
        #[test]
        fn the_envelope_is_never_left(
            steps in prop::collection::vec(
                (
                    (
                        prop_oneof![Just(0), 0_u64..3_000_000],
                        prop::option::weighted(0.5, 0_u64..3_000_000),
                    ),
                    40_u64..=1_500,
                    prop::option::weighted(0.1, 0_u64..50_000_000),
                ),
                1..200,
            ),
            slack in prop_oneof![0_u64..2_000, 0_u64..10_000],
        ) {
            let slack = Bytes::new(slack);
            let mut pacer = Pacer::new(rate(10_000_000), slack, at(0));
            let mut now = at(0);
            // (when, bytes sent so far before it, bits × 10⁹ that the rate allowed so far)
            let mut sent: Vec<(u64, u128)> = Vec::new();
            let mut allowed = 0_u128;
            let mut current = 10_000_000_u64;
            for ((late, held_up), bytes, change) in steps {
                let due = pacer.next(now);
                let then = if due == Time::NEVER { now + Span::from_millis(1) } else { due + Span::from_nanos(late) };
                allowed += u128::from(then.since(now).as_nanos()) * u128::from(current);
                now = then;
                if due != Time::NEVER {
                    prop_assert!(pacer.next(now) <= now);
                    pacer.on_sent(now, Bytes::new(bytes));
                    // it leaves half-way
                    let half = Span::from_nanos(held_up.unwrap_or(0) / 2);
                    let gives = u128::from(half.as_nanos()) * u128::from(current);
                    sent.push((bytes, allowed + gives));
                    allowed += 2 * gives;
                    now = now + half + half;
                    pacer.left(now);
                }
                if let Some(change) = change {
                    current = change;
                    pacer.set_rate(now, rate(change), slack);
                }
            }
            for first in 0..sent.len() {
                let mut total = 0;
                for (bytes, until) in &sent[first..] {
                    total += bytes;
                    let rate_gave = until - sent[first].1;
                    let most = rate_gave + u128::from(slack.as_u64() + 1_500) * BYTE as u128;
                    prop_assert!(u128::from(total) * BYTE as u128 <= most);
                }
            }
        }

        /// A driver late by less than the slack allows holds the rate.
        #[test]
        fn lateness_within_slack_costs_nothing(late in prop::collection::vec(0_u64..1_000_000, 100)) {
            let mut pacer = Pacer::new(rate(12_000_000), PACKET, at(0));
            let mut now = at(0);
            for late in &late {
                now = pacer.next(now) + Span::from_nanos(*late);
                pacer.on_sent(now, PACKET);
            }
            prop_assert_eq!(pacer.next(at(0)), at(1_000_000 * late.len() as u64));
        }
    }
}
