//! The verdict tells of a machine that stood still.

use crate::traffic::two;
use ekiden_emulator::fidelity::Verdict;
use ekiden_emulator::topology::Topology;
use ekiden_model::network::link::Config;
use ekiden_model::units::Span;
use std::process::Command;
use std::time::Duration;

pub(crate) fn a_stall_taints() {
    let config = Config { delay: Span::from_millis(5), ..Config::default() };
    let topology = Topology::build(&two(config.clone(), config)).unwrap();
    let to = format!("{}:9", topology.address("b").unwrap());
    let mut flood = Command::new(std::env::current_exe().unwrap());
    flood.args(["flood", &to, "400"]);
    topology.host("a").unwrap().place(&mut flood).unwrap();
    let mut flood = flood.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(150));
    // all threads of this program stop for 20 ms; the one that wakes it is not of it
    let me = std::process::id();
    let stop = format!("kill -STOP {me}; sleep 0.02; kill -CONT {me}");
    assert!(Command::new("sh").arg("-c").arg(stop).status().unwrap().success());
    flood.wait().unwrap();
    let report = &topology.finish().unwrap()[0];
    assert_eq!(report.verdict, Verdict::Tainted, "{:?}", report.reasons);
    assert!(
        report.reasons.iter().any(|reason| reason.contains("stood still")),
        "{:?}",
        report.reasons
    );
}

pub(crate) fn nothing_moved_is_clean() {
    let topology = Topology::build(&two(Config::default(), Config::default())).unwrap();
    let report = &topology.finish().unwrap()[0];
    // steal is the host's matter
    assert!(report.verdict <= Verdict::Noisy, "{:?}", report.reasons);
    assert_eq!(report.directions[0].packets.offered, 0, "a silent network is silent");
}
