//! The circuit breaker: a path that loses or delays too much for too long gets a tenth, whatever
//! the controller believes (algorithms/satellite E.4, in the spirit of RFC 8084).
//!
//! Intervals are three round trips and at least a second. It opens after two in a row with more
//! than half lost, after five of six with more than a fifth, and after five in a row whose fastest
//! packet was queued for more than a second. It closes after 60 s, twice as long each time up to 15
//! minutes, until it stays closed that long. It belongs to a path: the next tunnel inherits it.
//!
//! Differences from E.4: losses count above a bound only beyond chance (two standard deviations),
//! or 20 % of random losses would open it. Silence is [`super::RateHold`]'s matter.

use crate::units::{Span, Time};

/// A tenth: "an order of magnitude" (RFC 8084 §4.4, algorithms/satellite E.4).
pub(super) const CUT: f64 = 10.0;
/// The first pause and the longest (E.4).
const PAUSE: Span = Span::from_secs(60);
const LONGEST: Span = Span::from_secs(15 * 60);
/// No interval is shorter (E.4).
const INTERVAL: Span = Span::from_secs(1);
/// Packets that make a loss ratio meaningful (E.4's n_min).
const ENOUGH: u64 = 50;
/// More than so much is lost in two intervals, or in five of six (E.4).
const HALF: f64 = 0.5;
const FIFTH: f64 = 0.2;
/// Waits longer than this in five intervals (E.4).
const WAIT: Span = Span::from_secs(1);

/// Why it opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Trip {
    /// More than half was lost for two intervals.
    HalfLost,
    /// More than a fifth was lost for most of six intervals.
    FifthLost,
    /// Packets waited for longer than a second for five intervals.
    Waiting,
}

crate::units::named!(Trip {
    HalfLost = "more than half of the packets were lost",
    FifthLost = "more than a fifth of the packets was lost for long",
    Waiting = "packets waited for longer than a second for long",
});

/// A snapshot for the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Snapshot {
    /// Why it is open, and when it closes; `None` while it is closed.
    pub open: Option<(Trip, Time)>,
    /// How often it has opened.
    pub trips: u64,
}

/// The breaker of one direction of one path.
#[derive(Debug, Clone, Default)]
pub struct Breaker {
    ends: Time,
    packets: u64,
    lost: u64,
    least: Option<Span>,
    /// The last intervals, the latest in the lowest bit: half lost, a fifth lost, waited.
    history: [u8; 3],
    open: Option<(Trip, Time)>,
    pause: Span,
    closed: Time,
    trips: u64,
    never: bool,
}

impl Breaker {
    /// Of a path nothing is known of.
    pub fn new(now: Time) -> Self {
        Self { ends: Time::NEVER, pause: PAUSE, closed: now, ..Self::default() }
    }

    /// One that never opens: of a path that slows its senders down by itself, as TCP does (RFC 8084 §1). What is lost there
    /// found no room before it.
    pub fn never(now: Time) -> Self {
        Self { never: true, ..Self::new(now) }
    }

    /// The outcome of a packet is known, and its queueing delay if it arrived.
    pub fn on_told(&mut self, lost: bool, queue: Option<Span>) {
        self.packets += 1;
        self.lost += u64::from(lost);
        self.least = self.least.into_iter().chain(queue).min();
    }

    /// Whether no more than a tenth may be sent.
    pub const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// The time has come, or more; `rtt` is the path's own round trip.
    pub fn on_deadline(&mut self, now: Time, rtt: Span) {
        if self.never {
            return;
        }
        if let Some((_, until)) = self.open {
            if until <= now {
                self.open = None;
                self.closed = now;
                self.forget(now, rtt);
            }
        } else if self.ends <= now {
            self.judge(now);
            self.forget(now, rtt);
        } else if self.ends == Time::NEVER && self.packets > 0 {
            self.ends = now + interval(rtt);
        }
    }

    /// A snapshot for the status.
    pub const fn snapshot(&self) -> Snapshot {
        Snapshot { open: self.open, trips: self.trips }
    }

    fn judge(&mut self, now: Time) {
        let enough = self.packets >= ENOUGH;
        if enough {
            let above = |bound: f64| {
                let packets = self.packets as f64;
                let chance = libm::sqrt(packets * bound * (1.0 - bound));
                self.lost as f64 > packets * bound + 2.0 * chance
            };
            let seen = [above(HALF), above(FIFTH)];
            for (history, seen) in self.history.iter_mut().zip(seen) {
                *history = *history << 1 | u8::from(seen);
            }
        }
        if let Some(least) = self.least {
            self.history[2] = self.history[2] << 1 | u8::from(least > WAIT);
        }
        let [half, fifth, waited] = self.history;
        let trip = if half & 0b11 == 0b11 {
            Trip::HalfLost
        } else if (fifth & 0b11_1111).count_ones() >= 5 {
            Trip::FifthLost
        } else if waited & 0b1_1111 == 0b1_1111 {
            Trip::Waiting
        } else {
            return;
        };
        if now.since(self.closed) >= LONGEST {
            self.pause = PAUSE;
        }
        self.open = Some((trip, now + self.pause));
        self.pause = self.pause.saturating_mul(2).min(LONGEST);
        self.history = [0; 3];
        self.trips += 1;
    }

