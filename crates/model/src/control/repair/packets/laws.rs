//! Laws of packets' repairs, over a path that loses and delays: order, integrity, delay, overhead and work.

use super::super::counted;
use super::decoder::{BOUND, REORDERED};
use super::encoder::{ALLOWANCE, LEAST, Numbered};
use super::*;
use crate::rng::Rng;
use crate::units::{Span, Time};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

const ROOM: usize = 1_400;

#[derive(Debug, Clone)]
enum Sent {
    Packet(Numbered, Vec<u8>),
    Repair(PacketRepair<Vec<u8>>),
}

/// What a run showed.
#[derive(Debug, Default)]
struct Outcome {
    packets: usize,
    bytes: usize,
    repairs: usize,
    repair_bytes: usize,
    /// Packets that the path lost, and that were not released.
    lost: usize,
    missing: usize,
    /// The longest time from arrival to release of those that arrived, and how long each waited.
    waits: Vec<Span>,
}

/// A path: each of what is sent is lost or delayed.
#[derive(Debug, Clone, Copy)]
struct Line {
    loss: f64,
    /// Losses in a row.
    burst: u64,
    /// The most that one is delayed beyond others.
    jitter: Span,
    /// The loss as the sender has measured it.
    measured: f64,
}

/// Between 0 and 1.
fn unit(rng: &mut Rng) -> f64 {
    rng.below(1 << 30) as f64 / f64::from(1 << 30)
}

/// Sends packets of these sizes, each after a gap, and checks what is released.
fn run(packets: &[(Span, usize)], line: Line, seed: u64) -> Outcome {
    let mut rng = Rng::new(seed);
    let path = PacketPath { loss: line.measured, room: ROOM };
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::<Vec<u8>>::default());
    let mut outcome = Outcome::default();
    let mut arriving: BTreeMap<(Time, usize), Sent> = BTreeMap::new();
    let mut arrived: BTreeMap<u64, Time> = BTreeMap::new();
    let mut released: Vec<(Time, Vec<u8>)> = Vec::new();
    let (mut now, mut nth, mut left_to_lose) = (Time::ZERO, 0, 0_u64);
    let mut look = Time::NEVER;
    let mut coming = packets.iter().copied().peekable();
    let mut next_packet = coming.peek().map_or(Time::NEVER, |(gap, _)| now + *gap);
    loop {
        let first = arriving.first_key_value().map_or(Time::NEVER, |((at, _), _)| *at);
        let at = next_packet.min(look).min(first).min(decoder.deadline());
        if at == Time::NEVER {
            break;
        }
        now = now.max(at);
        let mut leaves = Vec::new();
        if now >= next_packet {
            let (_, size) = coming.next().unwrap();
            next_packet = coming.peek().map_or(Time::NEVER, |(gap, _)| now + *gap);
            let number = outcome.packets as u64;
            let mut bytes = number.to_be_bytes().to_vec();
            bytes.resize(size.max(8), number as u8);
            outcome.packets += 1;
            outcome.bytes += bytes.len();
            let numbered =
                encoder.on_sent(now, (Part::Whole, bytes.len()), &path, || bytes.clone());
            assert_eq!(numbered.number, number);
            leaves.push(Sent::Packet(numbered, bytes));
            leaves.extend(encoder.accompany(&path).map(Sent::Repair));
            look = now;
        }
        if now >= look {
            look = match encoder.step(now, &path) {
                PacketStep::Repair(repair) => {
                    leaves.push(Sent::Repair(repair));
                    now
                }
                PacketStep::Wait(at) => at,
                PacketStep::Idle => {
                    assert_eq!(encoder.kept(), 0, "nobody asks again before the next packet");
                    Time::NEVER
                }
            };
        }
        for sent in leaves {
            if let Sent::Repair(repair) = &sent {
                outcome.repairs += 1;
                outcome.repair_bytes += repair.symbol.len();
            }
            if left_to_lose == 0 && unit(&mut rng) < line.loss / line.burst as f64 {
                left_to_lose = line.burst;
            }
            let is_lost = left_to_lose > 0;
            left_to_lose = left_to_lose.saturating_sub(1);
            if is_lost {
                outcome.lost += usize::from(matches!(sent, Sent::Packet(..)));
                continue;
            }
            let late = Span::from_nanos((unit(&mut rng) * line.jitter.as_nanos() as f64) as u64);
            nth += 1;
            arriving.insert((now + Span::from_millis(300) + late, nth), sent);
        }
        while let Some(entry) = arriving.first_entry().filter(|entry| entry.key().0 <= now) {
            match entry.remove() {
                Sent::Packet(numbered, bytes) => {
                    arrived.entry(numbered.number).or_insert(now);
                    decoder.on_packet(now, numbered.number, numbered.back, Part::Whole, bytes);
                }
                Sent::Repair(repair) => decoder.on_repair(now, &repair),
            }
        }
        decoder.on_deadline(now);
        while let Some(packet) = decoder.release() {
            released.push((now, packet));
        }
        assert!(decoder.deadline() > now, "a deadline is in the future");
    }
    // in order, never twice, exactly what was sent, none later than the bound
    let mut last = None;
    for (at, packet) in &released {
        let number = u64::from_be_bytes(*packet.first_chunk().unwrap());
        assert!(last < Some(number), "{number} after {last:?}");
        last = Some(number);
        let size = packets[number as usize].1.max(8);
        assert_eq!(packet.len(), size);
        assert!(packet[8..].iter().all(|byte| *byte == number as u8));
        if let Some(arrival) = arrived.get(&number) {
            let wait = at.since(*arrival);
            assert!(wait <= BOUND, "{number} waited {wait}");
            outcome.waits.push(wait);
        }
    }
    outcome.missing = outcome.packets - released.len();
    let paid = ALLOWANCE
        + outcome.bytes as f64 * path.most()
        + now.since(Time::ZERO).as_secs_f64() * LEAST;
    assert!(outcome.repair_bytes as f64 <= paid, "{} bytes, {paid} paid", outcome.repair_bytes);
    outcome
}

