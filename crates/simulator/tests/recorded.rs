//! What tshark reads from the capture of a run is what the run did.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics

use ekiden_model::network::link::{Config, Loss, LossUnit, Serialiser};
use ekiden_model::network::tcp::ReceiverConfig;
use ekiden_model::network::tcp::preset::{Era, Flavour};
use ekiden_model::units::{Rate, Share, Span, Time};
use ekiden_simulator::applications::bulk::{self, BulkConfig};
use ekiden_simulator::network::connection::ConnectionConfig;
use ekiden_simulator::network::flow::{FlowConfig, Scripted, Source};
use ekiden_simulator::network::topology::Topology;
use ekiden_simulator::observer::Observer;
use ekiden_simulator::recorder::Flows;
use ekiden_simulator::recorder::packets::{Packets, Side};
use ekiden_simulator::simulator::{Direction, Simulator};
use std::io::Write;
use std::process::Command;

/// How many packets of a capture a filter of tshark's shows; `None`, said aloud, where it is not
/// installed.
fn shown(capture: &[u8], filter: &str) -> Option<u64> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(capture).unwrap();
    let output = Command::new("tshark")
        .args(["-n", "-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-r"])
        .arg(file.path())
        .args(["-Y", filter, "-T", "fields", "-e", "frame.number"])
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            assert!(std::env::var_os("CI").is_none(), "tshark is not installed");
            eprintln!("SKIPPED: tshark is not installed (apt-get install tshark)");
            return None;
        }
        Err(error) => panic!("tshark: {error}"),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count() as u64)
}

/// Segments sent, of them again, and packets captured, in a run of two seconds.
fn assert_read(simulator: Simulator<Packets<Vec<u8>>>, flows: u32, until: Span) {
    let mut simulator = simulator;
    simulator.run(Time::ZERO + until);
    let counts = (0..flows).map(|flow| simulator.sender(flow).unwrap().count);
    let (sent, again) =
        counts.fold((0, 0), |(sent, again), it| (sent + it.sent, again + it.retransmitted));
    assert!(again > 10, "{again} of {sent}");
    let (capture, written) = simulator.observer.finish().unwrap();
    for (filter, count) in [
        ("_ws.malformed || _ws.expert.severity == error", 0),
        ("ip.checksum.status != 1", 0),
        ("tcp.len == 0 && tcp.checksum.status != 1", 0),
        ("tcp.analysis.ack_lost_segment || tcp.analysis.lost_segment", 0),
        ("tcp", written),
        ("tcp.len > 0", sent),
        // what comes soon after a segment of a later number may be old by another way, tshark thinks
        ("tcp.len > 0 && (tcp.analysis.retransmission || tcp.analysis.out_of_order)", again),
    ] {
        let Some(found) = shown(&capture, filter) else { return };
        assert_eq!(found, count, "{filter}");
    }
}

fn packets(flows: Flows, side: Side) -> Packets<Vec<u8>> {
    Packets::new(Vec::new(), side, Side::Acceptor, flows, "the island study").unwrap()
}

#[test]
fn tshark_counts_what_a_full_queue_makes_be_sent_again() {
    for flavour in [Flavour::Reno, Flavour::NewReno, Flavour::Sack] {
        let config = BulkConfig { flows: 4, queue: 12, flavour, ..BulkConfig::default() };
        let (simulator, _) = bulk::build(&config, packets(Flows::All, Side::Opener)).unwrap();
        assert_read(simulator, 4, Span::from_secs(5));
    }
}

/// A server of today's and its client, whose link loses 2 % each way; both write.
fn both_ways<O: Observer>(observer: O) -> Simulator<O> {
    let mut topology = Topology::new();
    let (client, server) = (topology.host(), topology.host());
    let link = |seed| Config {
        serialiser: Serialiser::Rate(Rate::from_bits_per_second(10_000_000)),
        delay: Span::from_millis(20),
        loss: Loss::Independent(
            Share::from_parts_per_billion(20_000_000).unwrap(),
            LossUnit::Packet,
        ),
        seed,
        ..Config::default()
    };
    topology.link(client, server, link(1), link(2));
    let mut simulator = Simulator::new(topology, observer);
    let base = ConnectionConfig::new(client, server, Era::Linux);
    let connection = simulator.connect(ConnectionConfig { handshake_bytes: 60, ..base }).unwrap();
    for (direction, bytes) in [(Direction::FromOpener, 300_000), (Direction::ToOpener, 1_500_000)] {
        let write = Scripted { at: Time::ZERO + Span::from_millis(100), bytes, kind: 0 };
        let sender = Era::Linux.sender(Flavour::Sack, 1448, f64::INFINITY, Span::ZERO);
        let receiver = ReceiverConfig::linux(1448, 3 << 20, 7);
        let config = FlowConfig::new(sender, receiver, Source::Script(vec![write]));
        simulator.flow(connection, direction, FlowConfig { header: 52, ..config }).unwrap();
    }
    simulator
}

#[test]
fn merges_both_directions_into_one_connection() {
    let mut simulator = both_ways(packets(Flows::All, Side::Acceptor));
    simulator.run(Time::ZERO + Span::from_secs(60));
    let again = simulator.sender(1).unwrap().count.retransmitted;
    assert!(again > 10, "{again}");
    let (capture, _) = simulator.observer.finish().unwrap();
    let from_server = "tcp.srcport == 40000 && tcp.len > 0";
    let repeated =
        format!("{from_server} && (tcp.analysis.retransmission || tcp.analysis.out_of_order)");
    for (filter, count) in [
        ("_ws.malformed || _ws.expert.severity == error", 0),
        ("tcp.stream != 0", 0),
        ("tcp.flags.syn == 1", 2),
        ("tcp.options.sack_perm", 2),
        ("tcp.analysis.ack_lost_segment", 0),
        (repeated.as_str(), again),
    ] {
        let Some(found) = shown(&capture, filter) else { return };
        assert_eq!(found, count, "{filter}");
    }
    let Some(blocks) = shown(&capture, "tcp.options.sack_le") else { return };
    assert!(blocks > 10, "{blocks}");
}
