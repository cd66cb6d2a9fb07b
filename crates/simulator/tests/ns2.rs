//! ns-2.35's counts, kept in `experiments/results/ns2`, beside ours: some of the scenarios, one seed.
//! All of them, and more seeds: `cargo bench -p ekiden-simulator --bench agreement`.
#![allow(clippy::unwrap_used)]

use ekiden_model::tcp::preset::Flavour;
use ekiden_model::units::{Rate, Span};
use ekiden_simulator::bulk::{self, BulkConfig, Counts};
use serde_json::Value;
use std::path::Path;

/// ns-2's means over its seeds.
fn theirs(scenario: &str) -> [f64; 4] {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/results/ns2");
    let text = std::fs::read(folder.join(format!("{scenario}.json"))).unwrap();
    let document: Value = serde_json::from_slice(&text).unwrap();
    let runs = document["runs"].as_array().unwrap();
    ["delivered", "drops", "timeouts", "retransmitted"].map(|name| {
        runs.iter().map(|run| run[name].as_f64().unwrap()).sum::<f64>() / runs.len() as f64
    })
}

fn compare(scenario: &str, change: impl FnOnce(&mut BulkConfig)) {
    let mut config = BulkConfig::default();
    change(&mut config);
    let (counts, ..) = bulk::run(&config, Span::from_secs(300)).unwrap();
    let Counts { delivered, dropped, timeouts, retransmitted, .. } = counts;
    let delivered = delivered / u64::from(config.mss);
    let ours = [delivered, dropped, timeouts, retransmitted].map(|n| n as f64);
    let within = [0.01, 0.05, 0.10, 0.10];
    let theirs = theirs(scenario);
    for ((theirs, ours), within) in theirs.iter().zip(ours).zip(within) {
        let off = ours / theirs - 1.0;
        assert!(off.abs() <= within, "{scenario}: {ours} beside {theirs}");
    }
}

#[test]
fn a_hundred_flows() {
    compare("base", |_| {});
}

#[test]
fn a_slow_bottleneck() {
    compare("rate-2", |config| config.rate = Rate::from_bits_per_second(2_000_000));
}

#[test]
fn a_short_queue() {
    compare("queue-20", |config| config.queue = 20);
}

#[test]
fn reno() {
    compare("reno", |config| config.flavour = Flavour::Reno);
}

#[test]
fn selective_acknowledgements() {
    compare("sack1", |config| config.flavour = Flavour::Sack);
}
