//! Our counts beside ns-2's, kept in `experiments/results/ns2`: `cargo bench -p ekiden-simulator --bench
//! agreement`. Means over the seeds that were kept, and ours over as many.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use ekiden_model::tcp::preset::Flavour;
use ekiden_model::units::{Rate, Span};
use ekiden_simulator::bulk::{self, BulkConfig};
use serde_json::Value;
use std::path::Path;

const NAMES: [&str; 5] = ["delivered", "sent", "drops", "timeouts", "retransmitted"];
/// What may differ, in per cent: throughput, drops, timeouts and repetitions as the comparison asks.
const WITHIN: [f64; 5] = [1.0, 1.0, 5.0, 10.0, 10.0];

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/results/ns2");
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    println!("{:<12} {}", "", NAMES.map(|name| format!("{name:>27}")).join(""));
    for file in files {
        let document: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let name = document["scenario"].as_str().unwrap();
        if name.starts_with("speed") {
            continue;
        }
        let runs: Vec<&Value> = document["runs"].as_array().unwrap().iter().collect();
        let mean = |name: &str| {
            runs.iter().map(|run| run[name].as_f64().unwrap()).sum::<f64>() / runs.len() as f64
        };
        let ours: Vec<[f64; 5]> = runs.iter().map(|run| one(run)).collect();
        let cells = NAMES.iter().zip(WITHIN).enumerate().map(|(at, (name, within))| {
            let (theirs, ours) =
                (mean(name), ours.iter().map(|run| run[at]).sum::<f64>() / ours.len() as f64);
            let off = if theirs > 0.0 { (ours / theirs - 1.0) * 100.0 } else { ours };
            let mark = if off.abs() <= within { ' ' } else { '!' };
            format!("{theirs:>9.0} {ours:>9.0} {off:>5.1} %{mark}")
        });
        println!("{name:<12} {}", cells.collect::<Vec<_>>().join(""));
    }
}

fn one(run: &Value) -> [f64; 5] {
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
