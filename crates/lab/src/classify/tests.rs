use super::*;
use ekiden_model::network::workload::flows::{Steps, Totals};
use ekiden_model::network::workload::thin_client::{self, ThinClient};
use ekiden_model::rng::Rng;
use ekiden_model::units::Time;
use ekiden_record::pcapng::Capture;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

const SYN: u8 = 2;
const ACK: u8 = 16;
/// From the server, and to it.
const DOWN: (u16, u16) = (3389, 50_000);
const UP: (u16, u16) = (50_000, 3389);

/// A TCP header without options and `payload` zeros.
fn tcp(ports: (u16, u16), sequence: u32, flags: u8, payload: usize) -> Vec<u8> {
    let (from, to, number) = (ports.0.to_be_bytes(), ports.1.to_be_bytes(), sequence.to_be_bytes());
    let rest = [0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0];
    [&from[..], &to, &number, &rest, &vec![0; payload]].concat()
}

/// The address a port's host has.
fn host(port: u16) -> u8 {
    if port == 3389 { 1 } else { 2 }
}

fn over_ipv4(ports: (u16, u16), sequence: u32, flags: u8, payload: usize) -> Vec<u8> {
    let length = 40 + payload as u16;
    let mut bytes = vec![0x45, 0];
    bytes.extend(length.to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, 6, 0, 0]);
    bytes.extend(Ipv4Addr::new(192, 0, 2, host(ports.0)).octets());
    bytes.extend(Ipv4Addr::new(192, 0, 2, host(ports.1)).octets());
    bytes.extend(tcp(ports, sequence, flags, payload));
    bytes
}

fn over_ipv6(ports: (u16, u16), sequence: u32, flags: u8, payload: usize) -> Vec<u8> {
    let length = 28 + payload as u16;
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend(length.to_be_bytes());
    // destination options of 8 bytes before TCP
    bytes.extend([60, 64]);
    for port in [ports.0, ports.1] {
        bytes.extend(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host(port).into()).octets());
    }
    bytes.extend([6, 0, 1, 4, 0, 0, 0, 0]);
    bytes.extend(tcp(ports, sequence, flags, payload));
    bytes
}

/// A capture as Ekiden writes them, from packets with their times in ms.
fn pcapng(packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut capture = Capture::new(Vec::new(), "").unwrap();
    let server = capture.interface("server").unwrap();
    for (ms, bytes) in packets {
        let at = Time::ZERO + Span::from_millis(*ms);
        // half of the packets are kept by their headers alone
        let kept = if ms % 2 == 0 { bytes.len() } else { bytes.len().min(72) };
        capture.packet(server, at, &bytes[..kept], bytes.len() as u32).unwrap();
    }
    capture.into_inner()
}

/// The same as pcap, with any link type, byte order and resolution.
fn pcap(link: u32, big: bool, nanos: bool, packets: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    let word = |value: u32, to: &mut Vec<u8>| {
        to.extend(if big { value.to_be_bytes() } else { value.to_le_bytes() });
    };
    word(if nanos { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }, &mut file);
    let version: [u16; 2] = [2, 4];
    for part in version {
        file.extend(if big { part.to_be_bytes() } else { part.to_le_bytes() });
    }
    for value in [0, 0, 262_144, link] {
        word(value, &mut file);
    }
    for (ms, bytes) in packets {
        let fraction = (ms % 1_000) as u32 * if nanos { 1_000_000 } else { 1_000 };
        let length = bytes.len() as u32;
        for value in [(ms / 1_000) as u32, fraction, length, length] {
            word(value, &mut file);
        }
        file.extend(bytes);
    }
    file
}

