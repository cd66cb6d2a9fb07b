//! What an event costs: the hold model (one pop and one push, over and over, with a constant number of
//! events) in nanoseconds, beside the standard library's binary heap in the same run.
//!
//! `cargo bench -p ekiden-simulator --bench events`; ratios are what to compare between machines.

use ekiden_model::rng::Rng;
use ekiden_model::units::{Span, Time};
use ekiden_record::fingerprint::Fingerprint;
use ekiden_simulator::events::Events;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

const HOLDS: usize = 1_000_000;
const REPEATS: usize = 5;
/// Delays are drawn before the clock starts, and used in turn.
const DRAWN: usize = 1 << 14;

/// A queue of numbers as both are used here.
trait Queue {
    fn empty() -> Self;
    fn push(&mut self, at: Time, event: u64);
    fn pop(&mut self) -> Option<(Time, u64)>;
}

impl Queue for Events<u64> {
    fn empty() -> Self {
        Self::new(Time::ZERO)
    }
    fn push(&mut self, at: Time, event: u64) {
        self.push(at, event);
    }
    fn pop(&mut self) -> Option<(Time, u64)> {
        self.pop()
    }
}

#[derive(Default)]
struct Heap {
    heap: BinaryHeap<Reverse<(Time, u64, u64)>>,
    pushed: u64,
}

impl Queue for Heap {
    fn empty() -> Self {
        Self::default()
    }
    fn push(&mut self, at: Time, event: u64) {
        self.heap.push(Reverse((at, self.pushed, event)));
        self.pushed += 1;
    }
    fn pop(&mut self) -> Option<(Time, u64)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}

/// What packets bring: serialisation, access, propagation near and far, timers.
fn packets(rng: &mut Rng) -> Span {
    let delays = [120, 1_200, 1_000, 20_000, 200_000];
    Span::from_micros(delays[rng.below(delays.len() as u64) as usize])
}

/// Exponential with a mean of 1 ms.
fn exponential(rng: &mut Rng) -> Span {
    let unit = (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    Span::from_nanos((-(1.0 - unit).ln() * 1e6) as u64)
}

/// The best of some repeats in nanoseconds a hold, and what was popped.
fn hold<Q: Queue>(events: usize, delays: &[Span]) -> (f64, Fingerprint) {
    let mut best = f64::INFINITY;
    let mut popped = Fingerprint::new();
    for _ in 0..REPEATS {
        let mut queue = Q::empty();
        let mut rng = Rng::new(7);
        for event in 0..events as u64 {
            let within = delays[rng.below(DRAWN as u64) as usize].as_nanos();
            queue.push(Time::from_nanos(rng.below(within + 1)), event);
        }
        let mut delays = delays.iter().cycle();
        let mut turn = |queue: &mut Q, fingerprint: &mut Fingerprint| {
            if let (Some((at, event)), Some(delay)) = (queue.pop(), delays.next()) {
                fingerprint.add(at.as_nanos() ^ event);
                queue.push(at + *delay, event);
            }
        };
        // until the mix of what is held is that of a long run
        let mut fingerprint = Fingerprint::new();
        (0..2 * events).for_each(|_| turn(&mut queue, &mut fingerprint));
        let begun = Instant::now();
        (0..HOLDS).for_each(|_| turn(&mut queue, &mut fingerprint));
        best = best.min(begun.elapsed().as_nanos() as f64 / HOLDS as f64);
        popped = fingerprint;
    }
    (best, popped)
}

/// Everything at one instant and each pop followed by a push for the same: what the wheel is worst at.
fn burst<Q: Queue>(events: usize) -> f64 {
    let mut queue = Q::empty();
    let at = Time::from_nanos(1_000_000_000);
    let begun = Instant::now();
    (0..events as u64).for_each(|event| queue.push(at, event));
    for _ in 0..events {
        if let Some((at, event)) = queue.pop() {
            queue.push(at, event);
        }
    }
    while queue.pop().is_some() {}
    begun.elapsed().as_nanos() as f64 / (2 * events) as f64
}

fn main() {
    println!("ns a pop and push, best of {REPEATS} times {HOLDS}\n");
    println!("{:<28}{:>8}{:>8}{:>8}{:>8}", "mix", "events", "wheel", "heap", "ratio");
    let row = |name: &str, events: usize, wheel: f64, heap: f64| {
        println!("{name:<28}{events:>8}{wheel:>8.1}{heap:>8.1}{:>8.2}", heap / wheel);
    };
    type Mix = fn(&mut Rng) -> Span;
    let mixes: [(&str, Mix); 2] =
        [("packets, 0.12 to 200 ms", packets), ("exponential, 1 ms", exponential)];
    for (name, mix) in mixes {
        let mut rng = Rng::new(1);
        let delays: Vec<Span> = (0..DRAWN).map(|_| mix(&mut rng)).collect();
        for events in [256, 4_096, 65_536] {
            let (wheel, popped) = hold::<Events<u64>>(events, &delays);
            let (heap, expected) = hold::<Heap>(events, &delays);
            assert_eq!(popped, expected, "{name}, {events}: not the same events");
            row(name, events, wheel, heap);
        }
    }
    for events in [256, 4_096] {
        row("all at one instant", events, burst::<Events<u64>>(events), burst::<Heap>(events));
    }
}
