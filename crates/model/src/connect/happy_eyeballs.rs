//! Which address to try when: RFC 8305, "Happy Eyeballs Version 2".
//!
//! ```text
//! on_addresses(family, …)   once per family asked, also when its answer is empty or failed
//! next(now, permitted)      Some(attempt): start it; ask again until None. `permitted`: asked before
//!                           an attempt beside a running one
//! deadline()                ask next() again then; no on_deadline, because several may be due
//! on_failed(now, number)    an attempt failed; the next one need not wait
//! is_exhausted()            nothing is left to try and nothing to wait for
//! ```
//! The driver stops at the first attempt that succeeds and drops the others. What was permitted is
//! given back as attempts end: all but one of [`HappyEyeballs::running`] take part of it.

use crate::units::{Span, Time};
use alloc::collections::VecDeque;
use core::net::IpAddr;

/// The delays, and which family goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Between two attempts (RFC 8305 §5: 250 ms recommended, 100 ms … 2 s).
    pub attempt_delay: Span,
    /// The time that all attempts have.
    pub within: Span,
    /// How long the second family's answer waits for the first's (RFC 8305 §3: 50 ms).
    pub resolution_delay: Span,
    /// Whether IPv6 goes first (RFC 8305 §4).
    pub ipv6_first: bool,
}

/// Addresses of one family that are tried: of a name with thousands one request would try them all.
pub const MOST_ADDRESSES: usize = 32;

/// Attempts that run at once: each is a socket, and a name whose addresses are all silent would hold one for each.
pub const MOST_AT_ONCE: usize = 4;

impl Config {
    /// The age at which the oldest of so many attempts gives way to the next address: half of the time that all have, for
    /// a path whose queue takes seconds. Where too few may run, a quarter, so that the other family has its part.
    fn gives_way_after(&self, running: usize) -> Span {
        let parts = if running >= MOST_AT_ONCE { 2 } else { 4 };
        self.attempt_delay.max(Span::from_nanos(self.within.as_nanos() / parts))
    }
}

/// Whether the preferred family's answers come at all. Where no name server answers AAAA, waiting for it would cost
/// each new name [`Config::resolution_delay`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FamilyAnswers {
    /// Names in a row whose answer did not come while it was waited for, or was not waited for.
    missing: u32,
}

/// Names without an answer after which nothing waits.
const MISSING: u32 = 3;
/// One of so many waits all the same, so that answers are noticed when they come again.
const AGAIN: u32 = 16;

impl FamilyAnswers {
    /// The resolution delay for the next name.
    pub const fn delay(&self, configured: Span) -> Span {
        match self.missing < MISSING || self.missing.is_multiple_of(AGAIN) {
            true => configured,
            false => Span::ZERO,
        }
    }

    /// The other family's first attempt began without an answer.
    pub const fn on_missing(&mut self) {
        self.missing = self.missing.wrapping_add(1);
    }

    /// An answer came, be it that there is no address.
    pub const fn on_answer(&mut self) {
        self.missing = 0;
    }
}

/// One attempt to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// Counted from 0 within the race.
    pub number: u32,
    /// Where to.
    pub address: IpAddr,
    /// The running attempt that is given up for it, if any.
    pub instead_of: Option<u32>,
}

/// One race.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HappyEyeballs {
    config: Config,
    /// Addresses not yet tried: of the family that goes first, and of the other.
    left: [VecDeque<IpAddr>; 2],
    answered: [bool; 2],
    /// Which of the two is tried next.
    turn: usize,
    /// No attempt starts before.
    not_before: Time,
    started: u32,
    /// Attempts that run, oldest first, and since when.
    running: VecDeque<(u32, Time)>,
}

impl HappyEyeballs {
    /// A race in which nothing is resolved yet.
    pub const fn new(config: Config) -> Self {
        Self {
            config,
            left: [VecDeque::new(), VecDeque::new()],
            answered: [false, false],
            turn: 0,
            not_before: Time::NEVER,
            started: 0,
            running: VecDeque::new(),
        }
    }

