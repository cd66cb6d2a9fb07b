//! What holds of the register after every operation (algorithms/buffers A.6), against a plain list.

use super::*;
use crate::testing::*;
use core::hash::{BuildHasherDefault, Hasher};
use std::hash::RandomState;

/// Gives every key the same hash: the worst a peer could choose.
#[derive(Default, Clone)]
struct Colliding;

impl Hasher for Colliding {
    fn finish(&self) -> u64 {
        7
    }
    fn write(&mut self, _: &[u8]) {}
}

#[derive(Debug, Clone)]
enum Step {
    Insert { key: u8, after_ms: u64 },
    Reuse { key: u8 },
    Remove { at: usize },
    Evict,
    Tick { after_ms: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_u8..6, 0_u64..900).prop_map(|(key, after_ms)| Step::Insert { key, after_ms }),
        3 => (0_u8..6).prop_map(|key| Step::Reuse { key }),
        2 => any::<usize>().prop_map(|at| Step::Remove { at }),
        2 => Just(Step::Evict),
        2 => (0_u64..4_000).prop_map(|after_ms| Step::Tick { after_ms }),
    ];
    proptest::collection::vec(step, 0..200)
}

/// An idle connection of the plain list.
#[derive(Debug, Clone, PartialEq)]
struct Plain {
    key: u8,
    id: u32,
    since: Time,
    last_halved: Time,
    buffer: u64,
}

const PERSIST: Span = Span::from_secs(5);
const EVERY: Span = Span::from_secs(1);

fn held<S: BuildHasher>(register: &Register<u8, (u32, u64), S>, plain: &[Plain]) {
    let told: Vec<_> =
        register.iter().map(|(key, (id, buffer), since)| (*key, *id, *buffer, since)).collect();
    let expected: Vec<_> = plain.iter().map(|p| (p.key, p.id, p.buffer, p.since)).collect();
    assert_eq!(told, expected);
    assert!(told.is_sorted_by_key(|(_, _, _, since)| *since), "in the order of idleness");
    // |map| = |list|: every list of the table, followed to its end
    let length = |list: &List| {
        let first = list.head(&register.entries);
        core::iter::successors(first, |at| register.entries.after(KEY, *at)).count()
    };
    assert_eq!(register.keys.iter().map(length).sum::<usize>(), register.len());
    let mut keys: Vec<_> = plain.iter().map(|p| p.key).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(register.snapshot().keys, keys.len());
    let due = plain.first().map_or(Time::NEVER, |p| p.since + PERSIST);
    let halving = plain.iter().filter(|p| p.buffer > 1).map(|p| p.last_halved + EVERY).min();
    assert_eq!(register.deadline(), due.min(halving.unwrap_or(Time::NEVER)));
}

