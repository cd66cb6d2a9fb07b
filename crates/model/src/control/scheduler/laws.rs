//! What holds of every scheduler, whatever happens to it.

use super::*;
use crate::testing::*;

const ROOM: Bytes = Bytes::new(1_200);

fn scheduler() -> Scheduler {
    Scheduler::new(Config::default())
}

/// An account of one part.
fn join(scheduler: &mut Scheduler, weight: u32) -> Part {
    let account = scheduler.join(weight);
    scheduler.divide(account).unwrap()
}

fn open(scheduler: &mut Scheduler, part: Part, lane: Lane, bytes: u64) -> Flow {
    let flow = scheduler.open(part, lane).unwrap();
    scheduler.on_waiting(flow, Bytes::new(bytes));
    flow
}

const MUCH: u64 = 1 << 40;

/// What each flow was given in so many slots.
fn served(scheduler: &mut Scheduler, slots: u32) -> BTreeMap<Flow, u64> {
    let mut given = BTreeMap::new();
    for _ in 0..slots {
        let Some(turn) = scheduler.next(ROOM) else { break };
        *given.entry(turn.flow).or_default() += turn.bytes.as_u64();
    }
    given
}

impl PartialOrd for Flow {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Flow {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        format!("{:?}", self.0).cmp(&format!("{:?}", other.0))
    }
}

#[test]
fn accounts_share_by_weight_however_many_flows_they_have() {
    let mut scheduler = scheduler();
    let [one, three] = [1, 3].map(|weight| join(&mut scheduler, weight));
    let many: Vec<_> = (0..20).map(|_| open(&mut scheduler, one, Lane::Bulk, MUCH)).collect();
    let single = open(&mut scheduler, three, Lane::Bulk, MUCH);
    let given = served(&mut scheduler, 40_000);
    let of_many: u64 = many.iter().map(|flow| given[flow]).sum();
    let ratio = given[&single] as f64 / of_many as f64;
    assert!((ratio - 3.0).abs() < 0.01, "{ratio}");
    // and within an account each flow has as much
    let (least, most) = (many.iter().map(|f| given[f]).min(), many.iter().map(|f| given[f]).max());
    assert!(most.unwrap() - least.unwrap() <= ROOM.as_u64(), "{least:?} {most:?}");
}

#[test]
fn interactive_flows_wait_for_interactive_flows_only() {
    let mut scheduler = scheduler();
    let (quiet, busy) = (join(&mut scheduler, 1), join(&mut scheduler, 100));
    (0..20).for_each(|_| {
        open(&mut scheduler, busy, Lane::Bulk, MUCH);
    });
    served(&mut scheduler, 1_000);
    let key = open(&mut scheduler, quiet, Lane::Interactive, 64);
    let turn = scheduler.next(ROOM).unwrap();
    assert_eq!((turn.flow, turn.bytes, turn.lane), (key, Bytes::new(64), Lane::Interactive));
    assert_eq!(scheduler.next(ROOM).unwrap().lane, Lane::Bulk);
}

#[test]
fn new_flow_precedes_others_once_per_turn() {
    let mut scheduler = scheduler();
    let account = join(&mut scheduler, 1);
    (0..20).for_each(|_| {
        open(&mut scheduler, account, Lane::Interactive, 60_000);
    });
    served(&mut scheduler, 100);
    let answer = open(&mut scheduler, account, Lane::Interactive, 140);
    assert_eq!(scheduler.next(ROOM).map(|turn| turn.flow), Some(answer));
    // two that always have a little again do not stop the others
    let busy = [0, 1].map(|_| open(&mut scheduler, account, Lane::Interactive, 100));
    let mut of_others = 0;
    for _ in 0..300 {
        let turn = scheduler.next(ROOM).unwrap();
        match busy.contains(&turn.flow) {
            true => scheduler.on_waiting(turn.flow, Bytes::new(100)),
            false => of_others += 1,
        }
    }
    assert!(of_others >= 95, "{of_others} of 300");
}

