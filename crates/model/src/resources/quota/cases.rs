//! Single cases, by hand.

use super::*;
use crate::testing::*;
use QuotaAnswer::{Go, Over, Wait};

const MBIT: u64 = 1_000_000;

fn rate(bits: u64) -> Option<Rate> {
    Some(Rate::from_bits_per_second(bits))
}

fn open(quota: &mut Quota, account: Account) -> Flow {
    quota.admit(at(0), account).unwrap()
}

/// An account with these limits, and its flows.
fn with_flows<const N: usize>(limits: Limits) -> (Quota, Account, [Flow; N]) {
    let mut quota = Quota::new(Config::default(), at(0));
    let account = quota.join(at(0), limits);
    let flows = [(); N].map(|()| open(&mut quota, account));
    (quota, account, flows)
}

/// Two accounts without limits at a relay of this rate, each with a flow.
fn two_accounts(mbit: u64) -> (Quota, [Flow; 2]) {
    let mut quota = Quota::new(Config { rates: [None, rate(mbit * MBIT)] }, at(0));
    let accounts = [(); 2].map(|()| quota.join(at(0), Limits::default()));
    let flows = accounts.map(|account| open(&mut quota, account));
    (quota, flows)
}

fn down(limit: u64) -> Limits {
    Limits { rates: [None, rate(limit)], ..Limits::default() }
}

/// Flows that always want more, until then. What each direction of each got.
pub(super) fn greedy(
    quota: &mut Quota,
    flows: &[Flow],
    direction: Direction,
    want: u64,
    from: Time,
    until: Time,
) -> Vec<u64> {
    let mut got = vec![0; flows.len()];
    let mut now = from;
    let mut to_ask: Vec<Flow> = flows.to_vec();
    loop {
        while let Some(flow) = to_ask.pop() {
            if let Go(bytes) = quota.ask(now, flow, direction, Bytes::new(want)) {
                let nth = flows.iter().position(|one| *one == flow).unwrap();
                got[nth] += bytes.as_u64();
                quota.on_moved(now, flow, direction, bytes);
                to_ask.push(flow);
            }
            while let Some((flow, _)) = quota.next_ready() {
                if flows.contains(&flow) && !to_ask.contains(&flow) {
                    to_ask.insert(0, flow);
                }
            }
        }
        now = quota.deadline();
        if now > until {
            return got;
        }
        quota.on_deadline(now);
        while let Some((flow, _)) = quota.next_ready() {
            to_ask.insert(0, flow);
        }
    }
}

#[test]
fn five_megabits_are_five_with_one_connection_and_with_fifty() {
    for connections in [1, 50] {
        let mut quota = Quota::new(Config::default(), at(0));
        let account = quota.join(at(0), down(5 * MBIT));
        let flows: Vec<_> = (0..connections).map(|_| open(&mut quota, account)).collect();
        let got = greedy(&mut quota, &flows, Direction::Down, 65_536, at(0), at(20_000));
        let sum: u64 = got.iter().sum();
        // 200 ms of it may have been saved up
        assert!((12_490_000..=12_500_000 + 125_000).contains(&sum), "{connections}: {sum}");
        let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
        assert!(most - least <= 125_000, "{connections}: {least} … {most}");
    }
}

#[test]
fn ten_connections_have_no_more_than_one_and_weights_hold() {
    for (weights, connections, shares) in
        [([1, 1], [10, 1], [50, 50]), ([1, 1], [50, 5], [50, 50]), ([3, 1], [1, 10], [75, 25])]
    {
        let full = Config { rates: [rate(20 * MBIT), None] };
        let mut quota = Quota::new(full, at(0));
        let accounts =
            weights.map(|weight| quota.join(at(0), Limits { weight, ..Limits::default() }));
        let mut flows = Vec::new();
        for (account, n) in accounts.into_iter().zip(connections) {
            flows.extend((0..n).map(|_| open(&mut quota, account)));
        }
        let got = greedy(&mut quota, &flows, Direction::Up, 65_536, at(0), at(10_000));
        let first: u64 = got[..connections[0]].iter().sum();
        let all: u64 = got.iter().sum();
        let share = first as f64 * 100.0 / all as f64;
        assert!((share - f64::from(shares[0])).abs() < 1.5, "{weights:?} {connections:?}: {share}");
        assert!(all >= 25_000_000 - 65_536, "the relay's rate is used: {all}");
    }
}

