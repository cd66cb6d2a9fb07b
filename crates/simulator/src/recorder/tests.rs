use super::packets::{Packets, Side};
use super::rows::Rows;
use super::*;
use crate::applications::bulk::{self, BulkConfig};
use crate::observer::{Loss, Observer};
use crate::simulator::Simulator;
use crate::trace::WriteKind;
use crate::trace::columns::tests::Disc;
use ekiden_model::network::tcp::preset::Flavour;
use ekiden_model::units::{Span, Time};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use std::collections::BTreeMap;
use std::io;

const UNTIL: Span = Span::from_secs(20);

/// Four flows whose queue is too short for them.
fn config() -> BulkConfig {
    BulkConfig { flows: 4, queue: 12, flavour: Flavour::Sack, ..BulkConfig::default() }
}

/// Counts what is lost: payload, and what else.
#[derive(Debug, Default)]
struct Lost {
    segments: u64,
    others: u64,
}

impl Observer for Lost {
    fn lost(&mut self, loss: &Loss) {
        let count = if loss.segment.is_some() { &mut self.segments } else { &mut self.others };
        *count += 1;
    }
}

fn recorded(config: &BulkConfig, flows: Flows) -> (Vec<Row>, Simulator<Lost>) {
    recorded_of(config, flows, Side::Acceptor)
}

fn recorded_of(config: &BulkConfig, flows: Flows, server: Side) -> (Vec<Row>, Simulator<Lost>) {
    let (bare, way) = bulk::build(config, Lost::default()).unwrap();
    let rows =
        Rows::new(Vec::new(), flows, server, Some(way), &[WriteKind::Bulk], "the island study")
            .unwrap();
    let (mut simulator, _) = bulk::build(config, rows).unwrap();
    simulator.run(Time::ZERO + UNTIL);
    let prints = simulator.fingerprints();
    let (file, written) = simulator.observer.finish().unwrap();
    let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
    let rows: Vec<Row> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len() as u64, written);
    let mut bare = bare;
    bare.run(Time::ZERO + UNTIL);
    assert_eq!(prints, bare.fingerprints(), "who watches changes nothing");
    (rows, bare)
}

/// A column's value; `None` is null.
fn cell(row: &Row, name: &str) -> Option<u64> {
    let (_, field) = row.get_column_iter().find(|(column, _)| *column == name).unwrap();
    match field {
        Field::Long(value) => Some(*value as u64),
        Field::UInt(value) => Some((*value).into()),
        Field::Bool(value) => Some((*value).into()),
        Field::Null => None,
        other => panic!("{name}: {other:?}"),
    }
}

fn word<'a>(row: &'a Row, name: &str) -> &'a str {
    let (_, field) = row.get_column_iter().find(|(column, _)| *column == name).unwrap();
    if let Field::Str(text) = field { text } else { panic!("{name}: {field:?}") }
}

fn of<'a>(rows: &'a [Row], event: &str) -> Vec<&'a Row> {
    rows.iter().filter(|row| word(row, "event") == event).collect()
}

#[test]
fn delay_parts_and_propagation_sum_to_the_total() {
    let (rows, _) = recorded(&config(), Flows::All);
    let delivered = of(&rows, "delivered");
    assert!(delivered.len() > 10_000, "{}", delivered.len());
    let mut again = 0;
    for row in delivered {
        let part = |name| cell(row, name).unwrap();
        let parts = part("server_ns") + part("router_ns") + part("client_ns");
        let rest = part("end_to_end_ns") - parts;
        // 1 ms, 20 ms and 1 ms, and by how much this sender's link is longer
        let way = 22_000_000 + part("flow");
        if word(row, "retransmission") == "none" {
            assert_eq!(rest, way, "{row}");
        } else {
            assert!(rest > way, "{row}");
            again += 1;
        }
    }
    assert!(again > 10, "{again}");
}

#[test]
fn every_segment_is_sent_and_then_arrives_or_is_lost() {
    let (rows, run) = recorded(&config(), Flows::All);
    let counts: Vec<_> = (0..4).map(|flow| run.sender(flow).unwrap().count).collect();
    let sent = of(&rows, "sent");
    assert_eq!(sent.len() as u64, counts.iter().map(|count| count.sent).sum::<u64>());
    let again = sent.iter().filter(|row| word(row, "retransmission") != "none").count() as u64;
    assert_eq!(again, counts.iter().map(|count| count.retransmitted).sum::<u64>());
    let lost = of(&rows, "lost");
    assert_eq!(lost.len() as u64, run.observer.segments);
    assert_eq!(run.observer.segments + run.observer.others, run.totals().dropped);
    assert!(lost.iter().all(|row| cell(row, "dropped") == Some(1)));
    // a queue of 12 with the one that is being sent: 11 wait where there is no room
    assert!(lost.iter().all(|row| cell(row, "queue_packets") == Some(11)));
    assert!(sent.iter().all(|row| cell(row, "queue_packets") <= Some(11)));

    let mut there: BTreeMap<(u64, u64), i64> = BTreeMap::new();
    let key = |row: &Row| (cell(row, "flow").unwrap(), cell(row, "sequence").unwrap());
    sent.iter().for_each(|row| *there.entry(key(row)).or_default() += 1);
    for row in of(&rows, "arrived").into_iter().chain(lost) {
        *there.entry(key(row)).or_default() -= 1;
    }
    assert!(there.values().all(|left| *left >= 0));
    let left: i64 = there.values().sum();
    assert!((1..200).contains(&left), "on their way at the end: {left}");
}

