//! The scenario that `experiments/compare` gives to ns-2 and ns-3, here: `cargo bench -p
//! ekiden-simulator --bench dumbbell -- --flows 100 --rate 10Mbit/s … --repeat 9`. One line of JSON.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use ekiden_model::tcp::preset::Flavour;
use ekiden_model::units::Span;
use ekiden_simulator::bulk::{self, BulkConfig};
use std::time::Instant;

fn main() {
    let mut config = BulkConfig::default();
    let mut duration = Span::from_secs(300);
    let mut repeat = 1;
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { panic!("{pair:?}: a name without a value") };
        match name.as_str() {
            "--flows" => config.flows = value.parse().unwrap(),
            "--rate" => config.rate = value.parse().unwrap(),
            "--delay" => config.delay = value.parse().unwrap(),
            "--queue" => config.queue = value.parse().unwrap(),
            "--access" => config.access.0 = value.parse().unwrap(),
            "--apart" => config.apart = value.parse().unwrap(),
            "--duration" => duration = value.parse().unwrap(),
            "--repeat" => repeat = value.parse().unwrap(),
            "--seed" => config.seed = value.parse().unwrap(),
            "--variant" => {
                config.flavour = match value.as_str() {
                    "Reno" => Flavour::Reno,
                    "Newreno" => Flavour::NewReno,
                    "Sack1" => Flavour::Sack,
                    other => panic!("{other} is none of Reno, Newreno, Sack1"),
                };
            }
            other => panic!("{other} is not known"),
        }
    }
    let mut times = Vec::new();
    let mut last = None;
    for _ in 0..repeat {
        let begun = Instant::now();
        let result = bulk::run(&config, duration).unwrap();
        times.push(begun.elapsed().as_secs_f64());
        last = Some(result);
    }
    times.sort_by(f64::total_cmp);
    let (counts, delays, prints) = last.unwrap();
    let router = delays.kind(0).and_then(|parts| parts.router.summary());
    println!(
        "{{\"tool\":\"ekiden\",\"sent\":{},\"retransmitted\":{},\"timeouts\":{},\"dropped\":{},\
         \"delivered\":{},\"events\":{},\"packets\":{},\"seconds_min\":{:.4},\"seconds_median\":{:.4},\
         \"router_ms_mean\":{:.2},\"fingerprint\":\"{:016x}\"}}",
        counts.sent,
        counts.retransmitted,
        counts.timeouts,
        counts.dropped,
        counts.delivered / u64::from(config.mss),
        counts.events,
        counts.packets,
        times.first().unwrap(),
        times[times.len() / 2],
        router.map_or(0.0, |summary| summary.mean / 1e6),
        prints[1],
    );
}
