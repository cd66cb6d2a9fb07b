//! ns-2.35's counts, kept in `experiments/results/ns2`, beside ours: some of the scenarios, one seed.
//! All of them, and more seeds: `cargo bench -p ekiden-simulator --bench agreement`.
#![allow(clippy::unwrap_used)]

mod kept;

use kept::{Kept, NAMES, WITHIN};

fn compare(scenario: &str) {
    let kept = Kept::read(&kept::folder().join(format!("{scenario}.json")));
    assert_eq!(kept.scenario, scenario);
    let (theirs, ours) = (kept.theirs(), kept.ours(1));
    for at in 0..NAMES.len() {
        let off = ours[at] / theirs[at] - 1.0;
        let (name, ours, theirs) = (NAMES[at], ours[at], theirs[at]);
        assert!(off.abs() <= WITHIN[at], "{scenario}, {name}: {ours} beside {theirs}");
    }
}

#[test]
fn a_hundred_flows() {
    compare("base");
}

#[test]
fn a_slow_bottleneck() {
    compare("rate-2");
}

#[test]
fn a_short_queue() {
    compare("queue-20");
}

#[test]
fn reno() {
    compare("reno");
}

#[test]
fn selective_acknowledgements() {
    compare("sack1");
}
