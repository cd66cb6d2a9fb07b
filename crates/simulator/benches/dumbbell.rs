//! What `experiments/compare` gives to ns-2 and ns-3, here, with the same arguments and the same line of
//! JSON: `cargo bench -p ekiden-simulator --bench dumbbell -- flows=100 rate=10 … repeat=9`. With `repeat`
//! the time is that of the quickest run.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use ekiden_model::network::tcp::preset::Flavour;
use ekiden_model::units::{Rate, Span};
use ekiden_simulator::applications::bulk::{self, BulkConfig};
use std::time::Instant;

fn main() {
    let mut config = BulkConfig::default();
    let (mut rate, mut delay, mut duration, mut repeat) = (10.0, 20.0, 300.0, 1_u32);
    let mut variant = "Newreno".to_owned();
    for argument in std::env::args().skip(1).filter(|argument| argument != "--bench") {
        let (name, value) = argument.split_once('=').expect("name=value");
        let number = || value.parse::<f64>().expect("a number");
        match name {
            "flows" => config.flows = number() as u32,
            "rate" => rate = number(),
            "delay" => delay = number(),
            "queue" => config.queue = number() as u64,
            "duration" => duration = number(),
            "apart" => config.apart = Span::from_nanos(number() as u64),
            "seed" => config.seed = number() as u64,
            "repeat" => repeat = number() as u32,
            "variant" => value.clone_into(&mut variant),
            // nothing is watched that could be left out
            "monitor" => {}
            _ => panic!("`{argument}` is not known"),
        }
    }
    config.flavour = match variant.as_str() {
        "Reno" => Flavour::Reno,
        "Newreno" => Flavour::NewReno,
        "Sack1" => Flavour::Sack,
        other => panic!("{other} is none of Reno, Newreno, Sack1"),
    };
    let mbit = |n: f64| Rate::from_bits_per_second((n * 1e6) as u64);
    let access = f64::max(100.0, 10.0 * rate);
    config.rate = mbit(rate);
    config.access.0 = mbit(access);
    config.delay = Span::from_nanos((delay * 1e6) as u64);
    let until = Span::from_nanos((duration * 1e9) as u64);
    let mut quickest = f64::INFINITY;
    let mut last = None;
    for _ in 0..repeat.max(1) {
        let begun = Instant::now();
        let result = bulk::run(&config, until).expect("a dumbbell has its routes");
        quickest = quickest.min(begun.elapsed().as_secs_f64());
        last = Some(result);
    }
    let (counts, _, [_, results]) = last.expect("one run at least");
    println!(
        "{{\"tool\": \"ekiden\", \"flows\": {}, \"rate_mbit\": {rate}, \"delay_ms\": {delay}, \
         \"queue\": {}, \"access_mbit\": {access}, \"variant\": \"{variant}\", \
         \"duration_s\": {duration}, \"seed\": {}, \"sent\": {}, \"retransmitted\": {}, \
         \"timeouts\": {}, \"drops\": {}, \"delivered\": {}, \"events\": {}, \"packets\": {}, \
         \"results\": \"{results:016x}\", \"loop_s\": {quickest:.6}}}",
        config.flows,
        config.queue,
        config.seed,
        counts.sent,
        counts.retransmitted,
        counts.timeouts,
        counts.dropped,
        counts.delivered / u64::from(config.mss),
        counts.events,
        counts.packets,
    );
}