#[test]
fn limited_account_leaves_the_rest_to_others() {
    let mut quota = Quota::new(Config { rates: [None, rate(20 * MBIT)] }, at(0));
    let (small, large) = (quota.join(at(0), down(2 * MBIT)), quota.join(at(0), Limits::default()));
    let flows = [open(&mut quota, small), open(&mut quota, large)];
    let got = greedy(&mut quota, &flows, Direction::Down, 65_536, at(0), at(10_000));
    assert!((2_490_000..2_570_000).contains(&got[0]), "{got:?}");
    assert!((22_400_000..23_100_000).contains(&got[1]), "{got:?}");
}

#[test]
fn quota_ends_to_the_byte_then_throttles() {
    let quota_of = |on_exceeded| Limits {
        quota: Some(Allowance {
            bytes: Bytes::new(1_000_000),
            period: Span::from_secs(60),
            on_exceeded,
        }),
        ..down(80 * MBIT)
    };
    let throttle = ExceededAction::Throttle(Rate::from_bits_per_second(256_000));
    let (mut quota, account, flows) = with_flows::<2>(quota_of(throttle));
    let ask = |quota: &mut Quota, flow, now| quota.ask(now, flow, Direction::Down, Bytes::mib(9));
    // both hold some of it
    let Go(one) = ask(&mut quota, flows[0], at(0)) else { panic!() };
    assert_eq!(one, Bytes::new(1_000_000), "all that is left");
    assert_eq!(ask(&mut quota, flows[1], at(0)), Wait);
    assert_eq!(quota.why(flows[1], Direction::Down), Some(QuotaWait::Quota));
    quota.on_moved(at(0), flows[0], Direction::Down, Bytes::new(999_999));
    assert_eq!(quota.next_ready(), Some((flows[1], Direction::Down)));
    assert_eq!(ask(&mut quota, flows[1], at(0)), Go(Bytes::new(1)));
    quota.on_moved(at(0), flows[1], Direction::Down, Bytes::new(1));
    let seen = quota.account(account).unwrap();
    assert_eq!((seen.spent, seen.left, seen.rates[1]), (true, Some(Bytes::ZERO), Some(256_000)));
    let slow: u64 =
        greedy(&mut quota, &flows, Direction::Down, 65_536, at(0), at(50_000)).iter().sum();
    assert!((1_590_000..1_620_000).contains(&slow), "{slow}");
    assert_eq!(quota.why(flows[0], Direction::Down), Some(QuotaWait::Throttle));
    // another period
    quota.on_deadline(at(60_000));
    let seen = quota.account(account).unwrap();
    assert_eq!((seen.spent, seen.rates[1]), (false, Some(80 * MBIT)));
}

#[test]
fn cut_account_is_refused_until_the_period_ends() {
    let plan = Allowance {
        bytes: Bytes::new(10),
        period: Span::from_secs(60),
        on_exceeded: ExceededAction::Cut,
    };
    let (mut quota, account, flows) =
        with_flows::<2>(Limits { quota: Some(plan), ..Limits::default() });
    let ask = |quota: &mut Quota, flow| quota.ask(at(1), flow, Direction::Up, Bytes::new(50));
    assert_eq!(ask(&mut quota, flows[0]), Go(Bytes::new(10)));
    assert_eq!(ask(&mut quota, flows[1]), Wait);
    quota.on_moved(at(1), flows[0], Direction::Up, Bytes::new(10));
    assert_eq!(quota.next_cut(), Some(account));
    assert_eq!(quota.next_ready(), Some((flows[1], Direction::Up)));
    assert_eq!(ask(&mut quota, flows[1]), Over);
    assert_eq!(quota.admit(at(1), account), Err(Refused::Spent(at(60_000))));
    assert_eq!(quota.cut_until(account), Some(at(60_000)));
    quota.on_deadline(quota.deadline());
    assert!(quota.admit(at(60_000), account).is_ok());
    // and a larger quota lets it go on
    quota.set_left(at(60_001), account, Bytes::ZERO, at(90_000), false);
    assert!(quota.admit(at(60_001), account).is_err());
    let more = Allowance { bytes: Bytes::new(20), ..plan };
    quota.set_limits(at(60_002), account, Limits { quota: Some(more), ..Limits::default() });
    assert_eq!(quota.account(account).unwrap().left, Some(Bytes::new(10)));
    assert_eq!(quota.deadline(), at(90_000));
}