/// A greeting of two packets goes whole before the next one, and a download not.
#[test]
fn new_flows_finish_their_first_bytes() {
    let mut scheduler = scheduler();
    let account = join(&mut scheduler, 1);
    let long = open(&mut scheduler, account, Lane::Interactive, 100_000);
    let greetings = [0; 3].map(|_| open(&mut scheduler, account, Lane::Interactive, 2_000));
    let mut order = Vec::new();
    for _ in 0..10 {
        let turn = scheduler.next(Bytes::new(1_500)).unwrap();
        order.push((turn.flow, turn.bytes.as_u64()));
    }
    let whole = |flow| [(flow, 1_500), (flow, 500)];
    assert_eq!(order[..3], [(long, 1_500); 3]);
    assert_eq!(order[3..9], greetings.map(whole).concat());
    assert_eq!(order[9], (long, 1_500));
}

#[test]
fn bulk_keeps_its_minimum_share_beside_interactive() {
    let mut scheduler = scheduler();
    let (greedy, other) = (join(&mut scheduler, 1), join(&mut scheduler, 1));
    open(&mut scheduler, greedy, Lane::Interactive, MUCH);
    let bulk = open(&mut scheduler, other, Lane::Bulk, MUCH);
    let given = served(&mut scheduler, 10_000);
    let share = given[&bulk] as f64 / given.values().sum::<u64>() as f64;
    assert!((share - 0.1).abs() < 0.001, "{share}");
    // what was owed while nothing of it waited is not owed
    let mut scheduler = Scheduler::new(Config::default());
    let (greedy, other) = (join(&mut scheduler, 1), join(&mut scheduler, 1));
    open(&mut scheduler, greedy, Lane::Interactive, MUCH);
    served(&mut scheduler, 10_000);
    open(&mut scheduler, other, Lane::Bulk, MUCH);
    assert_eq!(scheduler.next(ROOM).unwrap().lane, Lane::Interactive);
}

#[test]
fn silence_earns_nothing() {
    let mut scheduler = scheduler();
    let (late, early) = (join(&mut scheduler, 1), join(&mut scheduler, 1));
    let early = open(&mut scheduler, early, Lane::Bulk, MUCH);
    served(&mut scheduler, 10_000);
    let late = open(&mut scheduler, late, Lane::Bulk, MUCH);
    let given = served(&mut scheduler, 1_000);
    assert!(given[&late].abs_diff(given[&early]) <= 2 * 1_500, "{given:?}");
}

#[test]
fn nor_do_small_turns_add_up() {
    let mut scheduler = scheduler();
    let (small, large) = (join(&mut scheduler, 1), join(&mut scheduler, 1));
    let large = open(&mut scheduler, large, Lane::Bulk, MUCH);
    let small = scheduler.open(small, Lane::Bulk).unwrap();
    for _ in 0..100 {
        scheduler.on_waiting(small, Bytes::new(1));
        served(&mut scheduler, 4);
    }
    scheduler.on_waiting(small, Bytes::new(MUCH));
    let given = served(&mut scheduler, 1_000);
    assert!(given[&small].abs_diff(given[&large]) <= 2 * 1_500, "{given:?}");
}

#[test]
fn bulk_credit_ends_with_its_queue() {
    let mut scheduler = scheduler();
    let account = join(&mut scheduler, 1);
    let key = open(&mut scheduler, account, Lane::Interactive, 9 * ROOM.as_u64());
    let bulk = open(&mut scheduler, account, Lane::Bulk, 1);
    // nine tenths of what a packet of bulk is owed for, and then bulk gets its byte
    assert_eq!(served(&mut scheduler, 10)[&bulk], 1);
    scheduler.on_waiting(bulk, ROOM);
    for _ in 0..3 {
        scheduler.on_waiting(key, ROOM);
        assert_eq!(scheduler.next(ROOM).unwrap().lane, Lane::Interactive);
    }
}

#[test]
fn an_account_stays_while_a_part_of_it_has_flows() {
    let mut scheduler = scheduler();
    let account = scheduler.join(0);
    let [part, other] = [0; 2].map(|_| scheduler.divide(account).unwrap());
    let flow = open(&mut scheduler, part, Lane::Bulk, 10);
    assert!(!scheduler.leave(part));
    scheduler.close(flow);
    assert_eq!(scheduler.next(ROOM), None);
    assert!(scheduler.leave(part) && !scheduler.leave(part));
    assert_eq!((scheduler.open(part, Lane::Bulk), scheduler.snapshot().accounts), (None, 1));
    assert!(scheduler.leave(other));
    assert_eq!((scheduler.divide(account), scheduler.snapshot()), (None, Snapshot::default()));
}