/// A handshake, a keystroke's echo, and a window in two packets; then an echo again.
fn session(
    packet: fn((u16, u16), u32, u8, usize) -> Vec<u8>,
    link: impl Fn(Vec<u8>) -> Vec<u8>,
) -> Vec<(u64, Vec<u8>)> {
    // the server's numbers wrap around in the window
    let isn = u32::MAX - 200;
    let at = |offset| isn.wrapping_add(offset);
    let packets = [
        (0, packet(UP, 7, SYN, 0)),
        (1, packet(DOWN, isn, SYN | ACK, 0)),
        (2, packet(UP, 8, ACK, 30)),
        (3, packet(DOWN, at(1), ACK, 100)),
        (4, packet(UP, 38, ACK, 0)),
        (1_000, packet(UP, 38, ACK, 5)),
        (1_001, packet(DOWN, at(101), ACK, 1_460)),
        (1_003, packet(DOWN, at(1_561), ACK, 200)),
        // the window's second packet again, the echo again, and a keep-alive probe
        (1_300, packet(DOWN, at(1_561), ACK, 200)),
        (1_400, packet(DOWN, at(1), ACK, 100)),
        (1_500, packet(DOWN, at(1_760), ACK, 1)),
        (2_000, packet(DOWN, at(1_761), ACK, 120)),
    ];
    packets.into_iter().map(|(ms, bytes)| (ms, link(bytes))).collect()
}

fn expected() -> Found {
    let summary = Summary {
        interactive: Totals { flows: 2, packets: 2, bytes: 220 },
        bulk: Totals { flows: 1, packets: 2, bytes: 1_660 },
        from_interactive: Steps { stayed: 0, left: 1 },
        from_bulk: Steps { stayed: 0, left: 1 },
    };
    Found { packets: 12, tcp: 12, connections: 1, repeated: 3, summary, ..Found::default() }
}

fn of(file: &[u8]) -> Found {
    classify(file, &Options::default()).unwrap()
}

fn refused(file: &[u8]) -> String {
    classify(file, &Options::default()).unwrap_err().to_string()
}

#[test]
fn pcapng_is_read_over_both_families_and_with_packets_cut() {
    assert_eq!(of(&pcapng(&session(over_ipv4, |packet| packet))), expected());
    assert_eq!(of(&pcapng(&session(over_ipv6, |packet| packet))), expected());
}

#[test]
fn pcap_is_read_in_every_byte_order_and_resolution() {
    for (big, nanos) in [(false, false), (false, true), (true, false), (true, true)] {
        let file = pcap(101, big, nanos, &session(over_ipv4, |packet| packet));
        assert_eq!(of(&file), expected(), "big endian {big}, nanoseconds {nanos}");
    }
}

#[test]
fn link_types_are_known() {
    let ethernet = |kind: &'static [u8]| {
        move |packet: Vec<u8>| {
            let mut bytes = vec![2; 12];
            bytes.extend(kind);
            bytes.extend(packet);
            // Ethernet fills up to 60 bytes
            bytes.resize(bytes.len().max(60), 0);
            bytes
        }
    };
    let ipv4: &[u8] = &[0x08, 0x00];
    assert_eq!(of(&pcap(1, false, false, &session(over_ipv4, ethernet(ipv4)))), expected());
    let ipv6: &[u8] = &[0x86, 0xdd];
    assert_eq!(of(&pcap(1, false, false, &session(over_ipv6, ethernet(ipv6)))), expected());
    let vlans: &[u8] = &[0x88, 0xa8, 0, 7, 0x81, 0x00, 0, 9, 0x08, 0x00];
    assert_eq!(of(&pcap(1, false, false, &session(over_ipv4, ethernet(vlans)))), expected());
    let cooked = |packet: Vec<u8>| [&[0; 14][..], ipv4, &packet].concat();
    assert_eq!(of(&pcap(113, true, false, &session(over_ipv4, cooked))), expected());
    let cooked = |packet: Vec<u8>| [ipv6, &[0; 18][..], &packet].concat();
    assert_eq!(of(&pcap(276, false, true, &session(over_ipv6, cooked))), expected());
    let report = refused(&pcap(127, false, false, &session(over_ipv4, |packet| packet)));
    assert!(report.contains("link type 127") && report.contains("tcpdump -i any"), "{report}");
}

