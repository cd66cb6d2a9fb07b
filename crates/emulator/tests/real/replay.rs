//! The packets of a real run, offered to the same link on virtual time, meet the same fate at the same
//! nanosecond.

use crate::traffic::{stream, transfer, two};
use ekiden_emulator::engine::Record;
use ekiden_emulator::engine::replay::replay;
use ekiden_emulator::recording::{Outcome, Row};
use ekiden_emulator::topology::{Topology, TopologyPlan};
use ekiden_model::network::link::{Config, Discipline, LossUnit, QueueKind, Serialiser, Trace};
use ekiden_model::units::{Rate, Span};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn rate(text: &str) -> Serialiser {
    Serialiser::Rate(text.parse::<Rate>().unwrap())
}

fn queue(kind: QueueKind, length: &str, serialiser: &Serialiser) -> Discipline {
    kind.with(
        length
            .parse::<ekiden_model::network::link::QueueLength>()
            .unwrap()
            .bound(serialiser)
            .unwrap(),
    )
}

/// Runs TCP both ways and datagrams over the network, and replays both directions. Says how many
/// packets were dropped or lost.
fn check(plan: &TopologyPlan) -> usize {
    let rows = Arc::new(Mutex::new(Vec::<Row>::new()));
    let keep = Arc::clone(&rows);
    let record = Record {
        rows: Some(Box::new(move |row| {
            keep.lock().unwrap().push(row);
            Ok(())
        })),
        capture: None,
    };
    let topology = Topology::build_recorded(plan, record).unwrap();
    let (a, b) = (topology.host("a").unwrap(), topology.host("b").unwrap());
    std::thread::scope(|scope| {
        let there = scope.spawn(|| transfer(a, b, b.address().into(), 300_000));
        let back = scope.spawn(|| transfer(b, a, a.address_v6().into(), 300_000));
        stream(&topology, 500, 300, Duration::from_millis(1));
        assert_eq!((there.join().unwrap(), back.join().unwrap()), (300_000, 300_000));
    });
    let reports = topology.finish().unwrap();
    let rows = rows.lock().unwrap();
    let mut unlucky = 0;
    for (direction, config) in
        [&plan.links[0].forward, &plan.links[0].backward].into_iter().enumerate()
    {
        let own: Vec<Row> =
            rows.iter().filter(|row| row.direction as usize == direction).copied().collect();
        let counted = reports[0].directions[direction].packets;
        assert_eq!(own.len() as u64, counted.offered, "every packet was written down");
        let gone = |row: &&Row| matches!(row.outcome, Outcome::Dropped | Outcome::Lost);
        assert_eq!(own.iter().filter(gone).count() as u64, counted.dropped + counted.lost);
        unlucky += own.iter().filter(gone).count();
        if let Err(difference) = replay(config, &own) {
            panic!("direction {direction}: {difference}");
        }
    }
    unlucky
}

pub(crate) fn is_equal_droptail() {
    let serialiser = rate("8 Mbit/s");
    let forward = Config {
        discipline: queue(QueueKind::DropTail, "12packets", &serialiser),
        serialiser,
        loss: "1%".parse().unwrap(),
        delay: Span::from_millis(5),
        jitter: Span::from_millis(2),
        seed: 3,
        ..Config::default()
    };
    let backward = Config { jitter: Span::ZERO, framing: 38, seed: 4, ..forward.clone() };
    assert!(check(&two(forward, backward)) > 0);
}

pub(crate) fn is_equal_fq_codel() {
    let serialiser = rate("6 Mbit/s");
    let forward = Config {
        discipline: queue(QueueKind::FqCodel, "30packets", &serialiser),
        serialiser,
        loss: "gilbert(1%, 30%)".parse().unwrap(),
        delay: Span::from_millis(5),
        jitter: Span::from_millis(3),
        reorder: true,
        seed: 5,
        ..Config::default()
    };
    let backward = Config { seed: 6, ..forward.clone() };
    assert!(check(&two(forward, backward)) > 0);
}

pub(crate) fn is_equal_priority_and_trace() {
    let trace = Trace::parse("1\n2\n2\n3\n9\n10\n").unwrap();
    let forward = Config {
        discipline: queue(QueueKind::Priority, "20packets", &Serialiser::Trace(trace.clone())),
        serialiser: Serialiser::Trace(trace),
        loss: "packets(5, 40)".parse().unwrap(),
        delay: Span::from_millis(3),
        ..Config::default()
    };
    let backward = Config { seed: 8, ..forward.clone() };
    assert!(check(&two(forward, backward)) > 0);
}

pub(crate) fn is_equal_super_packets() {
    let serialiser = rate("1 Gbit/s");
    let config = Config {
        discipline: queue(QueueKind::DropTail, "10ms", &serialiser),
        serialiser,
        loss: "5% per super-packet".parse().unwrap(),
        delay: Span::from_millis(1),
        seed: 9,
        ..Config::default()
    };
    assert_eq!(config.loss.unit(), LossUnit::SuperPacket);
    let mut plan = two(config.clone(), Config { seed: 10, ..config });
    plan.links[0].super_packets = true;
    assert!(check(&plan) > 0);
}

pub(crate) fn of_changes() {
    let change = |at, text: &str| (Span::from_millis(at), text.parse().unwrap());
    let serialiser = rate("10 Mbit/s");
    let forward = Config {
        discipline: queue(QueueKind::DropTail, "20packets", &serialiser),
        serialiser,
        delay: Span::from_millis(4),
        schedule: vec![
            change(50, "rate 3 Mbit/s"),
            change(100, "delay 12ms"),
            change(150, "loss 3%"),
            change(220, "rate 10 Mbit/s"),
        ],
        schedule_period: Some(Span::from_millis(300)),
        seed: 11,
        ..Config::default()
    };
    let backward = Config { seed: 12, ..forward.clone() };
    assert!(check(&two(forward, backward)) > 0);
}