    /// One family's answer in the resolver's order; empty ends the wait for it, of a long one the
    /// first [`MOST_ADDRESSES`] count.
    pub fn on_addresses(
        &mut self,
        now: Time,
        ipv6: bool,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) {
        let family = usize::from(ipv6 != self.config.ipv6_first);
        self.left[family].extend(addresses.into_iter().take(MOST_ADDRESSES));
        self.answered[family] = true;
        if self.started > 0 {
            return;
        }
        // the preferred family's addresses start at once; the other's wait a little for them
        let start = if self.answered[0] && (!self.left[0].is_empty() || self.answered[1]) {
            now
        } else if !self.left[1].is_empty() {
            if self.answered[0] { now } else { now + self.config.resolution_delay }
        } else {
            return;
        };
        self.not_before = self.not_before.min(start);
    }

    /// An attempt failed: the next may start immediately.
    pub fn on_failed(&mut self, now: Time, number: u32) {
        self.running.retain(|(running, _)| *running != number);
        self.not_before = self.not_before.min(now);
    }

    /// Attempts that run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// The next attempt, when it is time. Families alternate (RFC 8305 §4, one address each). One beside others starts if
    /// it is `permitted` and there are fewer than [`MOST_AT_ONCE`]. If not, it waits for a failure, or until the oldest
    /// gives way; `permitted` is asked again meanwhile.
    pub fn next(&mut self, now: Time, permitted: impl FnOnce() -> bool) -> Option<Attempt> {
        if now < self.not_before {
            return None;
        }
        let turn = if self.left[self.turn].is_empty() { 1 - self.turn } else { self.turn };
        let address = *self.left[turn].front()?;
        let running = self.running.len();
        let beside = running == 0 || running < MOST_AT_ONCE && permitted();
        let instead_of = if beside { None } else { Some(self.give_up_oldest(now)?) };
        self.left[turn].pop_front();
        self.turn = 1 - turn;
        let number = self.started;
        self.started += 1;
        self.running.push_back((number, now));
        self.not_before = now + self.config.attempt_delay;
        Some(Attempt { number, address, instead_of })
    }

    /// The oldest attempt, if it is old enough to give way; if not, nothing starts before it is, or before another may
    /// have been permitted.
    fn give_up_oldest(&mut self, now: Time) -> Option<u32> {
        let (number, since) = *self.running.front()?;
        let until = since + self.config.gives_way_after(self.running.len());
        if now < until {
            let again = match self.running.len() < MOST_AT_ONCE {
                true => now + self.config.attempt_delay,
                false => until,
            };
            self.not_before = until.min(again);
            return None;
        }
        self.running.pop_front();
        Some(number)
    }

    /// When to call [`HappyEyeballs::next`] again; [`Time::NEVER`] while only an event can bring
    /// news.
    pub fn deadline(&self) -> Time {
        if self.left.iter().all(VecDeque::is_empty) { Time::NEVER } else { self.not_before }
    }

    /// Whether every address was given out and both families have answered.
    pub fn is_exhausted(&self) -> bool {
        self.left.iter().all(VecDeque::is_empty) && self.answered == [true, true]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    const CONFIG: Config = Config {
        attempt_delay: ms(250),
        within: ms(10_000),
        resolution_delay: ms(50),
        ipv6_first: true,
    };

    fn v6(n: u16) -> IpAddr {
        core::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n).into()
    }

    fn v4(n: u8) -> IpAddr {
        [192, 0, 2, n].into()
    }

    /// Where to, if it is time for another attempt, which is permitted.
    fn next(race: &mut HappyEyeballs, now: Time) -> Option<IpAddr> {
        race.next(now, || true).map(|attempt| attempt.address)
    }

    /// Runs the race with attempts that never answer, and lists what started when.
    fn starts(race: &mut HappyEyeballs, mut now: Time) -> Vec<(u64, IpAddr)> {
        let mut list = Vec::new();
        while now != Time::NEVER {
            while let Some(address) = next(race, now) {
                list.push((now.as_nanos() / 1_000_000, address));
            }
            now = race.deadline();
        }
        list
    }

