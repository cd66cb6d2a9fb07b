//! What a grant costs with ten thousand accounts of ten connections each: while there is enough for all, where
//! each account's own rate is full, and where the relay's is.
//!
//! `cargo bench -p ekiden-model --bench quota`; nothing else should run.

use ekiden_model::resources::quota::{Config, Direction, Flow, Limits, Quota, QuotaAnswer};
use ekiden_model::rng::Rng;
use ekiden_model::units::{Bytes, Rate, Span, Time};
use std::hint::black_box;
use std::time::Instant;

const REPEATS: usize = 7;
const ACCOUNTS: usize = 10_000;
const EACH: usize = 10;
const GRANTS: u64 = 1_000_000;
const WANT: Bytes = Bytes::kib(64);

/// Median, least and most.
fn row(name: &str, mut samples: Vec<f64>) {
    samples.sort_by(f64::total_cmp);
    let (least, most) = (samples[0], samples[samples.len() - 1]);
    println!("{name:<52}{:>10.1} ns ({least:.1} … {most:.1})", samples[samples.len() / 2]);
}

fn rate(bits: u64) -> Option<Rate> {
    Some(Rate::from_bits_per_second(bits))
}

/// Everybody's connections, in no order.
fn world(relay: Option<Rate>, own: Option<Rate>) -> (Quota, Vec<Flow>) {
    let mut quota = Quota::new(Config { rates: [None, relay] }, Time::ZERO);
    let limits = Limits { rates: [None, own], ..Limits::default() };
    let mut flows = Vec::new();
    for _ in 0..ACCOUNTS {
        let account = quota.join(Time::ZERO, limits);
        flows.extend((0..EACH).filter_map(|_| quota.admit(Time::ZERO, account).ok()));
    }
    assert_eq!(flows.len(), ACCOUNTS * EACH);
    let mut rng = Rng::new(1);
    (1..flows.len()).rev().for_each(|at| flows.swap(at, rng.below(at as u64 + 1) as usize));
    (quota, flows)
}

/// Asked, given, moved: nobody waits.
fn enough(name: &str, own: Option<Rate>) {
    let mut samples = Vec::new();
    let (mut quota, flows) = world(None, own);
    for repeat in 0..REPEATS as u64 {
        let now = Time::ZERO + Span::from_secs(repeat * 1_000);
        let begun = Instant::now();
        for n in 0..GRANTS {
            let flow = flows[(n as usize) % flows.len()];
            let answer = quota.ask(now, flow, Direction::Down, WANT);
            let QuotaAnswer::Go(bytes) = black_box(answer) else { continue };
            quota.on_moved(now, flow, Direction::Down, bytes);
        }
        samples.push(begun.elapsed().as_nanos() as f64 / GRANTS as f64);
    }
    row(name, samples);
}

/// Everybody wants more than there is: asked, waited, called, asked again, moved.
fn full(name: &str, relay: Option<Rate>, own: Option<Rate>) {
    let mut samples = Vec::new();
    let (mut quota, flows) = world(relay, own);
    let mut now = Time::ZERO;
    for flow in &flows {
        while let QuotaAnswer::Go(bytes) = quota.ask(now, *flow, Direction::Down, WANT) {
            quota.on_moved(now, *flow, Direction::Down, bytes);
        }
    }
    for _ in 0..REPEATS {
        let begun = Instant::now();
        let mut grants = 0;
        while grants < GRANTS {
            now = quota.deadline();
            quota.on_deadline(now);
            while let Some((flow, direction)) = quota.next_ready() {
                while let QuotaAnswer::Go(bytes) = quota.ask(now, flow, direction, WANT) {
                    grants += 1;
                    quota.on_moved(now, flow, direction, bytes);
                }
            }
        }
        samples.push(begun.elapsed().as_nanos() as f64 / grants as f64);
    }
    row(name, samples);
}

fn main() {
    let (accounts, flows) = (ACCOUNTS, ACCOUNTS * EACH);
    println!("{accounts} accounts, {flows} connections; medians of {REPEATS} (least … most)\n");
    enough("a grant, no limits", None);
    enough("a grant within the account's rate", rate(1_000_000_000_000));
    full("a grant where each account's rate is full", None, rate(5_000_000));
    full("a grant where the relay's rate is full", rate(10_000_000_000), None);
    full("a grant where both are", rate(10_000_000_000), rate(5_000_000));
}