/// A download of so many full packets at 20 Mbit/s.
fn download(packets: usize) -> Vec<(Span, usize)> {
    (0..packets).map(|_| (Span::from_micros(500), 1_250)).collect()
}

fn even(loss: f64) -> Line {
    Line { loss, burst: 1, jitter: Span::ZERO, measured: loss }
}

#[test]
fn most_losses_of_a_download_are_repaired_within_the_overhead() {
    for (loss, overhead, missing) in [(0.01, 0.05, 0.000_5), (0.05, 0.14, 0.002)] {
        let outcome = run(&download(12_000), even(loss), 7);
        let share = outcome.repair_bytes as f64 / outcome.bytes as f64;
        assert!(share <= overhead, "{loss}: {share}");
        assert!(outcome.lost as f64 >= 0.8 * loss * outcome.packets as f64);
        let left = outcome.missing as f64 / outcome.packets as f64;
        assert!(left <= missing, "{loss}: {} of {} lost", outcome.missing, outcome.lost);
        let mut waits = outcome.waits;
        waits.sort_unstable();
        assert!(waits[waits.len() * 99 / 100] <= BOUND);
    }
}

#[test]
fn losses_in_a_row_are_repaired_where_the_window_is_longer() {
    let line = Line { burst: 3, ..even(0.02) };
    let outcome = run(&download(12_000), line, 3);
    assert!(outcome.missing * 4 <= outcome.lost, "{} of {}", outcome.missing, outcome.lost);
}

#[test]
fn without_losses_nothing_is_added() {
    let outcome = run(&download(2_000), even(0.0), 1);
    assert_eq!((outcome.repairs, outcome.missing), (0, 0));
    assert!(outcome.waits.iter().all(|wait| *wait == Span::ZERO));
    // what others overtake is waited for shortly
    let line = Line { jitter: Span::from_millis(4), ..even(0.0) };
    let outcome = run(&download(2_000), line, 1);
    assert_eq!((outcome.repairs, outcome.missing), (0, 0));
    assert!(outcome.waits.iter().all(|wait| *wait <= REORDERED));
}