#[test]
fn connections_and_connects_are_limited() {
    let limits = Limits { connections: Some(12), connects: Some(2), ..Limits::default() };
    let (mut quota, account, flows) = with_flows::<10>(limits);
    assert_eq!(quota.admit(at(0), account), Err(Refused::Connects(ms(500))));
    assert!(quota.admit(at(500), account).is_ok());
    assert!(quota.admit(at(1_000), account).is_ok());
    assert_eq!(quota.admit(at(9_000), account), Err(Refused::Connections(12)));
    quota.close(at(9_000), flows[0]);
    assert!(quota.admit(at(9_000), account).is_ok());
}

#[test]
fn leaving_account_goes_with_its_last_connection() {
    let (mut quota, account, flows) = with_flows::<2>(down(0));
    let want = Bytes::mib(9);
    assert!(matches!(quota.ask(at(0), flows[0], Direction::Down, want), Go(_)));
    quota.on_moved(at(0), flows[0], Direction::Down, want);
    assert_eq!(quota.ask(at(0), flows[0], Direction::Down, want), Wait);
    quota.leave(at(1), account);
    assert_eq!(quota.next_ready(), Some((flows[0], Direction::Down)));
    assert_eq!(quota.ask(at(1), flows[0], Direction::Down, want), Over);
    assert_eq!(quota.admit(at(1), account), Err(Refused::Gone));
    flows.into_iter().for_each(|flow| quota.close(at(2), flow));
    assert_eq!((quota.account(account), quota.snapshot()), (None, Snapshot::default()));
    assert_eq!(quota.deadline(), Time::NEVER);
}

#[test]
fn connection_rate_changes_at_once() {
    let each = |bits| Limits { each: [None, rate(bits)], ..Limits::default() };
    let (mut quota, account, flows) = with_flows::<2>(each(8 * MBIT));
    let got = greedy(&mut quota, &flows, Direction::Down, 65_536, at(0), at(1_000));
    assert!(got.iter().all(|got| (1_190_000..=1_200_000).contains(got)), "{got:?}");
    assert_eq!(quota.why(flows[0], Direction::Down), Some(QuotaWait::Connection));
    quota.set_limits(at(1_000), account, each(0));
    // whoever was called just before asks, and has what it was called for
    for flow in flows {
        while let Go(bytes) = quota.ask(at(1_000), flow, Direction::Down, Bytes::kib(64)) {
            quota.on_moved(at(1_000), flow, Direction::Down, bytes);
        }
    }
    assert_eq!(quota.deadline(), Time::NEVER);
    quota.set_limits(at(2_000), account, Limits::default());
    assert_eq!(quota.next_ready().map(|(flow, _)| flows.contains(&flow)), Some(true));
}

#[test]
fn datagrams_have_half_beside_connections_and_all_without() {
    let (mut quota, account, [stream, datagrams]) = with_flows(down(8 * MBIT));
    let mut got = [0_u64; 2];
    let size = Bytes::new(1_200);
    // a datagram every 0.5 ms is 2.4 times the rate
    for step in 0..20_000 {
        let now = Time::ZERO + Span::from_micros(500 * step);
        if quota.datagram(now, datagrams, Direction::Down, size) == Some(DatagramAnswer::Pass) {
            got[1] += size.as_u64();
        }
        if step < 10_000 {
            quota.on_deadline(now);
            while let Go(bytes) = quota.ask(now, stream, Direction::Down, Bytes::kib(64)) {
                got[0] += bytes.as_u64();
                quota.on_moved(now, stream, Direction::Down, bytes);
            }
        } else if step == 10_000 {
            quota.rest(now, stream, Direction::Down);
            assert!(got[0] >= got[1] && got[1] * 3 > got[0], "{got:?}");
            got[1] = 0;
        }
    }
    assert!((4_950_000..5_250_000).contains(&got[1]), "{got:?}");
    quota.leave(at(0), account);
    assert_eq!(quota.datagram(at(99_999), datagrams, Direction::Down, size), None);
}

