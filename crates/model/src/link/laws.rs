//! What holds for every link.

use super::*;
use crate::units::{Rate, Share};
use alloc::collections::BTreeSet;
use proptest::prelude::*;
use std::vec::Vec;

fn config(discipline: Discipline, rate: u64) -> Config {
    Config {
        discipline,
        serialiser: Serialiser::Rate(Rate::from_bits_per_second(rate)),
        framing: 0,
        seed: 1,
        ..Config::default()
    }
}

fn packet(id: u64, bytes: u32) -> Packet {
    Packet { id, bytes, class: 0, flow: id % 3, segments: 1, ecn_capable: false }
}

/// Polls until nothing happens any more.
fn drain(link: &mut Link) -> Vec<Delivered> {
    let mut all = Vec::new();
    while link.next() != Time::NEVER {
        let now = link.next();
        while let Some(delivered) = link.poll(now) {
            all.push(delivered);
        }
    }
    all
}

fn disciplines() -> impl Strategy<Value = Discipline> {
    let bound = prop_oneof![
        Just(Bound::Unlimited),
        (0_u64..20).prop_map(Bound::Packets),
        (0_u64..20_000).prop_map(|n| Bound::Bytes(Bytes::new(n))),
    ];
    prop_oneof![
        bound.clone().prop_map(Discipline::DropTail),
        bound.prop_map(Discipline::Priority),
        (1_u32..8, 1_u64..30).prop_map(|(flows, limit)| {
            Discipline::FqCodel(FqCodelConfig { flows, limit, ..FqCodelConfig::default() })
        }),
    ]
}

fn losses() -> impl Strategy<Value = Loss> {
    let share = |percent| Share::from_percent(percent).unwrap();
    prop_oneof![
        Just(Loss::None),
        (0_u64..=100).prop_map(move |p| Loss::Independent(share(p), LossUnit::Packet)),
        Just(Loss::GilbertElliott(
            GilbertElliott {
                to_bad: share(10),
                to_good: share(30),
                good_loss: share(1),
                bad_loss: share(80),
            },
            LossUnit::SuperPacket,
        )),
        proptest::collection::btree_set(0_u64..100, 0..20)
            .prop_map(|list: BTreeSet<u64>| Loss::Listed(alloc::sync::Arc::new(list))),
    ]
}

/// (gap since the last in µs, bytes, class, flow)
fn arrivals() -> impl Strategy<Value = Vec<(u64, u32, u8, u64)>> {
    proptest::collection::vec((0_u64..3_000, 40_u32..1501, 0_u8..4, 0_u64..4), 1..150)
}