#[test]
fn a_first_flight_is_repaired() {
    let flight: Vec<_> = (0..10).map(|_| (Span::ZERO, 1_200)).collect();
    let outcomes: Vec<_> = (0..400).map(|seed| run(&flight, even(0.05), seed)).collect();
    let holes = outcomes.iter().filter(|outcome| outcome.missing > 0).count();
    let hit = outcomes.iter().filter(|outcome| outcome.lost > 0).count();
    assert!(hit > 100 && holes * 5 < hit, "{holes} of {hit}");
}

/// To see it fail: repair each packet at the rate of a full pipe.
#[test]
fn few_packets_that_follow_one_another_are_repaired_too() {
    for (loss, packets, missing) in [
        (0.01, 4_u64, 0.01),
        (0.01, 10, 0.01),
        (0.01, 50, 0.01),
        (0.05, 4, 0.05),
        (0.05, 10, 0.01),
        (0.05, 50, 0.06),
    ] {
        // so many in each tenth of a second and a fifth: as bursts, and evenly
        let burst = |nth: u64| match nth % packets {
            0 => Span::from_millis(120),
            _ => Span::from_micros(200),
        };
        let evenly = |_| Span::from_micros(120_000 / packets);
        for gap in [&burst as &dyn Fn(u64) -> Span, &evenly] {
            let sent: Vec<_> = (0..12_000).map(|nth| (gap(nth), 1_250)).collect();
            let outcome = run(&sent, even(loss), 3);
            let left = outcome.missing as f64 / outcome.lost as f64;
            assert!(left <= missing, "{loss}, {packets}: {} of {}", outcome.missing, outcome.lost);
        }
    }
}

/// A sender that grows by a packet each round trip needs minutes without a hole. To see it fail: pay repairs by packets
/// alone.
#[test]
fn packets_by_themselves_are_repaired_too() {
    for rate in [4_u64, 16, 66] {
        let sent: Vec<_> =
            (0..10_000).map(|_| (Span::from_micros(1_000_000 / rate), 1_250)).collect();
        let outcome = run(&sent, even(0.05), 3);
        assert!(outcome.missing <= 3, "{rate}: {} of {}", outcome.missing, outcome.lost);
    }
}

proptest! {
    #[test]
    fn any_flow_over_any_path_keeps_the_laws(
        gaps in proptest::collection::vec((0_u64..30_000, 0_usize..1_500), 1..300),
        loss in 0.0..0.6_f64, burst in 1_u64..20, jitter in 0_u64..200, measured in 0.0..0.6_f64,
        seed in any::<u64>(),
    ) {
        let packets: Vec<_> = gaps.iter().map(|(gap, size)| (Span::from_micros(*gap), *size)).collect();
        let line = Line { loss, burst, jitter: Span::from_millis(jitter), measured };
        run(&packets, line, seed);
    }

    /// Whatever a peer sends, work and memory stay in proportion to its bytes.
    #[test]
    fn a_peer_causes_no_more_work_than_its_bytes_are_worth(
        frames in proptest::collection::vec(
            (any::<bool>(), 0_u64..400, 0_u8..=255, any::<u8>(), 0_usize..1_400), 1..400,
        ),
    ) {
        let mut decoder = Decoder::<Vec<u8>>::default();
        let (before, mut bytes) = (counted::steps(), 0);
        for (nth, (is_packet, number, count, row, size)) in frames.iter().enumerate() {
            let now = Time::ZERO + Span::from_millis(nth as u64);
            bytes += size;
            let payload = vec![nth as u8; *size];
            match is_packet {
                true => decoder.on_packet(now, *number, *count, Part::from_bits(*row), payload),
                false => decoder.on_repair(now, &PacketRepair {
                    first: *number, count: *count, nth: *row, symbol: payload,
                }),
            }
            while decoder.release().is_some() {}
        }
        let steps = counted::steps() - before;
        prop_assert!(steps <= 33 * 1024 + 66 * bytes as u64, "{steps} steps for {bytes} bytes");
        prop_assert!(decoder.kept() <= 192 * (1_402 + 64) + 400 * (1_402 + 64));
        decoder.flush();
        prop_assert_eq!(decoder.kept(), 0);
    }
}