#[test]
fn finds_generated_flows_again() {
    let trace = thin_client::generate(&ThinClient::intranet(), &mut Rng::new(5)).unwrap();
    let mut capture = Capture::new(Vec::new(), "").unwrap();
    let side = capture.interface("server").unwrap();
    let mut put = |at, bytes: &[u8]| {
        capture.packet(side, at, &bytes[..bytes.len().min(54)], bytes.len() as u32).unwrap();
    };
    put(Time::ZERO, &over_ipv4(UP, 1, SYN, 0));
    put(Time::ZERO, &over_ipv4(DOWN, 9, SYN | ACK, 0));
    let (mut sequence, mut repeated) = (10_u32, 0);
    for (number, write) in trace.writes.iter().enumerate() {
        let packet = over_ipv4(DOWN, sequence, ACK, write.bytes as usize);
        put(write.at, &packet);
        put(write.at, &over_ipv4(UP, 2, ACK, 0));
        if number % 10 == 0 {
            put(write.at + Span::from_millis(300), &packet);
            repeated += 1;
        }
        sequence = sequence.wrapping_add(write.bytes);
    }
    let found = of(&capture.into_inner());
    assert_eq!(found.summary, trace.summary);
    assert_eq!((found.connections, found.repeated, found.uncut), (1, repeated, 0));
}

/// Where the server opened, as in the simulator's thin clients, the message has the words that help.
#[test]
fn names_the_server_that_opened() {
    let (client, server) = ((49_152, 40_000), (40_000, 49_152));
    let file = pcapng(&[
        (0, over_ipv4(server, 0, SYN, 0)),
        (1, over_ipv4(client, 0, SYN | ACK, 0)),
        (5, over_ipv4(server, 1, ACK, 10)),
    ]);
    let report = refused(&file);
    assert!(report.contains("40000 sent data") && report.contains("--server :40000"), "{report}");
    let options = Options { server: Some(":40000".parse().unwrap()), ..Options::default() };
    assert_eq!(classify(&file[..], &options).unwrap().summary.interactive.bytes, 10);
}

#[test]
fn finds_the_server_by_name_handshake_or_port() {
    // the server has the higher port, and only its SYN-ACK says so
    let ports =
        |from, to| move |sequence, flags, payload| over_ipv4((from, to), sequence, flags, payload);
    let (down, up) = (ports(6_000, 500), ports(500, 6_000));
    let shaken = [(0, down(0, SYN | ACK, 0)), (5, down(1, ACK, 10)), (6, up(1, ACK, 99))];
    assert_eq!(of(&pcapng(&shaken)).summary.interactive.bytes, 10);
    assert_eq!(of(&pcapng(&shaken[1..])).summary.interactive.bytes, 99);
    // equal ports, no handshake
    let even = ports(700, 700);
    let undecided = pcapng(&[(0, even(1, ACK, 10))]);
    let report = refused(&undecided);
    assert!(report.contains("cannot tell which side is the server"), "{report}");
    assert!(
        report.contains("192.0.2.1:700 sent data") || report.contains("192.0.2.2:700 sent data"),
        "{report}"
    );
    // a name goes before everything
    let named = |server: &str, file: &[u8]| {
        let options = Options { server: Some(server.parse().unwrap()), ..Options::default() };
        classify(file, &options).map(|found| found.summary.interactive.bytes)
    };
    let file = pcapng(&session(over_ipv4, |packet| packet));
    assert_eq!(named("192.0.2.1", &file).unwrap(), 220);
    assert_eq!(named("192.0.2.2:50000", &file).unwrap(), 35);
    assert_eq!(named(":50000", &file).unwrap(), 35);
    let report = named("192.0.2.2:3389", &file).unwrap_err().to_string();
    assert!(report.contains("no connection has the address"), "{report}");
    for wrong in [":", ":0x", ":70000"] {
        assert!(wrong.parse::<ServerAddress>().is_err(), "{wrong}");
    }
    assert!("192.0.2".parse::<ServerAddress>().unwrap_err().contains("[2001:db8::1]:3389"));
}