/// As with a peer that gives each flow a number of its own.
#[test]
fn an_account_with_many_parts_has_the_turns_of_one() {
    for lane in [Lane::Interactive, Lane::Bulk] {
        let mut scheduler = scheduler();
        let single = join(&mut scheduler, 1);
        let single = open(&mut scheduler, single, lane, MUCH);
        let divided = scheduler.join(1);
        for _ in 0..200 {
            let part = scheduler.divide(divided).unwrap();
            open(&mut scheduler, part, lane, MUCH);
        }
        let given = served(&mut scheduler, 4_000);
        let of_parts = given.values().sum::<u64>() - given[&single];
        assert!(of_parts.abs_diff(given[&single]) <= 2 * 1_500, "{of_parts} {}", given[&single]);
    }
}

#[test]
fn parts_of_an_account_share_however_many_flows_they_have() {
    let mut scheduler = scheduler();
    let account = scheduler.join(1);
    let [many, few] = [0; 2].map(|_| scheduler.divide(account).unwrap());
    (0..20).for_each(|_| {
        open(&mut scheduler, many, Lane::Bulk, MUCH);
    });
    let one = open(&mut scheduler, few, Lane::Bulk, MUCH);
    let given = served(&mut scheduler, 4_000);
    let of_many = given.values().sum::<u64>() - given[&one];
    assert!(of_many.abs_diff(given[&one]) <= 2 * 1_500, "{of_many} {}", given[&one]);
    // and one with a little is not behind all that the others have
    let third = scheduler.divide(account).unwrap();
    let key = open(&mut scheduler, third, Lane::Bulk, 64);
    assert_eq!(served(&mut scheduler, 5)[&key], 64);
}

#[derive(Debug, Clone)]
enum Do {
    Join(u32),
    Divide(usize),
    Open(usize, bool),
    Wait(usize, u64),
    Next(u64),
    Switch(usize, bool),
    Close(usize),
    Leave(usize),
}

fn action() -> impl Strategy<Value = Do> {
    prop_oneof![
        1 => (0_u32..5).prop_map(Do::Join),
        1 => (0_usize..8).prop_map(Do::Divide),
        2 => (0_usize..8, any::<bool>()).prop_map(|(at, bulk)| Do::Open(at, bulk)),
        6 => (0_usize..32, 0_u64..10_000).prop_map(|(at, bytes)| Do::Wait(at, bytes)),
        8 => (0_u64..5_000).prop_map(Do::Next),
        1 => (0_usize..32, any::<bool>()).prop_map(|(at, bulk)| Do::Switch(at, bulk)),
        1 => (0_usize..32).prop_map(Do::Close),
        1 => (0_usize..8).prop_map(Do::Leave),
    ]
}

const fn lane(bulk: bool) -> Lane {
    if bulk { Lane::Bulk } else { Lane::Interactive }
}

