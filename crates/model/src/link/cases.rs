//! Single cases of links, where a person can do the sum.

use super::*;
use crate::units::Rate;
use std::vec::Vec;

pub(super) fn config(discipline: Discipline, rate: u64) -> Config {
    Config {
        discipline,
        serialiser: Serialiser::Rate(Rate::from_bits_per_second(rate)),
        framing: 0,
        seed: 1,
        ..Config::default()
    }
}

pub(super) fn packet(id: u64, bytes: u32) -> Packet {
    Packet { id, bytes, class: 0, flow: id % 3, segments: 1, ecn_capable: false }
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
            assert!(
                measured.abs_diff(rate) <= rate / 1_000_000 + 1,
                "{rate} at {delay}: {measured}"
            );
            assert!(out.len() >= 4_990, "{}", out.len());
        }
    }
}

#[test]
fn strict_priority_sends_the_lowest_class_first() {
    let mut link =
        Link::new(&config(Discipline::Priority(Bound::Unlimited), 1_000_000), Time::ZERO);
    for (id, class) in [(0, 3), (1, 3), (2, 1), (3, 0), (4, 200), (5, 0)] {
        link.offer(Time::ZERO, Packet { class, ..packet(id, 1000) });
    }
    let order: Vec<_> = drain(&mut link).iter().map(|d| d.packet.id).collect();
    assert_eq!(order, [0, 3, 5, 2, 1, 4]);
}

#[test]
fn acknowledgements_overtake_all_but_what_is_being_sent() {
    let bound = Bound::Packets(2);
    let mut link = Link::new(&config(Discipline::AckFirst(bound), 1_000_000), Time::ZERO);
    // the jam fills its own room of two, and leaves the acknowledgements theirs
    for (id, class) in [(0, 1), (1, 1), (2, 7), (3, 1), (4, 0), (5, 0), (6, 0)] {
        link.offer(Time::ZERO, Packet { class, ..packet(id, 1000) });
    }
    let order: Vec<_> = drain(&mut link).iter().map(|d| d.packet.id).collect();
    assert_eq!(order, [0, 4, 5, 1, 2]);
}

#[test]
fn fq_codel_keeps_a_thin_flow_from_waiting_behind_a_fat_one() {
    let wait = |discipline| {
        let mut link = Link::new(&config(discipline, 10_000_000), Time::ZERO);
        (0..100).for_each(|id| {
            link.offer(Time::ZERO, Packet { flow: 7, ..packet(id, 1500) });
        });
        let asked = Time::ZERO + Span::from_millis(2);
        link.offer(asked, Packet { flow: 8, ..packet(1000, 100) });
        let thin = drain(&mut link).into_iter().find(|d| d.packet.id == 1000).unwrap();
        thin.departed.since(asked).as_micros()
    };
    assert!(wait(Discipline::DropTail(Bound::Unlimited)) > 100_000);
    // the packet on the wire, at most one more of the fat flow's first quantum, and its own 80 µs
    assert!(wait(Discipline::FqCodel(FqCodelConfig::default())) < 2 * 1_200 + 81);
}

#[test]
fn codel_brings_the_delay_of_a_standing_queue_down_and_marks_who_understands() {
    for ecn_capable in [false, true] {
        let mut link = Link::new(
            &config(Discipline::FqCodel(FqCodelConfig::default()), 10_000_000),
            Time::ZERO,
        );
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
fn a_change_of_rate_catches_the_packet_on_the_wire() {
    let mut link =
        Link::new(&config(Discipline::DropTail(Bound::Unlimited), 1_000_000), Time::ZERO);
    (0..2).for_each(|id| {
        link.offer(Time::ZERO, packet(id, 1250));
    });
    // half of the first is out; the rest goes ten times as fast
    let halfway = Time::ZERO + Span::from_millis(5);
    link.set(halfway, Change::Serialiser(Serialiser::Rate(Rate::from_bits_per_second(10_000_000))));
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
    link.poll(Time::ZERO + Span::from_millis(1));
    link.set(Time::ZERO + Span::from_millis(1), Change::Delay(Span::from_millis(10)));
    link.offer(Time::ZERO + Span::from_millis(2), packet(1, 1250));
    let out = drain(&mut link);
    assert_eq!(out.iter().map(|d| d.packet.id).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(out[0].due, out[1].due);
}

#[test]
fn a_saturated_link_follows_its_schedule_to_the_nanosecond() {
    // 8, 0 and 2 Mbit/s for a second each, again and again: 1,250,000 bytes a round
    let rate = |mbit| Change::Serialiser(Serialiser::Rate(Rate::from_bits_per_second(mbit)));
    let at = Span::from_secs;
    let config = Config {
        schedule: [(at(0), rate(8_000_000)), (at(2), rate(2_000_000)), (at(1), rate(0))].into(),
        schedule_period: Some(at(3)),
        ..config(Discipline::DropTail(Bound::Unlimited), 1)
    };
    assert_eq!(config.check(), Ok(()));
    let mut link = Link::new(&config, Time::ZERO);
    (0..3_000).for_each(|id| {
        link.offer(Time::ZERO, packet(id, 1_499));
    });
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
fn a_schedule_that_cannot_be_kept_is_refused() {
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
fn a_stopped_link_keeps_what_it_has_and_goes_on() {
    let stopped = Serialiser::Rate(Rate::from_bits_per_second(0));
    let mut link =
        Link::new(&config(Discipline::DropTail(Bound::Packets(2)), 1_000_000), Time::ZERO);
    // 10 ms each
    let offered: Vec<_> = (0..4).map(|id| link.offer(Time::ZERO, packet(id, 1250))).collect();
    assert_eq!(offered[2..], [Offered::Queued, Offered::Dropped]);
    let ms = |n| Time::ZERO + Span::from_millis(n);
    link.set(ms(4), Change::Serialiser(stopped));
    assert_eq!((link.next(), link.poll(Time::NEVER)), (Time::NEVER, None), "for good, as it seems");
    link = {
        let mut again =
            Link::new(&config(Discipline::DropTail(Bound::Packets(2)), 1_000_000), Time::ZERO);
        (0..3).for_each(|id| {
            again.offer(Time::ZERO, packet(id, 1250));
        });
        again.set(ms(4), Change::Serialiser(Serialiser::Rate(Rate::from_bits_per_second(0))));
        again.set(
            ms(100),
            Change::Serialiser(Serialiser::Rate(Rate::from_bits_per_second(1_000_000))),
        );
        again
    };
    let ends: Vec<_> = drain(&mut link).iter().map(|d| d.departed.as_nanos() / 1_000_000).collect();
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
        assert_eq!(fifo.offer(at, packet(id, 1_000)) != Verdict::Dropped, room, "{id}");
    }
    let mut stopped = config.clone();
    stopped.serialiser = Serialiser::Rate(Rate::default());
    let scheduled = [(Span::ZERO, Change::Delay(Span::ZERO))].into();
    for needs_events in [
        stopped,
        Config { schedule: scheduled, ..config.clone() },
        Config { discipline: Discipline::Priority(Bound::Unlimited), ..config },
    ] {
        assert!(Fifo::new(&needs_events, Time::ZERO).is_none());
    }
}
