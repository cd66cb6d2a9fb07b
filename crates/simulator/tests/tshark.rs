//! A simulated connection's capture is what tshark takes for one.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics

use ekiden_model::units::{Span, Time};
use ekiden_simulator::trace::Direction;
use ekiden_simulator::trace::capture::{Capture, SegmentView};
use std::io::Write;
use std::process::{Command, Stdio};

/// What tshark reads from a capture on its input; `None`, said aloud, where it is not installed.
fn tshark(capture: &[u8], arguments: &[&str]) -> Option<Vec<String>> {
    let child = Command::new("tshark")
        .args(["-n", "-r", "-", "-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            assert!(std::env::var_os("CI").is_none(), "tshark is not installed");
            eprintln!("SKIPPED: tshark is not installed (apt-get install tshark)");
            return None;
        }
        Err(error) => panic!("tshark: {error}"),
    };
    // smaller than a pipe, so that this never waits for what tshark writes
    child.stdin.take().unwrap().write_all(capture).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

/// A download as the server's interface sees it: one segment lost and sent again after three duplicate
/// ACKs, the last one lost and sent again when the timer fires.
fn download() -> Vec<u8> {
    let mut capture = Capture::new(Vec::new(), "seed 7").unwrap();
    let server = capture.interface("server").unwrap();
    let mut at = |micros: u64, segment: SegmentView<'_>| {
        let stamp = (micros / 1_000) as u32;
        let segment = SegmentView { flow: 7, timestamps: Some((stamp, 0)), ..segment };
        let time = Time::ZERO + Span::from_micros(micros);
        capture.packet(time, server, &segment).unwrap();
    };
    let up = SegmentView { from: 0, to: 1, window: 65_535, ..SegmentView::default() };
    let up = SegmentView { direction: Direction::ToServer, scale: Some(7), ..up };
    let down = SegmentView { from: 1, to: 0, direction: Direction::ToClient, ..up };
    let syn = SegmentView { syn: true, mss: Some(1_460), sack_permitted: true, ..up };
    let answer = SegmentView {
        from: 1,
        to: 0,
        direction: Direction::ToClient,
        acknowledged: Some(0),
        ..syn
    };
    let data =
        |n: u64| SegmentView { sequence: 1_460 * n, payload: 1_460, acknowledged: Some(0), ..down };
    let ack = |n: u64| SegmentView { acknowledged: Some(1_460 * n), ..up };
    at(0, syn);
    at(1, answer);
    at(40_000, ack(0));
    (0..5).for_each(|n| at(41_000 + n, data(n)));
    at(81_000, ack(1));
    at(81_001, SegmentView { sack: &[(2_920, 4_380)], ..ack(1) });
    at(81_002, SegmentView { sack: &[(2_920, 5_840)], ..ack(1) });
    at(81_003, SegmentView { sack: &[(2_920, 7_300)], ..ack(1) });
    at(81_004, data(1));
    at(121_000, ack(5));
    at(122_000, data(5));
    at(422_000, data(5));
    at(462_000, ack(6));
    at(462_001, SegmentView { fin: true, payload: 0, ..data(6) });
    at(502_000, SegmentView { fin: true, acknowledged: Some(1_460 * 6 + 1), ..up });
    at(502_001, SegmentView { sequence: 1_460 * 6 + 1, acknowledged: Some(1), ..down });
    capture.into_inner()
}

/// By field, what tshark reads of each packet.
fn fields(capture: &[u8], names: &[&str]) -> Option<Vec<String>> {
    let mut arguments = vec!["-T", "fields", "-E", "separator= "];
    names.iter().for_each(|name| arguments.extend(["-e", name]));
    let rows = tshark(capture, &arguments)?;
    Some(rows.iter().map(|row| row.trim_end().to_owned()).collect())
}

/// The numbers of the packets that a filter of tshark's shows.
fn shown(capture: &[u8], filter: &str) -> Option<Vec<u32>> {
    let rows = tshark(capture, &["-Y", filter, "-T", "fields", "-e", "frame.number"])?;
    Some(rows.iter().map(|row| row.parse().unwrap()).collect())
}

