//! Single cases of links, where a person can do the sum.

use super::*;
use crate::testing::*;

pub(super) fn config(discipline: Discipline, rate: u64) -> Config {
    Config { discipline, serialiser: self::rate(rate), framing: 0, seed: 1, ..Config::default() }
}

pub(super) fn packet(id: u64, bytes: u32) -> Packet {
    Packet { flow: id % 3, ..Packet::new(id, bytes) }
}

fn rate(bits: u64) -> Serialiser {
    Serialiser::Rate(Rate::from_bits_per_second(bits))
}

fn link(discipline: Discipline, rate: u64) -> Link {
    Link::new(&config(discipline, rate), Time::ZERO)
}

/// Offers so many packets of a size at 0.
fn offer(link: &mut Link, packets: u64, bytes: u32) {
    for id in 0..packets {
        link.offer(Time::ZERO, packet(id, bytes));
    }
}

/// The packets' numbers in the order in which they come.
fn order(link: &mut Link) -> Vec<u64> {
    drain(link).iter().map(|delivered| delivered.packet.id).collect()
}

/// Polls until nothing happens any more.
pub(super) fn drain(link: &mut Link) -> Vec<Delivered> {
    let mut all = Vec::new();
    while link.next() != Time::NEVER {
        let now = link.next();
        while let Some(delivered) = link.poll(now) {
            all.push(delivered);
        }
    }
    all
}

#[test]
fn a_saturated_link_delivers_its_rate_at_every_delay() {
    for delay in [0, 1, 25, 300, 2_000] {
        for rate in [128_000, 1_000_000, 10_000_000, 999_999_937] {
            let discipline = Discipline::DropTail(Bound::Packets(10));
            let delay = Span::from_millis(delay);
            let mut link = Link::new(&Config { delay, ..config(discipline, rate) }, Time::ZERO);
            // twice the rate is offered for as long as 5,000 packets take
            let gap = 1500 * 8 * 1_000_000_000 / rate / 2;
            (0..10_000).for_each(|id| {
                link.offer(Time::from_nanos(id * gap), packet(id, 1500));
            });
            let out = drain(&mut link);
            let span = out[out.len() - 1].departed.since(out[0].offered);
            let bytes = Bytes::new(out.len() as u64 * 1500);
            let measured = Rate::of(bytes, span).unwrap().as_bits_per_second();
            let near = measured.abs_diff(rate) <= rate / 1_000_000 + 1;
            assert!(near, "{rate} at {delay}: {measured}");
            assert!(out.len() >= 4_990, "{}", out.len());
        }
    }
}

#[test]
fn strict_priority_sends_the_lowest_class_first() {
    let mut link = link(Discipline::Priority(Bound::Unlimited), 1_000_000);
    for (id, class) in [(0, 3), (1, 3), (2, 1), (3, 0), (4, 200), (5, 0)] {
        link.offer(Time::ZERO, Packet { class, ..packet(id, 1000) });
    }
    assert_eq!(order(&mut link), [0, 3, 5, 2, 1, 4]);
}

#[test]
fn acks_overtake_all_but_the_packet_in_transmission() {
    let bound = Bound::Packets(2);
    let mut link = link(Discipline::AckFirst(bound), 1_000_000);
    // the jam fills its own room of two, and leaves the acknowledgements theirs
    for (id, class) in [(0, 1), (1, 1), (2, 7), (3, 1), (4, 0), (5, 0), (6, 0)] {
        link.offer(Time::ZERO, Packet { class, ..packet(id, 1000) });
    }
    assert_eq!(order(&mut link), [0, 4, 5, 1, 2]);
}

#[test]
fn fq_codel_keeps_a_thin_flow_from_waiting_behind_a_fat_one() {
    let wait = |discipline| {
        let mut link = link(discipline, 10_000_000);
        (0..100).for_each(|id| {
            link.offer(Time::ZERO, Packet { flow: 7, ..packet(id, 1500) });
        });
        let asked = at(2);
        link.offer(asked, Packet { flow: 8, ..packet(1000, 100) });
        let thin = drain(&mut link).into_iter().find(|d| d.packet.id == 1000).unwrap();
        thin.departed.since(asked).as_micros()
    };
    assert!(wait(Discipline::DropTail(Bound::Unlimited)) > 100_000);
    // the packet on the wire, at most one more of the fat flow's first quantum, and its own 80 µs
    assert!(wait(Discipline::FqCodel(FqCodelConfig::default())) < 2 * 1_200 + 81);
}

#[test]
fn codel_reduces_a_standing_queue_and_marks_ecn_packets() {
    for ecn_capable in [false, true] {
        let config = config(Discipline::FqCodel(FqCodelConfig::default()), 10_000_000);
        let mut link = Link::new(&config, Time::ZERO);
        // 10 % more than fits, for 20 s
        (0..18_300_u64).for_each(|id| {
            let now = Time::ZERO + Span::from_nanos(id * 1_090_909);
            link.offer(now, Packet { flow: 1, ecn_capable, ..packet(id, 1500) });
        });
        let all = drain(&mut link);
        let s = link.snapshot();
        if ecn_capable {
            assert!(s.marked > 100 && s.dropped == 0, "{s:?}");
        } else {
            // a sender that does not slow down: CoDel drops ever faster, and the delay stays bounded
            assert!(s.marked == 0 && s.dropped > 500, "{s:?}");
            let last = all[all.len() - 1];
            assert!(last.departed.since(last.offered) < Span::from_millis(500), "{last:?}");
        }
    }
}