/// Random operations beside a plain list: no answer that the list does not hold.
fn run<S: BuildHasher>(hasher: S, steps: &[Step]) {
    let config = Config { persist: PERSIST, halve_every: Some(EVERY) };
    let mut register = Register::new(config, hasher);
    let (mut plain, mut handles, mut now, mut id) =
        (Vec::<Plain>::new(), Vec::new(), Time::ZERO, 0);
    let leaves = |plain: &mut Vec<Plain>, at: Option<usize>, told: Option<Idle<u8, (u32, u64)>>| {
        let expected = at.map(|at| plain.remove(at));
        let told = told.map(|idle| (idle.key, idle.payload, idle.since));
        assert_eq!(told, expected.map(|p| (p.key, (p.id, p.buffer), p.since)));
    };
    for step in steps {
        match *step {
            Step::Insert { key, after_ms } => {
                now += ms(after_ms);
                handles.push((id, register.insert(now, key, (id, 16))));
                plain.push(Plain { key, id, since: now, last_halved: now, buffer: 16 });
                id += 1;
            }
            Step::Reuse { key } => {
                let at = plain.iter().rposition(|p| p.key == key);
                leaves(&mut plain, at, register.reuse(&key));
            }
            Step::Remove { at } if !handles.is_empty() => {
                let (id, handle) = handles[at % handles.len()];
                let at = plain.iter().position(|p| p.id == id);
                leaves(&mut plain, at, register.remove(handle));
            }
            Step::Remove { .. } => {}
            Step::Evict => {
                let at = (!plain.is_empty()).then_some(0);
                leaves(&mut plain, at, register.evict());
            }
            Step::Tick { after_ms } => {
                now += ms(after_ms);
                let expired = plain.iter().filter(|p| now >= p.since + PERSIST).count();
                for _ in 0..expired {
                    leaves(&mut plain, Some(0), register.due(now));
                }
                assert_eq!(register.due(now), None);
                let mut halved = 0;
                for p in plain.iter_mut().filter(|p| p.buffer > 1 && now >= p.last_halved + EVERY) {
                    (p.buffer, p.last_halved) = (p.buffer / 2, now);
                    halved += 1;
                }
                let told = register.shrink(now, |_, (_, buffer)| {
                    *buffer /= 2;
                    *buffer > 1
                });
                assert_eq!(told, halved);
            }
        }
        held(&register, &plain);
    }
    let told = register.snapshot();
    let left = told.reused + told.evicted + told.expired + told.removed;
    assert_eq!(u64::from(id), left + plain.len() as u64, "whoever came is here or was counted");
}

proptest! {
    #[test]
    fn register_keeps_order_of_idleness(steps in steps()) {
        run(RandomState::new(), &steps);
    }

    #[test]
    fn colliding_keys_change_nothing_but_the_time_it_takes(steps in steps()) {
        run(BuildHasherDefault::<Colliding>::default(), &steps);
    }
}

#[test]
fn after_warm_up_nothing_is_allocated() {
    let mut register = Register::with_capacity(Config::default(), RandomState::new(), 1_000);
    (0_u64..1_000).for_each(|n| _ = register.insert(Time::ZERO, n, n));
    let warm = register.capacity();
    for n in 1_000_u64..200_000 {
        let gone = if n % 3 == 0 { register.reuse(&(n - 1)) } else { register.evict() };
        assert!(gone.is_some());
        register.insert(Time::from_nanos(n), n, n);
    }
    assert_eq!((register.len(), register.capacity()), (1_000, warm));
}

#[test]
fn backward_clock_keeps_the_order() {
    let mut register = Register::new(Config::default(), RandomState::new());
    register.insert(Time::from_nanos(100), 1, ());
    register.insert(Time::from_nanos(50), 2, ());
    for key in [1, 2] {
        let first = register.evict().map(|idle| (idle.key, idle.since));
        assert_eq!(first, Some((key, Time::from_nanos(100))));
    }
}

#[test]
fn late_call_halves_once() {
    let config = Config { persist: Span::MAX, halve_every: Some(Span::from_secs(1)) };
    let mut register = Register::new(config, RandomState::new());
    register.insert(Time::ZERO, 1, ());
    assert_eq!(register.deadline(), at(1_000));
    assert_eq!(register.shrink(at(999), |_, ()| true), 0);
    assert_eq!(register.shrink(at(3_500), |_, ()| true), 1);
    assert_eq!(register.deadline(), at(4_500));
    assert_eq!(register.shrink(at(4_500), |_, ()| false), 1);
    assert_eq!(register.deadline(), Time::NEVER, "not to be halved again, never due");
}

#[test]
fn a_span_of_zero_halves_once_a_call() {
    let config = Config { persist: Span::MAX, halve_every: Some(Span::ZERO) };
    let mut register = Register::new(config, RandomState::new());
    (0..5).for_each(|n| _ = register.insert(Time::ZERO, n, ()));
    assert_eq!(register.shrink(Time::ZERO, |_, ()| true), 5);
}
