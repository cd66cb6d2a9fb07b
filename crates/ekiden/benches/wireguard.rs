//! What a telephone gets through WireGuard: iperf3 between wireguard-go's device and a server behind the relay, and what
//! each bit costs the relay, which has one processor for itself.
//!
//! `[EKIDEN_BIN=…] cargo bench -p ekiden --bench wireguard [SECONDS]`: five rounds of both directions; 5 seconds each
//! unless said. Root, two processors, iperf3, nginx, and wireguard-go (`scripts/peers.sh --wireguard`). wireguard-go,
//! iperf3 and its server share the other processor, so what they can is shown as well: the relay's own rate is bits
//! by its processor time.
#![allow(clippy::unwrap_used)] // a measurement that cannot go on panics

#[allow(dead_code)] // the tests use the rest
#[path = "../tests/gateway/network.rs"]
mod network;
#[allow(dead_code)]
#[path = "../tests/gateway/phone.rs"]
mod phone;

use ekiden_linux::namespaces::netns::place;
use ekiden_testkit::{Daemon, wait_for};
use network::{Network, SERVER};
use phone::{DOOR, OFF, Phone};
use serde_json::Value;
use std::process::{Child, Command, Stdio};

const ROUNDS: usize = 5;

/// One run, as the client of iperf3 saw it.
struct Run {
    mbit: f64,
    /// Of one processor, the relay's while it ran.
    relay_share: f64,
}

fn server(network: &Network) -> Child {
    let mut command = Command::new("taskset");
    command.args(["-c", "1", "iperf3", "-s", "-B", SERVER]).stdout(Stdio::null());
    place(&mut command, &network.up).unwrap();
    let child = command.spawn().unwrap();
    wait_for("iperf3", || {
        network.up.run(|| std::net::TcpStream::connect((SERVER, 5_201)).is_ok()).unwrap()
    });
    child
}

fn run(phone: &Phone, daemon: &Daemon, seconds: &str, more: &[&str]) -> Run {
    let mut command = Command::new("taskset");
    command.args(["-c", "1", "iperf3", "-c", SERVER, "-J", "-t", seconds]).args(more);
    place(&mut command, &phone.netns).unwrap();
    let before = daemon.cpu();
    let output = command.output().unwrap();
    let spent = daemon.cpu() - before;
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sum = &said["end"]["sum_received"];
    let number = |key: &str| sum[key].as_f64().unwrap_or_else(|| panic!("{said:#}"));
    Run { mbit: number("bits_per_second") / 1e6, relay_share: spent / number("seconds") }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    ekiden_linux::namespaces::sandbox::enter().unwrap();
    let seconds = std::env::args().skip(1).find(|text| text.parse::<f64>().is_ok());
    let seconds = seconds.unwrap_or_else(|| "5".to_owned());
    let program = phone::program().unwrap();
    let network = Network::build().unwrap();
    let home = Network::home(OFF, DOOR);
    let daemon = network.serve_in(&home);
    let text = daemon.printed(&["account", "add", "anna", "--wireguard", "--device", "phone"]);
    wait_for("the peer", || daemon.status()["wireguard"]["peers"][0]["account"] == "anna");
    let phone = Phone::new(&network, &program, &text);
    let pin = |pid: u32, processor: &str| {
        let mut command = Command::new("taskset");
        command.args(["-acp", processor, &pid.to_string()]).stdout(Stdio::null());
        assert!(command.status().unwrap().success());
    };
    pin(daemon.pid().as_raw_nonzero().get().unsigned_abs(), "0");
    pin(phone.pid(), "1");
    let mut iperf = server(&network);
    let first = phone.page(&network, &["http://9.9.9.2/"]);
    println!("the first page: {first}\n");
    println!(
        "{:<24}{:>8}{:>20}{:>24}",
        "iperf3, TCP", "Mbit/s", "relay, of a core", "Mbit/s a relay's core"
    );
    for (name, more) in [
        ("to the telephone", &["-R"][..]),
        ("from the telephone", &[]),
        ("to it, 8 connections", &["-R", "-P", "8"]),
    ] {
        let runs: Vec<Run> = (0..ROUNDS).map(|_| run(&phone, &daemon, &seconds, more)).collect();
        let of = |value: &dyn Fn(&Run) -> f64| median(runs.iter().map(value).collect());
        let (mbit, share) = (of(&|run| run.mbit), of(&|run| run.relay_share));
        let by_core = of(&|run| run.mbit / run.relay_share);
        println!("{name:<24}{mbit:>8.0}{:>18.0} %{by_core:>24.0}", share * 100.0);
    }
    iperf.kill().unwrap();
    iperf.wait().unwrap();
}