#[test]
fn rate_change_applies_to_the_packet_on_the_wire() {
    let mut link = link(Discipline::DropTail(Bound::Unlimited), 1_000_000);
    offer(&mut link, 2, 1250);
    // half of the first is out; the rest goes ten times as fast
    link.set(at(5), Change::Serialiser(rate(10_000_000)));
    let ends: Vec<_> = drain(&mut link).iter().map(|d| d.departed.as_nanos() / 1_000).collect();
    assert_eq!(ends, [5_500, 6_500]);
}

#[test]
fn a_shorter_delay_does_not_overtake() {
    let slow = Config {
        delay: Span::from_millis(100),
        ..config(Discipline::DropTail(Bound::Unlimited), 1_000_000_000)
    };
    let mut link = Link::new(&slow, Time::ZERO);
    link.offer(Time::ZERO, packet(0, 1250));
    link.poll(at(1));
    link.set(at(1), Change::Delay(Span::from_millis(10)));
    link.offer(at(2), packet(1, 1250));
    let out = drain(&mut link);
    assert_eq!(out.iter().map(|d| d.packet.id).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(out[0].due, out[1].due);
}

#[test]
fn a_saturated_link_follows_its_schedule_to_the_nanosecond() {
    // 8, 0 and 2 Mbit/s for a second each, again and again: 1,250,000 bytes a round
    let rate = |bits| Change::Serialiser(rate(bits));
    let at = Span::from_secs;
    let config = Config {
        schedule: [(at(0), rate(8_000_000)), (at(2), rate(2_000_000)), (at(1), rate(0))].into(),
        schedule_period: Some(at(3)),
        ..config(Discipline::DropTail(Bound::Unlimited), 1)
    };
    assert_eq!(config.check(), Ok(()));
    let mut link = Link::new(&config, Time::ZERO);
    offer(&mut link, 3_000, 1_499);
    let out = drain(&mut link);
    assert_eq!(out.len(), 3_000);
    for (at, delivered) in out.iter().enumerate() {
        let bytes = (at as u64 + 1) * 1_499;
        let (round, rest) = (bytes / 1_250_000, bytes % 1_250_000);
        let within = match rest {
            0 => 0,
            1..=1_000_000 => rest * 1_000,
            _ => 2_000_000_000 + (rest - 1_000_000) * 4_000,
        };
        assert_eq!(delivered.departed.as_nanos(), round * 3_000_000_000 + within, "{at}");
    }
}

#[test]
fn refuses_impossible_schedules() {
    let delay = |at| (Span::from_secs(at), Change::Delay(Span::ZERO));
    let with = |at, period| {
        let schedule_period = Some(Span::from_secs(period));
        Config { schedule: [delay(at)].into(), schedule_period, ..Config::default() }.check()
    };
    assert_eq!(with(1, 2), Ok(()));
    assert!(with(2, 2).unwrap_err().contains("the change at 2 s comes after"));
    assert!(with(0, 0).unwrap_err().contains("every 0 ns"));
}

#[test]
fn stopped_link_keeps_its_queue_and_resumes() {
    let mut link = link(Discipline::DropTail(Bound::Packets(2)), 1_000_000);
    // 10 ms each
    let offered: Vec<_> = (0..4).map(|id| link.offer(Time::ZERO, packet(id, 1250))).collect();
    assert_eq!(offered[2..], [Offered::Queued, Offered::Dropped]);
    link.set(at(4), Change::Serialiser(rate(0)));
    assert_eq!((link.next(), link.poll(Time::NEVER)), (Time::NEVER, None), "for good, as it seems");
    let mut again = self::link(Discipline::DropTail(Bound::Packets(2)), 1_000_000);
    offer(&mut again, 3, 1250);
    again.set(at(4), Change::Serialiser(rate(0)));
    again.set(at(100), Change::Serialiser(rate(1_000_000)));
    let ends: Vec<_> =
        drain(&mut again).iter().map(|d| d.departed.as_nanos() / 1_000_000).collect();
    assert_eq!(ends, [106, 116, 126]);
}

#[test]
fn room_is_made_once() {
    let config = Config {
        delay: Span::from_millis(50),
        ..config(Discipline::DropTail(Bound::Packets(20)), 12_000_000)
    };
    let (mut link, mut room) = (Link::new(&config, Time::ZERO), 0);
    for id in 0..20_000 {
        let now = Time::from_nanos(id * 900_000);
        while link.poll(now).is_some() {}
        link.offer(now, packet(id, 1500));
        if id == 1_000 {
            room = link.flight.capacity();
        }
    }
    assert_eq!(link.flight.capacity(), room);
}

#[test]
fn a_packet_leaves_the_queue_when_it_starts_and_no_later() {
    // 1 ms each: at 1 ms the second starts, and its place is free for the third
    let config = config(Discipline::DropTail(Bound::Packets(1)), 8_000_000);
    let times = [0, 0, 0, 1_000_000, 1_999_999, 2_000_000];
    let room = [true, true, false, true, false, true];
    let mut link = Link::new(&config, Time::ZERO);
    let mut fifo = Fifo::new(&config, Time::ZERO).unwrap();
    for ((id, at), room) in (0..).zip(times.map(Time::from_nanos)).zip(room) {
        assert_eq!(link.offer(at, packet(id, 1_000)) == Offered::Queued, room, "{id}");
        assert_eq!(fifo.offer(at, &packet(id, 1_000)) != Verdict::Dropped, room, "{id}");
    }
    let scheduled = [(Span::ZERO, Change::Delay(Span::ZERO))].into();
    for needs_events in [
        Config { serialiser: rate(0), ..config.clone() },
        Config { schedule: scheduled, ..config.clone() },
        Config { discipline: Discipline::Priority(Bound::Unlimited), ..config },
    ] {
        assert!(Fifo::new(&needs_events, Time::ZERO).is_none());
    }
}
