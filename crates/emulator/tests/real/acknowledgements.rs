//! Acknowledgements of a real kernel: told apart, let go first, counted, and as many as were asked for.

use crate::traffic::{datagrams, transfer, two};
use ekiden_emulator::engine::Record;
use ekiden_emulator::recording::{Outcome, Row};
use ekiden_emulator::topology::{Topology, TopologyPlan};
use ekiden_model::network::link::{Bound, Config, Discipline, Serialiser};
use ekiden_model::units::{Bytes, Rate, Span};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const BYTES: usize = 1_500_000;

/// Holds every acknowledgement of one download, even if a busy machine delivers them all at once:
/// 1,036 segments, and an acknowledgement takes at most 100 bytes.
const ROOM: usize = 120_000;

/// 2 Mbit/s from `a` to `b` in this discipline, 50 Mbit/s back.
fn thin(discipline: Discipline) -> TopologyPlan {
    let rate = |mbit: u64| Serialiser::Rate(Rate::from_bits_per_second(mbit * 1_000_000));
    let delay = Span::from_millis(1);
    let forward = Config { discipline, serialiser: rate(2), delay, ..Config::default() };
    two(forward, Config { serialiser: rate(50), delay, ..Config::default() })
}

/// Downloads to `a` over IPv4 and IPv6 while a datagram of 1,000 bytes each `gap` jams the way from there;
/// the rows of that way, and how many acknowledgements were counted on it.
fn jammed(discipline: Discipline, gap: Duration) -> (Vec<Row>, u64) {
    let rows = Arc::new(Mutex::new(Vec::<Row>::new()));
    let keep = Arc::clone(&rows);
    let record = Record {
        rows: Some(Box::new(move |row| {
            keep.lock().unwrap().push(row);
            Ok(())
        })),
        capture: None,
    };
    let topology = Topology::build_recorded(&thin(discipline), record).unwrap();
    let (a, b) = (topology.host("a").unwrap(), topology.host("b").unwrap());
    let jam = datagrams(a, a.address().into());
    let sink = datagrams(b, b.address().into());
    jam.connect(sink.local_addr().unwrap()).unwrap();
    // more than the queue holds, so that others are dropped however soon the downloads end
    for _ in 0..2 * ROOM / 1000 {
        jam.send(&[0; 1000]).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                jam.send(&[0; 1000]).unwrap();
                std::thread::sleep(gap);
            }
        });
        assert_eq!(transfer(b, a, a.address().into(), BYTES), BYTES);
        assert_eq!(transfer(b, a, a.address_v6().into(), BYTES), BYTES);
        done.store(true, Ordering::Relaxed);
    });
    let report = topology.finish().unwrap();
    let counted = report[0].directions[0].counts.acknowledgements;
    let rows = rows.lock().unwrap();
    (rows.iter().filter(|row| row.direction == 0).copied().collect(), counted)
}

pub(crate) fn go_first() {
    let (rows, counted) = jammed(
        Discipline::AckFirst(Bound::Bytes(Bytes::new(ROOM as u64))),
        Duration::from_millis(2),
    );
    let (first, others): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| row.packet.class == 0);
    assert_eq!(first.len() as u64, counted);
    // at least one for every 16 segments of each download
    assert!(first.len() > 2 * BYTES / 1448 / 16, "{counted} acknowledgements");
    // 40 and 60 bytes of headers, timestamps, and selective acknowledgements at most
    assert!(first.iter().all(|row| (40..=100).contains(&row.packet.bytes)));
    assert!(first.iter().all(|row| row.outcome != Outcome::Dropped), "they have their own room");
    assert!(others.iter().any(|row| row.outcome == Outcome::Dropped), "the others' is full");
    assert!(others.iter().all(|row| row.packet.class == 1));
}

pub(crate) fn wait_their_turn_otherwise() {
    // a fifth above the rate: with more, answers to SYNs are lost again and again, and their timer doubles
    let gap = Duration::from_micros(3400);
    let (rows, counted) = jammed(Discipline::DropTail(Bound::Packets(20)), gap);
    assert!(counted > 0);
    // the class is the DSCP's: nothing is told apart
    assert!(rows.iter().all(|row| row.packet.class == 7));
    let small = rows.iter().filter(|row| row.packet.bytes <= 100);
    assert!(small.clone().count() as u64 >= counted);
    assert!(small.clone().any(|row| row.outcome == Outcome::Dropped), "some find no room");
}

pub(crate) fn each_segment_by_route() {
    let share = |quickack| {
        let mut plan = thin(Discipline::DropTail(Bound::Unlimited));
        plan.links[0].forward.serialiser = Serialiser::Infinite;
        // single packets at both ends, or what comes together is acknowledged together
        plan.links[0].one_by_one = true;
        plan.hosts[0].quickack = quickack;
        let topology = Topology::build(&plan).unwrap();
        let (a, b) = (topology.host("a").unwrap(), topology.host("b").unwrap());
        assert_eq!(transfer(b, a, a.address().into(), BYTES), BYTES);
        let report = topology.finish().unwrap();
        let [up, down] = report[0].directions.as_slice() else { panic!("a link has two ways") };
        up.counts.acknowledgements as f64
            / (down.packets.offered - down.counts.acknowledgements) as f64
    };
    assert!(share(Some(true)) > 0.9, "{}", share(Some(true)));
    assert!(share(None) < 0.8, "{}", share(None));
}
