//! Races whose attempts are silent, refused or late, and their laws.

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

/// How many addresses of IPv6 and of IPv4 are tried where all refuse at once; those of IPv6 are there before.
fn refused(ipv6: u16, ipv4: u8) -> [usize; 2] {
    let mut race = HappyEyeballs::new(CONFIG);
    let mut tried = [0, 0];
    let mut all = |race: &mut HappyEyeballs| {
        while let Some(attempt) = race.next(at(0), || true) {
            tried[usize::from(attempt.address.is_ipv4())] += 1;
            race.on_failed(at(0), attempt.number);
        }
    };
    race.on_addresses(at(0), true, (0..ipv6).map(v6));
    all(&mut race);
    // nothing to wait for but the other answer
    assert_eq!(race.deadline(), Time::NEVER);
    race.on_addresses(at(0), false, (0..ipv4).map(v4));
    all(&mut race);
    assert!(race.is_exhausted() && race.deadline() == Time::NEVER);
    tried
}

#[test]
fn a_name_of_many_addresses_makes_one_request_try_eight() {
    assert_eq!(refused(99, 0), [MOST_ATTEMPTS, 0]);
    assert_eq!(refused(0, 99), [0, MOST_ATTEMPTS]);
    // a late answer finds its part
    assert_eq!(refused(99, 99), [OF_EACH, OF_EACH]);
    assert_eq!(refused(99, 1), [MOST_ATTEMPTS - 1, 1]);
    assert_eq!(refused(2, 99), [2, MOST_ATTEMPTS - 2]);
    let mut race = HappyEyeballs::new(CONFIG);
    race.on_addresses(at(0), true, (0..99).map(v6));
    race.on_addresses(at(0), false, (0..99).map(v4));
    let tried = starts(&mut race, at(0));
    let ipv6: Vec<bool> = tried.iter().map(|(_, address)| address.is_ipv6()).collect();
    assert_eq!(ipv6, [true, false, true, false, true, false, true, false]);
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
            proptest::prop_assert!(running.iter().all(|number| (*number as usize) < MOST_ATTEMPTS));
            proptest::prop_assert_eq!(permits, running.len().saturating_sub(1));
            // nothing is stuck: an address that is left has its time
            let due = race.deadline();
            let soon = due > now && due <= now + ms(delay.max(within / 2));
            proptest::prop_assert!(due == Time::NEVER || soon, "{due:?} at {now:?}");
        }
    }
}