proptest! {
    /// What is given waited, what waits is given, and nothing else happens.
    #[test]
    fn every_byte_is_given_once(actions in prop::collection::vec(action(), 0..300)) {
        let mut scheduler = scheduler();
        // part, account
        let mut parts: Vec<(Part, Account)> = Vec::new();
        // flow, part, lane, waiting
        let mut flows: Vec<(Flow, Part, Lane, u64)> = Vec::new();
        for action in actions {
            match action {
                Do::Join(weight) => {
                    let account = scheduler.join(weight);
                    parts.push((scheduler.divide(account).unwrap(), account));
                }
                Do::Divide(at) => {
                    if let Some((_, account)) = parts.get(at).copied() {
                        parts.push((scheduler.divide(account).unwrap(), account));
                    }
                }
                Do::Open(at, bulk) => {
                    if let Some((part, _)) = parts.get(at) {
                        let flow = scheduler.open(*part, lane(bulk)).unwrap();
                        flows.push((flow, *part, lane(bulk), 0));
                    }
                }
                Do::Wait(at, bytes) => {
                    if let Some(flow) = flows.get_mut(at) {
                        scheduler.on_waiting(flow.0, Bytes::new(bytes));
                        flow.3 += bytes;
                    }
                }
                Do::Next(room) => {
                    let any = flows.iter().any(|flow| flow.3 > 0);
                    let turn = scheduler.next(Bytes::new(room));
                    prop_assert_eq!(turn.is_some(), any && room > 0);
                    if let Some(turn) = turn {
                        let flow = flows.iter_mut().find(|flow| flow.0 == turn.flow).unwrap();
                        prop_assert_eq!(turn.lane, flow.2);
                        prop_assert_eq!(turn.bytes.as_u64(), flow.3.min(room));
                        flow.3 -= turn.bytes.as_u64();
                    }
                }
                Do::Switch(at, bulk) => {
                    if let Some(flow) = flows.get_mut(at) {
                        scheduler.set_lane(flow.0, lane(bulk));
                        flow.2 = lane(bulk);
                    }
                }
                Do::Close(at) => {
                    if at < flows.len() {
                        scheduler.close(flows.swap_remove(at).0);
                    }
                }
                Do::Leave(at) => {
                    if at < parts.len() {
                        let free = !flows.iter().any(|flow| flow.1 == parts[at].0);
                        prop_assert_eq!(scheduler.leave(parts[at].0), free);
                        if free {
                            parts.swap_remove(at);
                        }
                    }
                }
            }
            let waiting = |lane| flows.iter().filter(|f| f.2 == lane).map(|f| f.3).sum::<u64>();
            let snapshot = scheduler.snapshot();
            prop_assert_eq!(snapshot.waiting, [waiting(Lane::Interactive), waiting(Lane::Bulk)]);
            let accounts = parts.iter().map(|part| format!("{:?}", part.1)).collect::<BTreeSet<_>>();
            let lens = (accounts.len(), parts.len(), flows.len());
            prop_assert_eq!((snapshot.accounts, snapshot.parts, snapshot.flows), lens);
            for flow in &flows {
                prop_assert_eq!(scheduler.waiting(flow.0), Bytes::new(flow.3));
            }
        }
    }

    /// While all wait, accounts differ per weight by at most a quantum and a packet of each, however many parts each
    /// has; and so do the parts of one.
    #[test]
    fn weights_hold_over_every_interval(
        accounts in prop::collection::vec((1_u32..6, 1_usize..4), 2..6),
        rooms in prop::collection::vec(1_u64..=1_500, 200..600),
        bulk: bool,
        from in 0_usize..150,
    ) {
        let mut scheduler = scheduler();
        // flow, account, what it was given
        let mut flows = Vec::new();
        for (nth, (weight, parts)) in accounts.iter().enumerate() {
            let account = scheduler.join(*weight);
            for _ in 0..*parts {
                let part = scheduler.divide(account).unwrap();
                flows.push((open(&mut scheduler, part, lane(bulk), MUCH), nth, 0_u64));
            }
        }
        for (n, room) in rooms.into_iter().enumerate() {
            let turn = scheduler.next(Bytes::new(room)).unwrap();
            let flow = flows.iter_mut().find(|flow| flow.0 == turn.flow).unwrap();
            flow.2 += if n >= from { turn.bytes.as_u64() } else { 0 };
        }
        let spread = |given: &[f64]| {
            let (least, most) = given.iter().fold((f64::MAX, 0.0_f64), |(l, m), x| (l.min(*x), m.max(*x)));
            most - least
        };
        let mut per_weight = Vec::new();
        for (nth, (weight, _)) in accounts.iter().enumerate() {
            let parts: Vec<f64> = flows.iter().filter(|flow| flow.1 == nth).map(|flow| flow.2 as f64).collect();
            prop_assert!(spread(&parts) <= 1_500.0 + 2.0 * 1_500.0, "{parts:?}");
            per_weight.push(parts.iter().sum::<f64>() / f64::from(*weight));
        }
        prop_assert!(spread(&per_weight) <= 1_500.0 + 2.0 * 1_500.0, "{per_weight:?}");
    }
}