#[test]
fn tells_connections_of_equal_addresses_apart() {
    let mut packets = session(over_ipv4, |packet| packet);
    // the same numbers, after data: captured twice or sent again, which is no new connection
    packets.splice(6..6, packets[..2].to_vec());
    packets.push((3_000, over_ipv4(UP, 99, SYN, 0)));
    packets.push((3_001, over_ipv4(DOWN, 5, SYN | ACK, 0)));
    packets.extend([(3_002, over_ipv4(DOWN, 6, ACK, 50)), (3_100, over_ipv4(DOWN, 56, ACK, 50))]);
    let found = of(&pcapng(&packets));
    assert_eq!((found.connections, found.summary.interactive.flows), (2, 4));
    // no step from one connection to the next
    let Summary { from_interactive, .. } = found.summary;
    assert_eq!(from_interactive, Steps { stayed: 1, left: 1 });
}

#[test]
fn handshake_after_data_begins_a_connection() {
    // the capture began in the middle of one; of the next, data comes with the handshake (RFC 7413)
    // and once more without it
    let packets = [
        (0, over_ipv4(DOWN, 900, ACK, 10)),
        (50, over_ipv4(UP, 1, SYN, 0)),
        (51, over_ipv4(DOWN, 70, SYN | ACK, 10)),
        (100, over_ipv4(DOWN, 71, ACK, 10)),
        (150, over_ipv4(DOWN, 81, ACK, 10)),
    ];
    let found = of(&pcapng(&packets));
    assert_eq!((found.connections, found.repeated), (2, 1));
    assert_eq!(found.summary.interactive, Totals { flows: 3, packets: 3, bytes: 30 });
}

#[test]
fn sections_have_interfaces_of_their_own() {
    let framed = |packet: Vec<u8>| [&[2; 12][..], &[0x08, 0x00], &packet].concat();
    let mut second = pcapng(&session(over_ipv4, framed));
    // behind the section's head stands the interface, its link type behind type and length
    let length = u32::from_le_bytes(second[4..8].try_into().unwrap()) as usize;
    assert_eq!(second[length + 8], 101);
    second[length + 8] = 1;
    let file = [pcapng(&session(over_ipv6, |packet| packet)), second].concat();
    let found = of(&file);
    assert_eq!((found.connections, found.tcp), (2, 24));
    assert_eq!(found.summary.bulk.bytes, 2 * 1_660);
}