#[test]
fn arrived_segment_has_its_own_delays() {
    let (rows, _) = recorded(&config(), Flows::All);
    for row in of(&rows, "arrived") {
        let part = |name| cell(row, name).unwrap();
        let way = 22_000_000 + part("flow");
        assert_eq!(part("end_to_end_ns"), part("server_ns") + part("router_ns") + way, "{row}");
        assert_eq!(cell(row, "client_ns"), None);
        // 1,500 bytes at 100 Mbit/s, and at 10 and 100
        assert!(part("server_ns") >= 120_000 && part("router_ns") >= 1_320_000, "{row}");
    }
    let sent = of(&rows, "sent");
    assert!(sent.iter().all(|row| cell(row, "router_ns").is_none()));
    let window = |row: &Row| cell(row, "cwnd_milli").unwrap();
    assert_eq!(window(sent[0]), 2_000, "ns-2 begins with two segments");
    assert!(sent.iter().any(|row| window(row) > 10_000));
    // the handshake is the first sample, in ticks of 10 ms; back-off may forget it
    assert!(cell(sent[0], "srtt_ns").is_some() && cell(sent[0], "rttvar_ns").is_some());
    assert!(sent.iter().filter_map(|row| cell(row, "srtt_ns")).all(|srtt| srtt >= 40_000_000));
    assert!(sent.iter().all(|row| cell(row, "rto_ns") >= Some(200_000_000)));
}

#[test]
fn other_flows_are_left_out() {
    let (rows, _) = recorded(&config(), Flows::These([1, 3].into()));
    let flows: BTreeSet<_> = rows.iter().map(|row| cell(row, "flow")).collect();
    assert_eq!(flows, [Some(1), Some(3)].into());
    assert!(!of(&rows, "lost").is_empty());
    assert!(rows.iter().all(|row| word(row, "kind") == "bulk"));
    assert!(rows.iter().all(|row| word(row, "direction") == "to server"));
}

/// Who opens is the server of some: the rows say what is true, and the capture's ports do.
#[test]
fn opener_may_be_the_server() {
    let (rows, _) = recorded_of(&config(), Flows::These([1].into()), Side::Opener);
    for event in ["sent", "arrived", "lost", "delivered"] {
        let of_event = of(&rows, event);
        assert!(!of_event.is_empty());
        assert!(of_event.iter().all(|row| word(row, "direction") == "to client"), "{event}");
    }
    let capture = |server| {
        let packets = Packets::new(Vec::new(), Side::Opener, server, Flows::All, "").unwrap();
        let (mut simulator, _) = bulk::build(&config(), packets).unwrap();
        simulator.run(Time::ZERO + Span::from_millis(100));
        simulator.observer.finish().unwrap().0
    };
    // of the first packet, the opener's SYN: not to be fragmented, 64 hops, TCP; then the port
    let port = |file: &[u8]| {
        let at = file.windows(4).position(|four| four == [0x40, 0, 64, 6]).unwrap();
        u16::from_be_bytes([file[at + 14], file[at + 15]])
    };
    assert_eq!(port(&capture(Side::Opener)), 40_000);
    assert!(port(&capture(Side::Acceptor)) >= 49_152);
}

#[test]
fn reports_a_full_disk_at_the_end() {
    let (mut bare, _) = bulk::build(&config(), ()).unwrap();
    bare.run(Time::ZERO + UNTIL);
    let rows = Rows::new(Disc(5_000), Flows::All, Side::Acceptor, None, &[], "").unwrap();
    let packets = Packets::new(Disc(5_000), Side::Opener, Side::Acceptor, Flows::All, "").unwrap();
    let (mut simulator, _) = bulk::build(&config(), (Some(rows), Some(packets))).unwrap();
    simulator.run(Time::ZERO + UNTIL);
    // the bare run needs fewer events, because nothing depends on their order
    assert_eq!(simulator.fingerprints()[1], bare.fingerprints()[1]);
    let (rows, packets) = simulator.observer;
    let report = rows.unwrap().finish().map(drop).unwrap_err();
    assert_eq!(report.kind(), io::ErrorKind::StorageFull);
    let report = packets.unwrap().finish().map(drop).unwrap_err();
    assert_eq!(report.kind(), io::ErrorKind::StorageFull);
}