    #[test]
    fn family_that_never_answers_is_not_waited_for() {
        let (mut answers, delay) = (FamilyAnswers::default(), ms(50));
        let mut waited = 0;
        for _ in 0..160 {
            waited += u32::from(answers.delay(delay) == delay);
            answers.on_missing();
        }
        // three at first, then one of sixteen
        assert_eq!(waited, 3 + 9);
        answers.on_answer();
        assert_eq!(answers.delay(delay), delay);
    }

    #[test]
    fn tries_at_most_32_addresses_of_a_family() {
        let mut race = HappyEyeballs::new(CONFIG);
        race.on_addresses(at(0), true, []);
        race.on_addresses(at(0), false, (0..=u8::MAX).map(v4));
        assert_eq!(starts(&mut race, at(0)).len(), MOST_ADDRESSES);
        assert!(race.is_exhausted());
    }

    #[test]
    fn families_alternate_a_quarter_second_apart() {
        let mut race = HappyEyeballs::new(CONFIG);
        race.on_addresses(at(0), false, [v4(1), v4(2)]);
        race.on_addresses(at(10), true, [v6(1), v6(2), v6(3)]);
        // four at once; the fifth takes the place of the oldest, half of the time later
        let expected = [(10, v6(1)), (260, v4(1)), (510, v6(2)), (760, v4(2)), (5010, v6(3))];
        assert_eq!(starts(&mut race, at(10)), expected);
        assert!(race.is_exhausted());
    }

    #[test]
    fn ipv4_waits_50_ms_for_a_slow_ipv6_answer() {
        let mut race = HappyEyeballs::new(CONFIG);
        race.on_addresses(at(5), false, [v4(1)]);
        assert_eq!((next(&mut race, at(54)), race.deadline()), (None, at(55)));
        assert_eq!(next(&mut race, at(55)), Some(v4(1)));
        race.on_addresses(at(60), true, [v6(1)]);
        assert_eq!(race.deadline(), at(305));
        assert_eq!(next(&mut race, at(305)), Some(v6(1)));
    }

    #[test]
    fn empty_ipv6_answer_ends_the_wait() {
        let mut race = HappyEyeballs::new(CONFIG);
        race.on_addresses(at(5), false, [v4(1)]);
        race.on_addresses(at(20), true, []);
        assert_eq!(next(&mut race, at(20)), Some(v4(1)));
    }

    #[test]
    fn starts_the_next_attempt_after_a_failure() {
        let mut race = HappyEyeballs::new(CONFIG);
        race.on_addresses(at(0), true, [v6(1)]);
        race.on_addresses(at(0), false, [v4(1)]);
        assert_eq!(next(&mut race, at(0)), Some(v6(1)));
        race.on_failed(at(3), 0);
        assert_eq!((race.running(), next(&mut race, at(3))), (0, Some(v4(1))));
    }

    #[test]
    fn a_fifth_attempt_takes_the_place_of_the_oldest() {
        let mut race = HappyEyeballs::new(CONFIG);
        race.on_addresses(at(0), true, []);
        race.on_addresses(at(0), false, (1..=6).map(v4));
        for number in 0..4 {
            let instead_of = race.next(at(250 * number), || true).unwrap().instead_of;
            assert_eq!(instead_of, None);
        }
        // half of the time has passed: who needs three seconds on a full queue has them
        assert_eq!((race.next(at(1000), || true), race.deadline()), (None, at(5000)));
        let fifth = Attempt { number: 4, address: v4(5), instead_of: Some(0) };
        assert_eq!(race.next(at(5000), || true), Some(fifth));
        assert_eq!((race.running(), race.deadline()), (MOST_AT_ONCE, at(5250)));
    }