#[test]
fn payload_is_reckoned_from_what_ip_says() {
    // an authentication header (RFC 4302) of 12 bytes between IP and TCP
    let mut packet = over_ipv4(DOWN, 1, ACK, 100);
    packet[3] += 12;
    packet[9] = 51;
    packet.splice(20..20, [6, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
    assert_eq!(of(&pcapng(&[(0, packet.clone())])).summary.interactive.bytes, 100);
    assert_eq!(of(&pcapng(&[(1, packet)])).summary.interactive.bytes, 100);
    // a length that the device was to fill in: what was captured, kept or not
    for ms in [0, 1] {
        let mut packet = over_ipv4(DOWN, 1, ACK, 100);
        packet[2..4].fill(0);
        assert_eq!(of(&pcapng(&[(ms, packet)])).summary.interactive.bytes, 100);
    }
}

#[test]
fn packets_that_no_device_has_cut_are_counted() {
    let found =
        of(&pcapng(&[(0, over_ipv4(DOWN, 1, ACK, 20_000)), (50, over_ipv4(DOWN, 20_001, ACK, 9))]));
    assert_eq!((found.uncut, found.summary.interactive.flows), (1, 2));
    let options = Options { threshold: Span::from_millis(50), ..Options::default() };
    let file = pcapng(&[(0, over_ipv4(DOWN, 1, ACK, 9)), (50, over_ipv4(DOWN, 10, ACK, 9))]);
    assert_eq!(classify(file.as_slice(), &options).unwrap().summary.bulk.flows, 1);
}

#[test]
fn explains_files_it_cannot_read() {
    let packets = session(over_ipv4, |packet| packet);
    let (ng, classic) = (pcapng(&packets), pcap(101, false, false, &packets));
    assert_eq!(refused(&[]), "the file is empty");
    for text in [&b"%PDF-1.4 and so on and on"[..], b"\x1f\x8b\x08\x00", b"pc"] {
        assert!(refused(text).starts_with("this is no capture"), "{text:?}");
    }
    for (file, packets) in [(&ng, 11), (&classic, 11)] {
        let report = refused(&file[..file.len() - 3]);
        let whole = format!("after {packets} whole ones");
        assert!(
            report.contains("in the middle of a packet") && report.contains(&whole),
            "{report}"
        );
    }
    assert!(refused(&ng[..20]).contains("in the middle"));
    assert!(refused(&classic[..20]).contains("in the middle"));
    // the third block is the first packet's, its interface's number stands behind type and length
    let length = |at: usize| u32::from_le_bytes(ng[at + 4..at + 8].try_into().unwrap()) as usize;
    let mut broken = ng.clone();
    broken[length(0) + length(length(0)) + 8] = 7;
    let report = refused(&broken);
    assert!(
        report.contains("damaged after 0 packets") && report.contains("not described"),
        "{report}"
    );
    let silent = refused(&pcapng(&packets[..2]));
    assert!(silent.contains("no data from a server in 2 packets, 2 of them TCP"), "{silent}");
}

#[test]
fn the_answer_fits_a_terminal() {
    let found = Found {
        packets: 123_456,
        tcp: 120_000,
        connections: 3,
        undecided: 1,
        repeated: 12,
        uncut: 4,
        summary: Summary {
            interactive: Totals { flows: 2_811, packets: 2_811, bytes: 385_123 },
            bulk: Totals { flows: 590, packets: 4_377, bytes: 4_100_002 },
            from_interactive: Steps { stayed: 2_550, left: 261 },
            from_bulk: Steps::default(),
        },
        ..Found::default()
    };
    let document = Document::new("thin.pcap", &Options::default(), &found);
    insta::assert_snapshot!(document.text());
    let json = serde_json::to_value(&document).unwrap();
    assert_eq!(json["bulk"]["stays"], serde_json::Value::Null);
    assert_eq!(json["published"]["bulk"]["packets"], 1_466);
}

proptest! {
    /// Whatever the file holds, an answer or words and no panic.
    #[test]
    fn arbitrary_bytes_never_panic(
        magic in prop_oneof![
            Just(vec![0x0a, 0x0d, 0x0d, 0x0a]),
            Just(vec![0xd4, 0xc3, 0xb2, 0xa1]),
            Just(vec![0xa1, 0xb2, 0x3c, 0x4d]),
            Just(vec![]),
        ],
        rest in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let file = [magic, rest].concat();
        if let Err(error) = classify(file.as_slice(), &Options::default()) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    /// A capture with some bytes changed or its end cut off, the same.
    #[test]
    fn damage_never_panics(
        ng: bool,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let packets = session(if ng { over_ipv6 } else { over_ipv4 }, |packet| packet);
        let mut file = if ng { pcapng(&packets) } else { pcap(101, true, true, &packets) };
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        file.truncate(cut.index(file.len()).max(file.len() / 2));
        if let Ok(found) = classify(file.as_slice(), &Options::default()) {
            prop_assert!(found.tcp <= found.packets);
        }
    }
}