    fn forget(&mut self, now: Time, rtt: Span) {
        self.ends = now + interval(rtt);
        self.packets = 0;
        self.lost = 0;
        self.least = None;
    }
}

fn interval(rtt: Span) -> Span {
    rtt.saturating_mul(3).max(INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    const RTT: Span = ms(600);

    /// Intervals of so many packets with so many lost and such a wait, from `now` on; when it opened.
    fn intervals(
        breaker: &mut Breaker,
        now: &mut Time,
        count: u64,
        (packets, lost, wait): (u64, u64, Span),
    ) {
        for _ in 0..count {
            for nth in 0..packets {
                *now += ms(1);
                breaker.on_told(nth < lost, (nth >= lost).then_some(wait));
                breaker.on_deadline(*now, RTT);
            }
            *now = (*now).max(breaker.ends);
            breaker.on_deadline(*now, RTT);
        }
    }

    #[test]
    fn breaker_opens_on_each_of_its_conditions() {
        for (count, kind, trip) in [
            (2, (100, 70, Span::ZERO), Trip::HalfLost),
            (5, (1_000, 240, Span::ZERO), Trip::FifthLost),
            (5, (10, 0, ms(1_001)), Trip::Waiting),
        ] {
            let (mut breaker, mut now) = (Breaker::new(Time::ZERO), Time::ZERO);
            intervals(&mut breaker, &mut now, count - 1, kind);
            assert!(!breaker.is_open(), "{trip:?} too early");
            intervals(&mut breaker, &mut now, 1, kind);
            assert_eq!(breaker.snapshot().open, Some((trip, now + PAUSE)));
        }
    }

    #[test]
    fn one_of_a_path_that_slows_its_senders_down_never_opens() {
        let (mut breaker, mut now) = (Breaker::never(Time::ZERO), Time::ZERO);
        for _ in 0..20 {
            for nth in 0..100 {
                now += ms(10);
                breaker.on_told(nth < 90, (nth >= 90).then_some(ms(2_000)));
                breaker.on_deadline(now, RTT);
            }
        }
        assert_eq!(breaker.snapshot(), Snapshot::default());
    }

    #[test]
    fn losses_that_are_only_many_do_not() {
        for (packets, lost) in [(1_000, 200), (1_000, 224), (49, 49)] {
            let (mut breaker, mut now) = (Breaker::new(Time::ZERO), Time::ZERO);
            intervals(&mut breaker, &mut now, 50, (packets, lost, ms(900)));
            assert!(!breaker.is_open(), "{lost} of {packets}");
        }
        let (mut breaker, mut now) = (Breaker::new(Time::ZERO), Time::ZERO);
        for _ in 0..20 {
            // four of six
            intervals(&mut breaker, &mut now, 4, (1_000, 300, Span::ZERO));
            intervals(&mut breaker, &mut now, 2, (1_000, 0, Span::ZERO));
        }
        assert!(!breaker.is_open());
    }

    #[test]
    fn each_pause_is_twice_the_one_before_until_all_is_well() {
        let (mut breaker, mut now) = (Breaker::new(Time::ZERO), Time::ZERO);
        for seconds in [60, 120, 240, 480, 900, 900] {
            intervals(&mut breaker, &mut now, 2, (100, 90, Span::ZERO));
            let (_, until) = breaker.snapshot().open.unwrap();
            assert_eq!(until.since(now), Span::from_secs(seconds));
            now = until;
            breaker.on_deadline(now, RTT);
            assert!(!breaker.is_open());
        }
        now += LONGEST;
        breaker.on_deadline(now, RTT);
        intervals(&mut breaker, &mut now, 2, (100, 90, Span::ZERO));
        assert_eq!(breaker.snapshot().open.unwrap().1.since(now), PAUSE);
        assert_eq!(breaker.snapshot().trips, 7);
    }

    proptest! {
        /// Whatever happens, it closes again, and nothing opens it that was not there for two intervals.
        #[test]
        fn always_closes_again(
            told in prop::collection::vec((0_u64..400, any::<bool>(), 0_u64..3_000), 1..500),
        ) {
            let (mut breaker, mut now) = (Breaker::new(Time::ZERO), Time::ZERO);
            for (apart, lost, wait) in told {
                now += ms(apart);
                breaker.on_told(lost, (!lost).then(|| ms(wait)));
                breaker.on_deadline(now, RTT);
                if let Some((_, until)) = breaker.snapshot().open {
                    prop_assert!(now >= Time::ZERO + INTERVAL);
                    prop_assert!(until.since(now) <= LONGEST);
                }
            }
            // what was told last may open it now
            now += LONGEST;
            breaker.on_deadline(now, RTT);
            now += LONGEST;
            breaker.on_deadline(now, RTT);
            prop_assert!(!breaker.is_open());
        }
    }
}