    #[test]
    fn a_silent_address_gives_way_where_nothing_may_run_beside_it() {
        let second = |within| {
            let mut race = HappyEyeballs::new(Config { within, ..CONFIG });
            race.on_addresses(at(0), true, [v6(1)]);
            race.on_addresses(at(0), false, [v4(1)]);
            assert_eq!(race.next(at(0), || false).unwrap().address, v6(1));
            let mut due = race.deadline();
            assert_eq!(due, at(250));
            let mut permitted = race.clone();
            assert_eq!((permitted.next(due, || false), permitted.deadline()), (None, at(500)));
            let beside = Attempt { number: 1, address: v4(1), instead_of: None };
            assert_eq!(permitted.next(at(500), || true), Some(beside));
            let second = loop {
                match race.next(due, || false) {
                    Some(second) => break second,
                    // it is asked for again meanwhile
                    None => due = race.deadline(),
                }
            };
            assert_eq!(second, Attempt { number: 1, address: v4(1), instead_of: Some(0) });
            assert_eq!(race.running(), 1);
            due
        };
        assert_eq!(second(ms(10_000)), at(2500));
        assert_eq!(second(ms(2_000)), at(500));
    }

    #[test]
    fn starts_the_next_attempt_after_a_failure_also_where_none_may_run_beside_it() {
        let mut race = HappyEyeballs::new(CONFIG);
        race.on_addresses(at(0), true, [v6(1)]);
        race.on_addresses(at(0), false, [v4(1)]);
        race.next(at(0), || false).unwrap();
        assert_eq!(race.next(at(250), || false), None);
        race.on_failed(at(300), 0);
        let second = Attempt { number: 1, address: v4(1), instead_of: None };
        assert_eq!(race.next(at(300), || false), Some(second));
    }

    proptest::proptest! {
        #[test]
        fn every_address_is_tried_once_in_any_order(
            a in 0_u16..5, b in 0_u8..5, first: bool, ipv6_first: bool, gap in 0_u64..400,
        ) {
            let mut race = HappyEyeballs::new(Config { ipv6_first, ..CONFIG });
            let mut seen = Vec::new();
            for (step, ipv6) in [first, !first].into_iter().enumerate() {
                let now = at(gap * step as u64);
                if ipv6 {
                    race.on_addresses(now, true, (0..a).map(v6));
                } else {
                    race.on_addresses(now, false, (0..b).map(v4));
                }
                seen.extend(next(&mut race, now));
            }
            seen.extend(starts(&mut race, at(gap)).into_iter().map(|(_, address)| address));
            seen.sort();
            let mut all: Vec<_> = (0..a).map(v6).chain((0..b).map(v4)).collect();
            all.sort();
            proptest::prop_assert_eq!(seen, all);
            proptest::prop_assert!(race.is_exhausted());
        }

        #[test]
        fn few_attempts_run_at_once_and_each_beside_another_is_permitted(
            a in 0_u16..40, b in 0_u8..40, delay in 100_u64..2_000, within in 1_u64..20_000,
            wakings: Vec<(u16, bool, bool)>,
        ) {
            let config = Config { attempt_delay: ms(delay), within: ms(within), ..CONFIG };
            let mut race = HappyEyeballs::new(config);
            race.on_addresses(at(0), true, (0..a).map(v6));
            race.on_addresses(at(0), false, (0..b).map(v4));
            let (mut now, mut running, mut permits) = (at(0), Vec::new(), 0_usize);
            for (later, permitted, fails) in wakings {
                now += ms(u64::from(later) % 3_000);
                if fails && !running.is_empty() {
                    race.on_failed(now, running.remove(usize::from(later) % running.len()));
                    permits = permits.min(running.len().saturating_sub(1));
                }
                while let Some(attempt) = race.next(now, || {
                    permits += usize::from(permitted);
                    permitted
                }) {
                    if let Some(given_up) = attempt.instead_of {
                        proptest::prop_assert_eq!(running.remove(0), given_up);
                    }
                    running.push(attempt.number);
                }
                proptest::prop_assert_eq!(race.running(), running.len());
                proptest::prop_assert!(running.len() <= MOST_AT_ONCE);
                proptest::prop_assert_eq!(permits, running.len().saturating_sub(1));
                // nothing is stuck: an address that is left has its time
                let due = race.deadline();
                let soon = due > now && due <= now + ms(delay.max(within / 2));
                proptest::prop_assert!(due == Time::NEVER || soon, "{due:?} at {now:?}");
            }
        }
    }
}
