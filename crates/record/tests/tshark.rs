//! Captures are what tshark takes them for.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics

use ekiden_model::units::Time;
use ekiden_record::pcapng::Capture;
use std::io::Write;
use std::process::{Command, Stdio};

/// UDP of 4 bytes from port 1000 to 2000, without checksums.
fn over_ipv4() -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
    packet.extend(udp());
    packet
}

fn over_ipv6() -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 12, 17, 64];
    for last in [1, 2] {
        packet.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    packet.extend(udp());
    packet
}

fn udp() -> [u8; 12] {
    [0x03, 0xe8, 0x07, 0xd0, 0, 12, 0, 0, 1, 2, 3, 4]
}

/// What tshark reads from a capture on its input; `None`, said aloud, where it is not installed.
fn tshark(capture: &[u8], arguments: &[&str]) -> Option<String> {
    let child = Command::new("tshark")
        .args(["-n", "-r", "-"])
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
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn tshark_reads_times_interfaces_comments_and_both_families() {
    let mut capture = Capture::new(Vec::new(), "seed 7").unwrap();
    let up = capture.interface("up").unwrap();
    let down = capture.interface("down").unwrap();
    let (four, six) = (over_ipv4(), over_ipv6());
    let at = Time::from_nanos;
    capture.packet(up, at(1_500_000_001), &four, four.len() as u32).unwrap();
    // after 2 s the time in nanoseconds needs more than 32 bits
    let comment = "dropped: the queue was full";
    capture.packet_with(down, at(7_000_000_123), &six, six.len() as u32, comment).unwrap();
    // cut short
    capture.packet(down, at(7_000_000_124), &four[..28], 1_500).unwrap();
    let fields = [
        "frame.time_epoch",
        "frame.interface_name",
        "frame.len",
        "frame.cap_len",
        "ip.src",
        "ipv6.dst",
        "udp.dstport",
        "frame.comment",
    ];
    let mut arguments = vec!["-T", "fields", "-E", "separator=|"];
    fields.iter().for_each(|field| arguments.extend(["-e", field]));
    let Some(read) = tshark(&capture.into_inner(), &arguments) else { return };
    let rows: Vec<&str> = read.lines().collect();
    assert_eq!(
        rows,
        [
            "1.500000001|up|32|32|192.0.2.1||2000|",
            "7.000000123|down|52|52||2001:db8::2|2000|dropped: the queue was full",
            "7.000000124|down|1500|28|192.0.2.1||2000|",
        ]
    );
}
