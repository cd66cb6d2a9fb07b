//! What holds of every opening, whatever is answered when.

use super::*;
use crate::testing::*;
use core::net::IpAddr;

fn plans() -> impl Strategy<Value = SynPlan> {
    let wait = || proptest::option::of((0_u64..2_500).prop_map(ms));
    let within = prop_oneof![(1_u64..20_000).prop_map(ms), Just(Span::MAX)];
    (within, wait(), wait()).prop_map(|(within, repeat_after, second_after)| SynPlan {
        within,
        repeat_after,
        second_after,
    })
}

const HERE: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(192, 0, 2, 1));

proptest! {
    /// At most two copies, the first to the end, each closed or given up once; none near the
    /// kernel's own repetition; and a driver that wakes late does no more than one in time.
    #[test]
    fn race_keeps_its_plan(
        plan in plans(),
        late in proptest::collection::vec(0_u64..700, 32),
        verdicts in proptest::collection::vec(any::<bool>(), 32),
        fails in proptest::collection::vec(proptest::option::weighted(0.2, 0_u8..4), 32),
    ) {
        let began = Time::ZERO + Span::from_secs(7);
        let end = began + plan.within;
        let mut opening = SynRace::new(plan, began);
        let mut live = Vec::new();
        let mut starts: Vec<(Time, SynKind)> = Vec::new();
        let mut asked = 0;
        let mut now = began;
        let mut given_up = false;
        for round in 0..32 {
            let mut steps = 0;
            while let Some(step) = opening.next(now, |kind| {
                assert_ne!(kind, SynKind::First);
                asked += 1;
                verdicts[asked % 32]
            }) {
                steps += 1;
                prop_assert!(steps < 10, "it comes to an end");
                prop_assert!(!given_up);
                match step {
                    SynStep::Start(copy) => {
                        prop_assert!(now < end, "a copy beyond the end");
                        prop_assert_eq!(usize::from(copy.number), starts.len());
                        live.push(copy.number);
                        starts.push((now, copy.kind));
                    }
                    SynStep::Close(number) => {
                        let at = live.iter().position(|n| *n == number);
                        prop_assert!(at.is_some(), "what is not there cannot be closed");
                        live.remove(at.unwrap());
                        prop_assert!(number != 0, "the first waits to the end");
                    }
                    SynStep::GiveUp => {
                        prop_assert!(now >= end);
                        live.clear();
                        given_up = true;
                    }
                }
                prop_assert!(live.len() <= MOST_AT_ONCE);
                prop_assert_eq!(live.len(), opening.live());
            }
            if let Some(number) = fails[round]
                && live.len() > 1
                && let Some(at) = live.iter().position(|n| *n == number)
            {
                live.remove(at);
                opening.on_failed(number);
            }
            prop_assert!(given_up || !live.is_empty(), "somebody is waited for until the end");
            let deadline = opening.deadline();
            if deadline == Time::NEVER {
                break;
            }
            prop_assert!(deadline > now, "time goes on");
            now = deadline + ms(late[round]);
        }
        prop_assert_eq!(starts[0], (began, SynKind::First));
        prop_assert!(given_up || plan.within == Span::MAX);
        let count = |kind| starts.iter().filter(|(_, k)| *k == kind).count();
        prop_assert!(count(SynKind::Second) <= 1);
        prop_assert!(count(SynKind::First) == 1);
        // waits double: the k-th repetition is never before rto · (2^k − 1)
        let rto = plan.repeat_after.unwrap_or(Span::MAX);
        let repeats = starts.iter().filter(|(_, kind)| *kind == SynKind::Repeat);
        for (nth, (at, _)) in repeats.enumerate() {
            let missed_allowed = rto.saturating_mul((2 << nth) - 1);
            prop_assert!(at.since(began) >= missed_allowed, "{nth}: {at:?}");
            let into = at.since(began).as_millis() % 1_000;
            let own = at.since(began) >= Span::from_secs(1);
            prop_assert!(into <= 800 && (!own || into >= 200), "{at:?}");
        }
    }

    /// At most one SYN a second to a destination that no loss speaks for, and no second one below 1
    /// %.
    #[test]
    fn guard_limits_extra_syns(
        // more destinations than it has room for
        asks in proptest::collection::vec((0_u64..100, 0_u8..30, any::<bool>(), 0_u64..30_000_000), 1..400),
    ) {
        let mut guard = Guard::new(WAYS);
        let mut last: BTreeMap<Prefix, Time> = BTreeMap::new();
        let mut now = Time::ZERO;
        for (pause, n, repeat, loss) in asks {
            now += ms(pause);
            let address = IpAddr::from([192, 0, n, 1]);
            let loss = Share::from_parts_per_billion(loss).unwrap();
            let kind = if repeat { SynKind::Repeat } else { SynKind::Second };
            let granted = guard.grant(now, address, kind, loss);
            if repeat && loss >= LEAST_LOSS {
                prop_assert!(granted);
            } else if granted {
                prop_assert!(repeat || loss >= LEAST_LOSS);
                if let Some(before) = last.insert(Prefix::of(address), now) {
                    prop_assert!(now.since(before) >= INTERVAL);
                }
            }
        }
    }

    /// Bounded memory and time-outs; a repeated SYN gives no round-trip time (Karn).
    #[test]
    fn handshakes_are_remembered_within_bounds(
        seen in proptest::collection::vec(
            (0_u64..120_000, any::<u64>(), any::<bool>(), any::<bool>(), 0_u64..3_000_000), 1..300),
    ) {
        let config = Config { entries: 32, ..Config::default() };
        let mut handshakes = Handshakes::new(config, Time::ZERO);
        let mut now = Time::ZERO;
        for (pause, n, by_first, repeated, micros) in seen {
            now += ms(pause);
            let address = IpAddr::from([192, 0, (n % 64) as u8, 1]);
            let rtt = Some(Span::from_micros(micros));
            let before = handshakes.initial_rto(now, address);
            let answered = Answered { by_first, repeated, took: ms(1_100), rtt };
            handshakes.on_answered(now, address, answered);
            let after = handshakes.initial_rto(now, address);
            if repeated || micros == 0 {
                prop_assert_eq!(before, after);
            } else {
                prop_assert!(after.is_some_and(|rto| rto >= config.least && rto <= config.most));
            }
            prop_assert!(handshakes.known(now) <= handshakes.capacity());
            prop_assert!(handshakes.loss(now, address) <= Share::ALL);
        }
        prop_assert_eq!(handshakes.capacity(), 32);
    }

    /// The estimate nears an independent loss, and stays below the threshold where nothing is lost.
    #[test]
    fn estimates_independent_loss(seed: u64, percent in prop_oneof![Just(0_u64), Just(10), Just(20)]) {
        let mut rng = Rng::new(seed);
        let mut handshakes = Handshakes::new(Config::default(), Time::ZERO);
        let mut now = Time::ZERO;
        for _ in 0..400 {
            now += ms(100);
            let lost = rng.below(100) < percent;
            let answered = Answered { by_first: !lost, repeated: false, took: ms(50), rtt: Some(ms(50)) };
            handshakes.on_answered(now, HERE, answered);
        }
        let parts = handshakes.loss(now, HERE).as_parts_per_billion() as f64 / 1e7;
        // 4 standard deviations at half of the 400
        let off = 4.0 * (percent as f64 * (100 - percent) as f64 / 200.0).sqrt() + 1.0;
        prop_assert!((parts - percent as f64).abs() < off, "{percent} %: {parts} %");
        if percent == 0 {
            prop_assert!(handshakes.loss(now, HERE) < LEAST_LOSS);
        }
    }
}
