//! The wheel against a heap, which is slower and plainly right.

use super::*;
use ekiden_model::rng::Rng;
use ekiden_model::units::Span;
use ekiden_record::fingerprint::Fingerprint;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The oracle: the same questions, answered by the standard library.
#[derive(Default)]
struct Heap {
    heap: BinaryHeap<Reverse<(Time, u64, u64)>>,
    pushed: u64,
}

impl Heap {
    fn push(&mut self, at: Time, event: u64) {
        self.heap.push(Reverse((at, self.pushed, event)));
        self.pushed += 1;
    }

    fn pop(&mut self) -> Option<(Time, u64)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }

    fn pop_by(&mut self, until: Time) -> Option<(Time, u64)> {
        self.heap.peek().filter(|Reverse((at, ..))| *at <= until)?;
        self.pop()
    }
}

#[derive(Debug, Clone)]
enum Do {
    Push(u64, usize),
    /// An event for this instant, or for now when that is past.
    PushAt(u64),
    Pop(usize),
    PopBy(u64),
    Drain,
}

/// Lengths of time of every size, the edges of ticks and slots among them.
fn delay() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        0_u64..5_000,
        0_u64..1_000_000,
        (0_u32..64, 0_u64..3).prop_map(|(bits, off)| (1_u64 << bits).saturating_add(off) - 1),
        (0_u32..64, any::<u64>()).prop_map(|(bits, n)| n >> bits),
    ]
}

