//! The emulator with real packets, in namespaces of its own. A program of its own, since it must have
//! one thread alone when it enters them: `cargo test -p ekiden-emulator --test real -- [NAME …]`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod acknowledgements;
mod fidelity;
mod network;
mod replay;
mod traffic;

use std::panic::catch_unwind;
use std::process::ExitCode;

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("replay_is_equal_droptail", replay::is_equal_droptail),
    ("replay_is_equal_fq_codel", replay::is_equal_fq_codel),
    ("replay_is_equal_priority_and_trace", replay::is_equal_priority_and_trace),
    ("replay_is_equal_super_packets", replay::is_equal_super_packets),
    ("replay_of_changes", replay::of_changes),
    ("an_empty_link_delays", network::an_empty_link_delays),
    ("steps_hand_over_together_what_is_due", network::steps_hand_over_together_what_is_due),
    ("loss_is_what_was_asked", network::loss_is_what_was_asked),
    ("three_routers_from_a_plan", network::three_routers_from_a_plan),
    ("every_mtu", network::every_mtu),
    ("congestion_control_by_route", network::congestion_control_by_route),
    ("marks_instead_of_drops", network::marks_instead_of_drops),
    ("acknowledgements_go_first", acknowledgements::go_first),
    ("acknowledgements_wait_their_turn", acknowledgements::wait_their_turn_otherwise),
    ("acknowledgements_by_route", acknowledgements::each_segment_by_route),
    ("processes_in_order", network::processes_in_order),
    ("a_process_that_fails_is_told", network::a_process_that_fails_is_told),
    ("a_stall_taints", fidelity::a_stall_taints),
    ("nothing_moved_is_clean", fidelity::nothing_moved_is_clean),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "flood") {
        traffic::flood_from_outside(&arguments[1], arguments[2].parse().unwrap());
        return ExitCode::SUCCESS;
    }
    // arguments of cargo's own harness mean nothing here
    let wanted: Vec<&String> =
        arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    if let Err(denied) = ekiden_linux::namespaces::sandbox::enter() {
        let in_ci = std::env::var_os("CI").is_some();
        println!("{}: the emulator's tests: {denied}", if in_ci { "FAILED" } else { "SKIPPED" });
        return if in_ci { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    let mut failed = 0;
    for (name, test) in TESTS {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| name.contains(wanted.as_str())) {
            continue;
        }
        let ok = catch_unwind(test).is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        failed += u32::from(!ok);
    }
    println!("test result: {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
