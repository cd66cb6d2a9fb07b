//! One run of the proxy study as a line of JSON, and how long it took:
//! `cargo bench -p ekiden-simulator --bench proxy -- scheme=3 clients=200 seed=1`. Further arguments:
//! `seconds`, `patience` and `persist` in seconds, `knowledge=estimated`, `era=linux`.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use ekiden_model::network::tcp::preset::Era;
use ekiden_model::resources::buffers::Scheme;
use ekiden_model::units::{Span, Time};
use ekiden_simulator::applications::proxy::{self, Knowledge, ProxyConfig};
use std::time::Instant;

fn main() {
    let mut config = ProxyConfig::study(Scheme::Connections, 200, 1);
    let (mut scheme, mut seconds) = (3_usize, 300);
    let mut changes: Vec<(String, String)> = Vec::new();
    for argument in std::env::args().skip(1).filter(|argument| argument != "--bench") {
        let (name, value) = argument.split_once('=').expect("name=value");
        changes.push((name.to_owned(), value.to_owned()));
    }
    for (name, value) in &changes {
        let number = || value.parse::<u64>().expect("a number");
        match name.as_str() {
            "scheme" => scheme = number() as usize,
            "clients" => config.clients = number() as u32,
            "seed" => config.seed = number(),
            "seconds" => seconds = number(),
            "patience" => config.patience = Span::from_secs(number()),
            "persist" => config.persist = Span::from_secs(number()),
            "knowledge" if value == "estimated" => config.knowledge = Knowledge::Estimated,
            "era" => config.era = Era::named(value).expect("an era"),
            _ => panic!("`{name}={value}` is not known"),
        }
    }
    config.scheme = Scheme::ALL[scheme - 1];
    let began = Instant::now();
    let mut net = proxy::build(&config, ()).expect("a network");
    net.run(Time::ZERO + Span::from_secs(seconds));
    let wall = began.elapsed().as_secs_f64();
    let result = net.proxy_result().expect("a proxy");
    let of = |from, to| result.mean(from, to).1.unwrap_or(f64::NAN);
    let idle = result.idle.expect("a register");
    let admission = result.admission.expect("an admission");
    println!(
        "{{\"scheme\":{scheme},\"clients\":{},\"seed\":{},\"MB\":{:.1},\"asked\":{},\"answered\":{},\"refused\":{},\
         \"repeated\":{},\"small_s\":{:.3},\"middle_s\":{:.3},\"large_s\":{:.3},\"opened\":{},\"reused\":{},\
         \"evicted\":{},\"expired\":{},\"waited\":{},\"timed_out\":{},\"granted\":{},\"demand\":{},\"events\":{},\
         \"places\":{},\"wall_s\":{wall:.3}}}",
        config.clients,
        config.seed,
        result.bytes as f64 / 1e6,
        result.asked,
        result.answered,
        result.refused,
        result.repeated,
        of(0, 10_000),
        of(10_000, 100_000),
        of(100_000, u64::MAX),
        result.opened,
        idle.reused,
        idle.evicted,
        idle.expired,
        admission.waited,
        admission.timed_out,
        result.most_granted,
        result.demanded / result.ticks.max(1),
        net.totals().events,
        net.places(),
    );
}