fn action() -> impl Strategy<Value = Do> {
    prop_oneof![
        4 => (delay(), 1_usize..3).prop_map(|(delay, count)| Do::Push(delay, count)),
        1 => (delay(), 1_usize..80).prop_map(|(delay, count)| Do::Push(delay, count)),
        1 => (0_u64..3).prop_map(|before| Do::PushAt(u64::MAX - before)),
        1 => any::<u64>().prop_map(Do::PushAt),
        4 => (1_usize..4).prop_map(Do::Pop),
        1 => (1_usize..100).prop_map(Do::Pop),
        3 => delay().prop_map(Do::PopBy),
        1 => Just(Do::Drain),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_wheel_pops_what_the_heap_pops(
        begin in delay(),
        actions in proptest::collection::vec(action(), 1..120),
    ) {
        let mut wheel = Events::new(Time::from_nanos(begin));
        let mut heap = Heap::default();
        let mut number = 0;
        for action in actions {
            let pops = match action {
                Do::Push(delay, count) => {
                    for _ in 0..count {
                        number += 1;
                        let at = wheel.now() + Span::from_nanos(delay);
                        wheel.push(at, number);
                        heap.push(at, number);
                    }
                    0
                }
                Do::PushAt(at) => {
                    number += 1;
                    let at = Time::from_nanos(at).max(wheel.now());
                    wheel.push(at, number);
                    heap.push(at, number);
                    0
                }
                Do::PopBy(delay) => {
                    let until = wheel.now() + Span::from_nanos(delay);
                    prop_assert_eq!(wheel.pop_by(until), heap.pop_by(until));
                    0
                }
                Do::Pop(count) => count,
                Do::Drain => usize::MAX,
            };
            for _ in 0..pops {
                let popped = wheel.pop();
                prop_assert_eq!(popped, heap.pop());
                prop_assert_eq!(wheel.len(), heap.heap.len());
                prop_assert_eq!(wheel.is_empty(), popped.is_none() || heap.heap.is_empty());
                let Some((at, _)) = popped else { break };
                prop_assert_eq!(wheel.now(), at);
            }
        }
        while let Some(last) = heap.pop() {
            prop_assert_eq!(wheel.pop(), Some(last));
        }
        prop_assert_eq!(wheel.pop(), None);
        prop_assert!(wheel.is_empty());
    }
}

/// Events that beget each other for a while: `held` of them, each pop followed by a push.
fn hold(held: u64, pops: u64) -> (Events<u64>, Fingerprint) {
    let mut rng = Rng::new(held);
    let mut events = Events::new(Time::ZERO);
    // as packets are: serialisation, access, propagation, long propagation, timers
    let mut delay = move || match rng.below(5) {
        0 => Span::from_nanos(120_000 - rng.below(100)),
        1 => Span::from_nanos(1_200_000),
        2 => Span::from_nanos(1_000_000),
        3 => Span::from_nanos(20_000_000 + rng.below(4)),
        _ => Span::from_nanos(200_000_000 + rng.below(1 << 20)),
    };
    (0..held).for_each(|n| events.push(Time::ZERO + delay(), n));
    let mut fingerprint = Fingerprint::new();
    for n in 0..pops {
        let Some((at, event)) = events.pop() else { break };
        fingerprint.add_all([at.as_nanos(), event]);
        events.push(at + delay(), held + n);
    }
    (events, fingerprint)
}

#[test]
fn a_run_is_the_same_in_every_build() {
    // counted once by another implementation in another language, sorting with a heap
    assert_eq!(hold(1_000, 100_000).1.to_string(), "84b2138c5a272afb");
}

#[test]
fn equal_times_come_in_the_order_of_pushing() {
    let mut events = Events::new(Time::ZERO);
    let at = Time::from_nanos(3_600_000_000_000);
    (0..1_000_u32).for_each(|n| events.push(at, n));
    // from within the very time, too
    assert_eq!(events.pop(), Some((at, 0)));
    (1_000..2_000).for_each(|n| events.push(at, n));
    let order: Vec<u32> = std::iter::from_fn(|| events.pop()).map(|(_, n)| n).collect();
    assert_eq!(order, (1..2_000).collect::<Vec<_>>());
}

#[test]
fn an_earlier_event_overtakes_one_that_was_peeked() {
    let mut events = Events::new(Time::ZERO);
    events.push(Time::from_nanos(1 << 40), 'c');
    assert_eq!(events.pop_by(Time::from_nanos((1 << 40) - 1)), None);
    events.push(Time::from_nanos(70_000), 'b');
    events.push(Time::from_nanos(5), 'a');
    events.push(Time::NEVER, 'd');
    assert_eq!(events.now(), Time::ZERO);
    let order: String = std::iter::from_fn(|| events.pop()).map(|(_, name)| name).collect();
    assert_eq!(order, "abcd");
    assert_eq!(events.now(), Time::NEVER);
    events.push(Time::NEVER, 'e');
    assert_eq!(events.pop(), Some((Time::NEVER, 'e')));
}

#[test]
fn the_front_stays_short_unless_one_tick_is_crowded() {
    let mut events = Events::new(Time::ZERO);
    // few in a slot of 134 ms come to the front at once; what joins them there is soon too much
    let begin = Time::from_nanos(5 << 30);
    (0..5).for_each(|n| events.push(begin + Span::from_millis(20 * n), n));
    assert_eq!(events.pop(), Some((begin, 0)));
    assert_eq!(events.front.len(), 4);
    for n in 0..1_000 {
        events.push(begin + Span::from_micros(300 * (n * 7 % 1_000)), n);
        assert!(events.front.len() <= 32, "{}", events.front.len());
    }
    // a slot of many does not come at once, however few its first block holds: here 16 at most
    let mut events = Events::new(Time::ZERO);
    (0..1_000).for_each(|n| events.push(begin + Span::from_micros(300 * n), n));
    assert_eq!(events.pop(), Some((begin, 0)));
    assert!(events.front.len() <= 16, "{}", events.front.len());
    // nor does looking far ahead make a front of all that is pushed for before
    let mut events = Events::new(Time::ZERO);
    events.push(Time::NEVER, 0);
    assert_eq!(events.pop_by(Time::ZERO), None);
    for n in 0..1_000 {
        events.push(Time::from_nanos(10_000 * (n * 7 % 1_000)), n);
        assert!(events.front.len() <= 32, "{}", events.front.len());
    }
}

#[test]
fn room_is_made_once_and_is_bounded_by_the_most_events_there_were() {
    // one partial block in each of the nine times 64 slots, and the rest full
    let bound = |held: usize| 576 + held / 16;
    let (mut events, _) = hold(10_000, 1_000_000);
    let made = events.wheel.room();
    assert!(made <= bound(10_000), "{made}");
    for n in 0..1_000_000 {
        let (at, event) = events.pop().unwrap();
        // far and near by turns, so that every block goes everywhere
        let delay = Span::from_nanos(1 << (n * 7 % 31));
        events.push(at + delay, event);
    }
    assert!(events.wheel.room() <= bound(10_000), "{} after {made}", events.wheel.room());
    // a burst at one instant goes through the front, whose room is that of the burst
    let at = events.now() + Span::from_secs(1_000);
    (0..10_000).for_each(|n| events.push(at, n));
    while events.pop().is_some() {}
    assert!(events.front.capacity() <= 2 * 16_384, "{}", events.front.capacity());
    assert!(events.wheel.room() <= bound(20_000));
}

#[test]
fn an_entry_takes_24_bytes() {
    assert_eq!(size_of::<Entry<u64>>(), 24);
    assert_eq!(size_of::<Entry<Option<u32>>>(), 24);
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "an event for 4 ns is pushed at 5 ns"))]
fn past_events_count_as_now() {
    let mut events = Events::new(Time::from_nanos(5));
    events.push(Time::from_nanos(5), 'a');
    events.push(Time::from_nanos(4), 'b');
    let order: Vec<_> = std::iter::from_fn(|| events.pop()).collect();
    assert_eq!(order, [(Time::from_nanos(5), 'a'), (Time::from_nanos(5), 'b')]);
}