#[test]
fn tshark_reads_ends_numbers_and_blocks() {
    let names = ["frame.time_epoch", "ip.src", "tcp.srcport", "tcp.dstport", "tcp.seq", "tcp.ack"];
    let more = ["tcp.len", "tcp.window_size", "tcp.options.sack_le", "tcp.options.sack_re"];
    let Some(rows) = fields(&download(), &[&names[..], &more].concat()) else { return };
    assert_eq!(
        rows,
        [
            "0.000000000 10.0.0.1 49159 40000 0 0 0 65535",
            "0.000001000 10.0.0.2 40000 49159 0 1 0 65535",
            // 65,535 in units of 128
            "0.040000000 10.0.0.1 49159 40000 1 1 0 65408",
            "0.041000000 10.0.0.2 40000 49159 1 1 1460 65408",
            "0.041001000 10.0.0.2 40000 49159 1461 1 1460 65408",
            "0.041002000 10.0.0.2 40000 49159 2921 1 1460 65408",
            "0.041003000 10.0.0.2 40000 49159 4381 1 1460 65408",
            "0.041004000 10.0.0.2 40000 49159 5841 1 1460 65408",
            "0.081000000 10.0.0.1 49159 40000 1 1461 0 65408",
            "0.081001000 10.0.0.1 49159 40000 1 1461 0 65408 2921 4381",
            "0.081002000 10.0.0.1 49159 40000 1 1461 0 65408 2921 5841",
            "0.081003000 10.0.0.1 49159 40000 1 1461 0 65408 2921 7301",
            "0.081004000 10.0.0.2 40000 49159 1461 1 1460 65408",
            "0.121000000 10.0.0.1 49159 40000 1 7301 0 65408",
            "0.122000000 10.0.0.2 40000 49159 7301 1 1460 65408",
            "0.422000000 10.0.0.2 40000 49159 7301 1 1460 65408",
            "0.462000000 10.0.0.1 49159 40000 1 8761 0 65408",
            "0.462001000 10.0.0.2 40000 49159 8761 1 0 65408",
            "0.502000000 10.0.0.1 49159 40000 1 8762 0 65408",
            "0.502001000 10.0.0.2 40000 49159 8762 2 0 65408",
        ]
    );
}

#[test]
fn tshark_reads_what_a_syn_offers() {
    let names = ["tcp.options.mss_val", "tcp.options.wscale.shift", "tcp.options.timestamp.tsval"];
    let more = ["tcp.flags", "frame.len", "frame.cap_len", "tcp.hdr_len"];
    let Some(rows) = fields(&download(), &[&names[..], &more].concat()) else { return };
    assert_eq!(rows[0], "1460 7 0 0x0002 64 64 44");
    assert_eq!(rows[1], "1460 7 0 0x0012 64 64 44");
    // of data the headers are kept, and the length is told
    assert_eq!(rows[3].trim_start(), "41 0x0010 1512 52 32");
    assert_eq!(rows[17].trim_start(), "462 0x0011 52 52 32");
    let permitted = shown(&download(), "tcp.options.sack_perm");
    assert_eq!(permitted, Some(vec![1, 2]));
}

#[test]
fn tshark_finds_nothing_wrong_and_knows_what_was_sent_again() {
    let capture = download();
    for (filter, numbers) in [
        ("_ws.malformed || _ws.expert.severity == error", &[][..]),
        ("ip.checksum.status != 1", &[]),
        // it can only check what was captured whole; the others are held to RFC 1071 by unit tests
        ("tcp.len == 0 && tcp.checksum.status != 1", &[]),
        ("tcp.analysis.duplicate_ack", &[10, 11, 12]),
        ("tcp.analysis.retransmission", &[13, 16]),
        ("tcp.analysis.fast_retransmission", &[13]),
        ("tcp.analysis.rto", &[16]),
        ("tcp.analysis.lost_segment || tcp.analysis.ack_lost_segment", &[]),
        ("tcp.analysis.spurious_retransmission || tcp.analysis.out_of_order", &[]),
    ] {
        let Some(found) = shown(&capture, filter) else { return };
        assert_eq!(found, numbers, "{filter}");
    }
}
