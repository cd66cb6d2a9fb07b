//! What `experiments/compare` has kept of ns-2, and the same runs here.

use ekiden_model::network::tcp::preset::Flavour;
use ekiden_model::units::{Rate, Span};
use ekiden_simulator::applications::bulk::{self, BulkConfig};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What is compared, as its files call it.
pub(crate) const NAMES: [&str; 5] = ["delivered", "sent", "drops", "timeouts", "retransmitted"];
/// What may differ, as a share: throughput, drops, timeouts and repetitions as the comparison asks.
pub(crate) const WITHIN: [f64; 5] = [0.01, 0.01, 0.05, 0.10, 0.10];

/// Counts in the order of [`NAMES`].
pub(crate) type Counts = [f64; 5];

/// One scenario with its seeds.
pub(crate) struct Kept {
    pub(crate) scenario: String,
    pub(crate) runs: Vec<Value>,
}

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/results/ns2")
}

impl Kept {
    pub(crate) fn read(file: &Path) -> Self {
        let document: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let scenario = document["scenario"].as_str().unwrap().to_owned();
        Self { scenario, runs: document["runs"].as_array().unwrap().clone() }
    }

    /// Their means over all seeds.
    pub(crate) fn theirs(&self) -> Counts {
        mean(self.runs.iter().map(|run| NAMES.map(|name| run[name].as_f64().unwrap())))
    }

    /// Our means over the first `seeds` of theirs.
    pub(crate) fn ours(&self, seeds: usize) -> Counts {
        mean(self.runs.iter().take(seeds).map(one))
    }
}

fn mean(runs: impl Iterator<Item = Counts>) -> Counts {
    let runs: Vec<_> = runs.collect();
    std::array::from_fn(|at| runs.iter().map(|run| run[at]).sum::<f64>() / runs.len() as f64)
}

/// The same run here.
fn one(run: &Value) -> Counts {
    let number = |name: &str| run[name].as_f64().unwrap();
    let mbit = |n: f64| Rate::from_bits_per_second((n * 1e6) as u64);
    let config = BulkConfig {
        flows: number("flows") as u32,
        rate: mbit(number("rate_mbit")),
        delay: Span::from_nanos((number("delay_ms") * 1e6) as u64),
        queue: number("queue") as u64,
        access: (mbit(number("access_mbit")), Span::from_millis(1)),
        flavour: match run["variant"].as_str().unwrap() {
            "Reno" => Flavour::Reno,
            "Sack1" => Flavour::Sack,
            _ => Flavour::NewReno,
        },
        seed: number("seed") as u64,
        ..BulkConfig::default()
    };
    let until = Span::from_nanos((number("duration_s") * 1e9) as u64);
    let (counts, ..) = bulk::run(&config, until).unwrap();
    let delivered = counts.delivered / u64::from(config.mss);
    [delivered, counts.sent, counts.dropped, counts.timeouts, counts.retransmitted]
        .map(|n| n as f64)
}