proptest! {
    #[test]
    fn nothing_appears_and_nothing_vanishes(
        discipline in disciplines(), loss in losses(), arrivals in arrivals(),
        rate in 64_000_u64..100_000_000, delay in 0_u64..50, jitter in 0_u64..20, reorder: bool,
    ) {
        let config = Config {
            loss,
            delay: Span::from_millis(delay),
            jitter: Span::from_millis(jitter),
            reorder,
            ..config(discipline, rate)
        };
        let mut link = Link::new(&config, Time::ZERO);
        let mut now = Time::ZERO;
        let mut out = Vec::new();
        for (id, (gap, bytes, class, flow)) in arrivals.into_iter().enumerate() {
            now += Span::from_micros(gap);
            let packet = Packet { class, flow, ecn_capable: flow == 0, ..packet(id as u64, bytes) };
            link.offer(now, packet);
            while let Some(delivered) = link.poll(now) { out.push(delivered); }
            let s = link.snapshot();
            prop_assert_eq!(s.offered, s.delivered + s.dropped + s.lost + s.queued + s.in_flight);
            prop_assert_eq!(
                s.offered_bytes,
                s.delivered_bytes + s.dropped_bytes + s.lost_bytes + s.queued_bytes + s.in_flight_bytes
            );
        }
        out.extend(drain(&mut link));
        let s = link.snapshot();
        prop_assert_eq!((s.queued, s.in_flight, s.in_flight_bytes), (0, 0, 0));
        prop_assert_eq!(s.offered, s.delivered + s.dropped + s.lost);
        prop_assert_eq!(out.len() as u64, s.delivered);
        prop_assert!(out.is_sorted_by_key(|d| d.due));
        prop_assert!(out.iter().all(|d| d.due >= d.departed + config.delay && d.departed >= d.offered));
        let ids: BTreeSet<_> = out.iter().map(|d| d.packet.id).collect();
        prop_assert_eq!(ids.len(), out.len(), "no packet twice");
    }

    #[test]
    fn a_late_driver_gets_the_same_times(
        discipline in disciplines(), loss in losses(), arrivals in arrivals(), every in 1_u64..40,
    ) {
        // one driver polls at every event, the other only now and then
        let run = |eager: bool| {
            let config = Config {
                loss: loss.clone(),
                delay: Span::from_millis(7),
                jitter: Span::from_millis(2),
                ..config(discipline.clone(), 2_000_000)
            };
            let mut link = Link::new(&config, Time::ZERO);
            let mut now = Time::ZERO;
            let mut out = Vec::new();
            for (id, (gap, bytes, class, flow)) in arrivals.iter().copied().enumerate() {
                let next = now + Span::from_micros(gap);
                while eager && link.next() <= next {
                    let at = link.next();
                    while let Some(delivered) = link.poll(at) { out.push(delivered); }
                }
                now = next;
                link.offer(now, Packet { class, flow, ..packet(id as u64, bytes) });
                if (id as u64).is_multiple_of(every) {
                    while let Some(delivered) = link.poll(now) { out.push(delivered); }
                }
            }
            out.extend(drain(&mut link));
            (out, link.snapshot())
        };
        prop_assert_eq!(run(true), run(false));
    }

    #[test]
    fn drop_tail_is_what_a_formula_says(
        arrivals in arrivals(), rate in 64_000_u64..50_000_000, most in 0_u64..12,
    ) {
        // start = max(arrival, end of the one before); full when more than `most` have not started
        let mut link = Link::new(&config(Discipline::DropTail(Bound::Packets(most)), rate), Time::ZERO);
        let (mut now, mut busy, mut remainder) = (0_u64, 0_u64, 0_u128);
        let mut starts: Vec<u64> = Vec::new();
        let mut expected = Vec::new();
        for (id, (gap, bytes, ..)) in arrivals.into_iter().enumerate() {
            now += gap * 1_000;
            link.offer(Time::from_nanos(now), packet(id as u64, bytes));
            let waiting = starts.iter().filter(|start| **start > now).count() as u64;
            if busy > now && waiting >= most {
                continue;
            }
            let start = now.max(busy);
            let carried = if start == busy { remainder } else { 0 };
            let work = u128::from(bytes) * 8_000_000_000 + carried;
            busy = start + (work / u128::from(rate)) as u64;
            remainder = work % u128::from(rate);
            starts.push(start);
            expected.push((id as u64, busy));
        }
        let got: Vec<_> = drain(&mut link).iter().map(|d| (d.packet.id, d.departed.as_nanos())).collect();
        prop_assert_eq!(got, expected);
    }

    #[test]
    fn an_empty_link_delays_one_packet_by_size_over_rate_and_propagation(
        bytes in 40_u32..9001, rate in 64_000_u64..1_000_000_000, delay in 0_u64..600, framing in 0_u32..39,
    ) {
        let delay = Span::from_millis(delay);
        let config = Config { delay, framing, ..config(Discipline::DropTail(Bound::Unlimited), rate) };
        let mut link = Link::new(&config, Time::ZERO);
        link.offer(Time::ZERO, packet(0, bytes));
        let nanos = u128::from(bytes + framing) * 8_000_000_000 / u128::from(rate);
        let due = Time::from_nanos(nanos as u64) + delay;
        prop_assert_eq!(drain(&mut link)[0].due, due);
    }
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
            assert!(measured.abs_diff(rate) <= rate / 100_000 + 1, "{rate} at {delay}: {measured}");
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