/// To see it fail: wait for the next packet where a repair is not paid for, or where nothing is lost any more.
#[test]
fn packets_that_nothing_can_repair_any_more_are_not_kept() {
    let lossy = PacketPath { loss: 0.25, room: ROOM };
    for loss in [0.25, 0.0] {
        let mut encoder = Encoder::<Vec<u8>>::default();
        encoder.on_sent(Time::ZERO, (Part::Whole, 1_200), &lossy, || vec![7; 1_200]);
        assert_eq!(encoder.kept(), 1_200);
        let path = PacketPath { loss, ..lossy };
        let (mut now, mut repairs) = (Time::ZERO, 0);
        loop {
            match encoder.step(now, &path) {
                PacketStep::Repair(_) => repairs += 1,
                PacketStep::Wait(at) => now = at,
                PacketStep::Idle => break,
            }
        }
        // more are needed than it pays for
        assert_eq!((repairs > 0, encoder.kept()), (loss > 0.0, 0));
        assert!(now <= Time::ZERO + BOUND, "{now:?}");
    }
}

/// To see it fail: ask how old the first is.
#[test]
fn packets_expire_with_the_last() {
    let path = PacketPath { loss: 0.25, room: ROOM };
    let mut encoder = Encoder::<Vec<u8>>::default();
    let last = Time::ZERO + Span::from_millis(100);
    for at in [Time::ZERO, last] {
        encoder.on_sent(at, (Part::Whole, 1_200), &path, || vec![7; 1_200]);
    }
    encoder.expire(Time::ZERO + BOUND);
    assert_eq!(encoder.kept(), 2_400);
    encoder.expire(last + BOUND);
    assert_eq!(encoder.kept(), 0);
}

/// Repairs that overlap by one packet, the last first. To see it fail: bound what an equation lacks where it arrives alone.
#[test]
fn equations_count_all_that_they_lack() {
    let mut decoder = Decoder::<Vec<u8>>::default();
    for nth in (0..64_u64).rev() {
        let first = nth * 63;
        let repair = PacketRepair { first, count: 64, nth: nth as u8, symbol: vec![1; 1_000] };
        decoder.on_repair(Time::ZERO, &repair);
    }
    assert!(decoder.lacks() * 16 <= decoder.kept(), "{} in {}", decoder.lacks(), decoder.kept());
    decoder.flush();
    assert_eq!((decoder.lacks(), decoder.kept()), (0, 0));
}

/// A thousand wait, and each that comes is the one before the next of them. To see it fail: look for the oldest of those
/// that wait among all of them.
#[test]
fn packets_that_wait_are_not_walked_for_each_that_comes() {
    let mut decoder = Decoder::<Vec<u8>>::default();
    let at = |nth: u64| Time::ZERO + Span::from_micros(nth);
    for nth in 1..=1_000 {
        decoder.on_packet(at(nth), 2 * nth - 1, 0, Part::Whole, vec![]);
        assert!(decoder.release().is_none());
    }
    let (before, mut released) = (counted::steps(), 0);
    for nth in 1..=1_000 {
        decoder.on_packet(at(1_001), 2 * nth - 2, 0, Part::Whole, vec![]);
        released += core::iter::from_fn(|| decoder.release()).count();
        let oldest = if nth < 1_000 { at(nth + 1) + REORDERED } else { Time::NEVER };
        assert_eq!(decoder.deadline(), oldest, "{nth}");
    }
    let steps = counted::steps() - before;
    assert!(steps <= 4_000, "{steps}");
    assert_eq!(released, 2_000);
}
