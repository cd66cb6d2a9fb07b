//! The gateway between a house and the Internet: real clients with nothing configured, the kernel's own
//! rules, and what is left when the daemon ends. A program of its own, since it must have one thread alone
//! when it enters its namespaces.
#![allow(clippy::unwrap_used)] // a test that cannot go on panics

mod forbidden;
mod handed_out;
mod life;
mod names;
mod network;
mod phone;
mod quic;
mod relayed;
mod rules;
mod wireguard;

use network::Network;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode};

type Test = (&'static str, fn(&Network));

const TESTS: &[&[Test]] = &[
    relayed::TESTS,
    rules::TESTS,
    life::TESTS,
    names::TESTS,
    wireguard::TESTS,
    handed_out::TESTS,
    quic::TESTS,
    forbidden::TESTS,
];

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let all = || TESTS.iter().copied().flatten();
    if arguments.iter().any(|argument| argument == "--list") {
        all().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    arguments.retain(|argument| !argument.starts_with('-'));
    if let Err(why) = network() {
        let in_ci = std::env::var_os("CI").is_some();
        println!("{}: tests of the gateway: {why}", if in_ci { "FAILED" } else { "SKIPPED" });
        return if in_ci { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    let wanted = |name: &str| {
        arguments.is_empty() || arguments.iter().any(|part| name.contains(part.as_str()))
    };
    let mut failed = 0;
    for (name, test) in all().filter(|(name, _)| wanted(name)) {
        let network = Network::build().unwrap();
        let ok = catch_unwind(AssertUnwindSafe(|| test(&network))).is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        failed += u32::from(!ok);
    }
    println!("test result: {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Enters the sandbox and tries a network in it, or why there is none.
fn network() -> Result<(), String> {
    ekiden_linux::namespaces::sandbox::enter().map_err(|denied| denied.to_string())?;
    for program in ["nft", "ip", "nginx", "curl"] {
        if Command::new(program).arg("-V").output().is_err() {
            return Err(format!("there is no {program}"));
        }
    }
    Network::build().map(drop)
}