#[test]
fn silence_earns_four_turns_at_most() {
    let (mut quota, flows) = two_accounts(20);
    greedy(&mut quota, &flows[..1], Direction::Down, 65_536, at(0), at(10_000));
    let got = greedy(&mut quota, &flows, Direction::Down, 65_536, at(10_000), at(12_000));
    assert!((75_000..150_000).contains(&(got[1] - got[0])), "{got:?}");
}

#[test]
fn unused_grants_return_to_their_account() {
    let (mut quota, [eager, modest]) = two_accounts(8);
    // all at once, of which little is used: neither the rate nor its turn is lost by that
    let ask = |quota: &mut Quota, flow| quota.ask(at(0), flow, Direction::Down, Bytes::mib(1));
    assert_eq!(ask(&mut quota, modest), Go(Bytes::new(200_000)));
    assert_eq!(ask(&mut quota, eager), Wait);
    quota.on_moved(at(0), modest, Direction::Down, Bytes::new(100));
    assert_eq!(quota.next_ready(), Some((eager, Direction::Down)));
    assert_eq!(ask(&mut quota, eager), Go(Bytes::new(199_900)));
}

#[test]
fn called_flows_which_never_ask_again_hold_nobody_up() {
    let mut quota = Quota::new(Config { rates: [None, rate(8 * MBIT)] }, at(0));
    let account = quota.join(at(0), Limits::default());
    let flows: Vec<_> = (0..31).map(|_| open(&mut quota, account)).collect();
    let ask = |quota: &mut Quota, now, flow| quota.ask(now, flow, Direction::Down, Bytes::kib(64));
    // what was saved up is gone, and all wait
    while let Go(bytes) = ask(&mut quota, at(0), flows[0]) {
        quota.on_moved(at(0), flows[0], Direction::Down, bytes);
    }
    assert!(flows[1..].iter().all(|flow| ask(&mut quota, at(0), *flow) == Wait));
    let (mut most, mut served) = (0_u64, false);
    while !served && quota.deadline() <= at(2_000) {
        let now = quota.deadline();
        quota.on_deadline(now);
        most = most.max(quota.snapshot().lent[1]);
        while let Some((flow, _)) = quota.next_ready() {
            served |= flow == flows[30] && matches!(ask(&mut quota, now, flow), Go(_));
        }
    }
    assert!(served, "{:?}", quota.snapshot());
    assert_eq!(most, 200_000, "the whole burst was lent");
    // and one that comes late after all has another turn
    quota.on_deadline(at(9_000));
    assert!(matches!(ask(&mut quota, at(9_000), flows[0]), Go(_)));
}

#[test]
fn turns_shrink_while_others_wait() {
    let (mut quota, _, flows) = with_flows::<2>(down(5 * MBIT));
    let ask = |quota: &mut Quota, now, flow| quota.ask(now, flow, Direction::Down, Bytes::kib(64));
    for flow in flows {
        while let Go(bytes) = ask(&mut quota, at(0), flow) {
            quota.on_moved(at(0), flow, Direction::Down, bytes);
        }
    }
    // late by ten turns: each has one after the other
    quota.on_deadline(at(100));
    for flow in flows {
        assert_eq!(ask(&mut quota, at(100), flow), Go(Bytes::new(6_250)));
    }
    for flow in flows {
        quota.on_moved(at(100), flow, Direction::Down, Bytes::new(6_250));
    }
    assert_eq!(ask(&mut quota, at(100), flows[0]), Go(Bytes::new(50_000)), "alone");
}
