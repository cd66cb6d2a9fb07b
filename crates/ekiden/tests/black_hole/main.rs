//! A real black hole: a router whose next link takes 1200 bytes, drops what is larger, and does not say
//! so. Nobody's fault at the relay, and yet its clients wait; so it is to say what it sees, and what helps
//! is to help. A program of its own, since it must have one thread alone when it enters its namespaces.
//!
//! ```text
//! server ─ 1500 ─ relay ─ 1500 ─ near ─ 1200 ─ far ─ 1500 ─ client
//!                                └ keeps "fragmentation needed" to itself
//! ```
#![allow(clippy::unwrap_used)] // a test that cannot go on panics

mod network;

use network::Network;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

type Test = (&'static str, fn(&Network));

const TESTS: &[Test] = &[
    ("a_download_stalls_and_is_told", a_download_stalls_and_is_told),
    ("a_smaller_segment_gets_through", a_smaller_segment_gets_through),
    ("probing_gets_through_after_a_while", probing_gets_through_after_a_while),
    ("reports_a_router_mtu_at_the_end", reports_a_router_mtu_at_the_end),
];

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let denied = match ekiden_linux::namespaces::sandbox::enter() {
        Ok(_) => Network::build().err(),
        Err(denied) => Some(denied.to_string()),
    };
    if let Some(why) = denied {
        let in_ci = std::env::var_os("CI").is_some();
        println!("{}: tests of black holes: {why}", if in_ci { "FAILED" } else { "SKIPPED" });
        return if in_ci { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    let mut failed = 0;
    for (name, test) in TESTS {
        let network = Network::build().unwrap();
        let ok = catch_unwind(AssertUnwindSafe(|| test(&network))).is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        failed += u32::from(!ok);
    }
    println!("test result: {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The client's leg in the relay's status.
fn client_path(network: &Network) -> serde_json::Value {
    let status = network.status();
    let legs = status["legs"].as_array().unwrap();
    legs.iter().find(|leg| leg["name"] == "client").unwrap()["path"].clone()
}

fn a_download_stalls_and_is_told(network: &Network) {
    network.serve("");
    let download = network.download(Duration::from_secs(15));
    let path = network.eventually(|| {
        let path = client_path(network);
        (!path["troubled"].as_array().unwrap().is_empty()).then_some(path)
    });
    assert_eq!(path["usual_mtu"], 1500, "{path}");
    assert_eq!(path["troubled"][0]["state"], "black hole", "{path}");
    let connection = &network.status()["connections"][0];
    let address = path["troubled"][0]["address"].as_str().unwrap();
    assert!(connection["client"].as_str().unwrap().starts_with(address), "{connection}");
    assert_eq!(connection["legs"][0]["path"], "black hole", "{connection}");
    assert_eq!(connection["legs"][1]["path"], "fine", "{connection}");
    let doctor = network.doctor();
    assert!(doctor.contains("leg \"client\": large packets to 100.64."), "{doctor}");
    assert!(doctor.contains("sysctl -w net.ipv4.tcp_mtu_probing=1"), "{doctor}");
    assert!(network.status_text().contains("are probably dropped"), "{}", network.status_text());
    assert_eq!(download.join().unwrap(), 0, "nothing large can have passed");
}

fn a_smaller_segment_gets_through(network: &Network) {
    network.serve("[leg.client]\nmss = 1148\n");
    assert_eq!(network.download(Duration::from_secs(60)).join().unwrap(), network::LENGTH);
    let path = client_path(network);
    assert_eq!(path["troubled"].as_array().unwrap().len(), 0, "{path}");
}

fn probing_gets_through_after_a_while(network: &Network) {
    network.set("net.ipv4.tcp_mtu_probing", "1");
    network.serve("");
    assert_eq!(network.download(Duration::from_secs(60)).join().unwrap(), network::LENGTH);
    let path = network.eventually(|| {
        let path = client_path(network);
        (path["troubled"][0]["state"] == "smaller").then_some(path)
    });
    assert!(path["smallest_mtu"].as_u64().unwrap() <= 1200, "{path}");
    assert!(!network.doctor().contains("are probably dropped"));
}

fn reports_a_router_mtu_at_the_end(network: &Network) {
    network.let_routers_speak();
    network.serve("");
    // each is over before anybody looks; the second begins with what the kernel remembers of the first
    for nth in 1..=2 {
        assert_eq!(network.download(Duration::from_secs(60)).join().unwrap(), network::LENGTH);
        let path = network.eventually(|| {
            let path = client_path(network);
            (path["troubled"][0]["state"] == "smaller").then_some(path)
        });
        assert_eq!(path["smallest_mtu"], 1200, "after download {nth}: {path}");
    }
    assert!(
        network.doctor().contains("packets above 1200 bytes do not reach"),
        "{}",
        network.doctor()
    );
}
