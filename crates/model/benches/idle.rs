//! What idle connections cost: inserting, finding again and closing one of a million; and what a tick
//! costs that shares a pool out among ten thousand connections.
//!
//! `cargo bench -p ekiden-model --bench idle`; nothing else should run.

use ekiden_model::resources::buffers::{
    Allocator, Config, ConnectionFacts, Enough, Excess, NewConnection, RENO, Scheme, Side, allocate,
};
use ekiden_model::resources::idle::{self, Pool, Register};
use ekiden_model::resources::overload::{
    Admission, AdmissionConfig, AdmissionVerdict, Pressure, Resource, Watermarks,
};
use ekiden_model::rng::Rng;
use ekiden_model::units::{Bytes, Rate, Span, Time};
use std::hash::RandomState;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

const REPEATS: usize = 7;
const ENTRIES: u64 = 1_000_000;
const CONNECTIONS: u64 = 10_000;

/// A client by its address and port, as a daemon would keep it.
type Key = Pool<(IpAddr, u16), (IpAddr, u16)>;

fn key(n: u64) -> Key {
    // spread over addresses, so that neighbours in time are none in the table
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Pool::Client((IpAddr::V4(Ipv4Addr::from_bits((mixed >> 32) as u32)), n as u16))
}

/// Median, least and most.
fn spread(mut samples: Vec<f64>) -> (f64, f64, f64) {
    samples.sort_by(f64::total_cmp);
    (samples[samples.len() / 2], samples[0], samples[samples.len() - 1])
}

fn row(name: &str, unit: &str, samples: Vec<f64>) {
    let (median, least, most) = spread(samples);
    println!("{name:<52}{median:>10.1} {unit} ({least:.1} … {most:.1})");
}

/// Nanoseconds for each of `n` operations.
fn each(n: u64, mut operation: impl FnMut(u64)) -> f64 {
    let begun = Instant::now();
    (0..n).for_each(&mut operation);
    begun.elapsed().as_nanos() as f64 / n as f64
}

fn register() {
    let names = ["insert", "reuse, any order", "evict", "evict one and insert one, of a million"];
    let halve = "halve one's buffers";
    let mut samples = [(); 5].map(|()| Vec::new());
    for _ in 0..REPEATS {
        let config =
            idle::Config { halve_every: Some(Span::from_secs(1)), ..idle::Config::default() };
        let mut register = Register::with_capacity(config, RandomState::new(), ENTRIES as usize);
        let fill = |register: &mut Register<Key, u64, RandomState>| {
            each(ENTRIES, |n| _ = black_box(register.insert(Time::from_nanos(n), key(n), n)))
        };
        // once to have every page of memory: what is measured is not the kernel
        fill(&mut register);
        while register.evict().is_some() {}
        samples[0].push(fill(&mut register));
        let mut order: Vec<u64> = (0..ENTRIES).collect();
        let mut rng = Rng::new(1);
        (1..order.len()).rev().for_each(|at| order.swap(at, rng.below(at as u64 + 1) as usize));
        samples[1].push(each(ENTRIES, |n| _ = black_box(register.reuse(&key(order[n as usize])))));
        assert!(register.is_empty());
        fill(&mut register);
        samples[2].push(each(ENTRIES, |_| _ = black_box(register.evict())));
        assert!(register.is_empty());
        fill(&mut register);
        samples[3].push(each(ENTRIES, |n| {
            black_box(register.evict());
            register.insert(Time::from_nanos(ENTRIES + n), key(ENTRIES + n), n);
        }));
        let begun = Instant::now();
        let halved = register.shrink(Time::ZERO + Span::from_secs(2), |_, buffer| *buffer > 1);
        samples[4].push(begun.elapsed().as_nanos() as f64 / halved as f64);
        assert_eq!(register.len() as u64, ENTRIES);
    }
    for (name, samples) in names.into_iter().chain([halve]).zip(samples) {
        row(&format!("{ENTRIES} idle: {name}"), "ns", samples);
    }
}

fn admission() {
    let mut samples = Vec::new();
    for _ in 0..REPEATS {
        let config =
            AdmissionConfig { most_waiting: ENTRIES as usize, ..AdmissionConfig::default() };
        let mut admission = Admission::new(config);
        let mut pressure = Pressure::new(Watermarks::default());
        pressure.on_level(Resource::Connections, 200, Some(200));
        samples.push(each(ENTRIES, |n| {
            let verdict = admission.ask(Time::from_nanos(n), n, &pressure, 0);
            assert!(matches!(verdict, AdmissionVerdict::Wait(_)));
            if n % 2 == 1 {
                black_box(admission.next(&pressure, 1));
            }
        }));
    }
    row("admission: one waits, every second is let in", "ns", samples);
}

fn allocation() {
    let mut rng = Rng::new(1);
    let demands: Vec<u64> = (0..CONNECTIONS).map(|_| rng.below(4 << 20)).collect();
    let pool = demands.iter().sum::<u64>() / 2;
    for excess in [Excess::Proportional, Excess::Equal] {
        let run = |_| each(1, |_| _ = black_box(allocate(&demands, pool, excess))) / 1e3;
        let name = format!("allocate among {CONNECTIONS}, half of what is asked, {excess:?}");
        row(&name, "µs", (0..REPEATS).map(run).collect());
    }
}

/// A whole tick: estimates, pairs, allocation, hysteresis, changes.
fn tick() {
    let config = Config { enough: Enough::Demand, ..Scheme::Buffers.buffers(Bytes::mib(256)) };
    let mut allocator = Allocator::new(config, Time::ZERO);
    let mut rng = Rng::new(1);
    for id in 0..CONNECTIONS {
        allocator.on_open(
            Time::ZERO,
            id,
            NewConnection { gamma: RENO, ..NewConnection::default() },
        );
        allocator.on_known(
            id,
            Side::Receive,
            Some(Rate::from_bits_per_second(rng.below(20_000_000))),
        );
        if id % 2 == 1 {
            allocator.on_pair(id - 1, id);
        }
    }
    let (mut now, mut changed, mut looks, mut ticks) = (Time::ZERO, 0, Vec::new(), Vec::new());
    for round in 1..=REPEATS as u64 {
        now += Span::from_secs(1);
        let facts: Vec<ConnectionFacts> = (0..CONNECTIONS)
            .map(|_| {
                let rtt = Span::from_millis(1 + rng.below(300));
                let rto = Span::from_millis(200 + rtt.as_millis());
                let (sent, lost) = (1_000 * round, rng.below(8) * round);
                let mss = 1_460;
                let queued = rng.below(9_000);
                ConnectionFacts {
                    rtt,
                    rto,
                    mss,
                    segments_sent: sent,
                    retransmitted: lost,
                    queued,
                    ..ConnectionFacts::default()
                }
            })
            .collect();
        looks.push(each(CONNECTIONS, |id| allocator.on_facts(now, id, &facts[id as usize])));
        let begun = Instant::now();
        let changes = allocator.on_deadline(now);
        ticks.push(begun.elapsed().as_nanos() as f64 / 1e3);
        changed += changes.len();
    }
    let told = allocator.snapshot();
    assert!(told.short && told.granted <= told.budget);
    row("a look at one connection", "ns", looks);
    row(&format!("a tick of {CONNECTIONS} connections, {} buffers", 2 * CONNECTIONS), "µs", ticks);
    println!(
        "    {} changes a tick, {} of {} granted",
        changed / REPEATS,
        told.granted,
        told.budget
    );
}

fn main() {
    println!("medians of {REPEATS} (least … most)\n");
    register();
    admission();
    allocation();
    tick();
}
