//! What holds for every link.

use super::cases::{config, drain, packet};
use super::draws::{arrivals, configs, disciplines, packets, rates, traces};
use super::*;
use crate::testing::*;

/// When a driver comes round, besides offering.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Driver {
    Eager,
    Offering,
    /// Never, until all were offered.
    Lazy,
    /// Every so many µs.
    Every(u64),
}

#[derive(Debug, PartialEq)]
struct Run {
    out: Vec<Delivered>,
    offered: Vec<Offered>,
    end: Snapshot,
}

/// Drives a link and checks every step; at the end an infinite rate empties stopped links.
fn run(config: &Config, packets: &[(Time, Packet)], driver: Driver) -> Run {
    let mut link = Link::new(config, Time::ZERO);
    let (mut out, mut offered) = (Vec::new(), Vec::new());
    let last = packets.last().map_or(Time::ZERO, |(at, _)| *at);
    let horizon = last + Span::from_secs(3);
    let ends = core::iter::once((horizon, None));
    let mut now = Time::ZERO;
    for (at, packet) in packets.iter().map(|(at, packet)| (*at, Some(packet))).chain(ends) {
        match driver {
            Driver::Eager => {
                while link.next() <= at {
                    let next = link.next();
                    assert!(next >= now, "next() is in the past");
                    now = next;
                    let from = out.len();
                    poll(&mut link, now, &mut out);
                    assert!(out[from..].iter().all(|d| d.due == now), "next() was too late");
                }
            }
            Driver::Every(us) => {
                while now + Span::from_micros(us) < at {
                    now += Span::from_micros(us);
                    poll(&mut link, now, &mut out);
                }
            }
            Driver::Offering | Driver::Lazy => {}
        }
        now = at;
        match packet {
            Some(packet) => offered.push(link.offer(at, *packet)),
            None => link.set(at, Change::Serialiser(Serialiser::Infinite)),
        }
        conserves(&link);
        within_bounds(config, &link);
        if driver != Driver::Lazy {
            let from = out.len();
            poll(&mut link, at, &mut out);
            let exact = driver != Driver::Eager || out[from..].iter().all(|d| d.due == at);
            assert!(exact, "next() was too late");
        }
    }
    poll(&mut link, horizon + Span::from_secs(10), &mut out);
    Run { out, offered, end: link.snapshot() }
}

fn poll(link: &mut Link, now: Time, out: &mut Vec<Delivered>) {
    while let Some(delivered) = link.poll(now) {
        assert!(delivered.due <= now);
        out.push(delivered);
        conserves(link);
    }
    conserves(link);
    assert!(link.next() > now, "what is due has been done");
}

fn conserves(link: &Link) {
    let s = link.snapshot();
    assert_eq!(s.offered, s.delivered + s.dropped + s.lost + s.queued + s.in_flight);
    let gone = s.delivered_bytes + s.dropped_bytes + s.lost_bytes;
    assert_eq!(s.offered_bytes, gone + s.queued_bytes + s.in_flight_bytes);
    // the quick counts are those of what is really there
    let inside = || {
        let sending = link.sending.iter().map(|(waiting, _)| waiting.packet.bytes);
        sending.chain(link.flight.iter().map(|delivered| delivered.packet.bytes))
    };
    assert_eq!(s.in_flight, inside().count() as u64);
    assert_eq!(s.in_flight_bytes, inside().map(u64::from).sum::<u64>());
}

fn within_bounds(config: &Config, link: &Link) {
    let s = link.snapshot();
    let (bound, classes) = match &config.discipline {
        Discipline::DropTail(bound) => (*bound, 1),
        Discipline::Priority(bound) => (*bound, 8),
        Discipline::AckFirst(bound) => (*bound, 2),
        Discipline::FqCodel(fq) => {
            assert!(s.queued <= fq.limit && s.queued_bytes <= fq.memory.as_u64());
            return;
        }
    };
    match bound {
        Bound::Unlimited => assert_eq!(s.dropped, 0),
        Bound::Packets(most) => assert!(s.queued <= most * classes),
        Bound::Bytes(most) => assert!(s.queued_bytes <= most.as_u64() * classes),
    }
}

/// What stays in order: everything, a class, a flow.
fn order(config: &Config, packet: &Packet) -> u64 {
    match config.discipline {
        Discipline::DropTail(_) => 0,
        Discipline::Priority(_) => packet.class.min(7).into(),
        Discipline::AckFirst(_) => packet.class.min(1).into(),
        Discipline::FqCodel(_) => packet.flow,
    }
}

/// Every value of one kind that a link has in its life.
fn over_life<T>(config: &Config, first: T, of: impl Fn(&Change) -> Option<T>) -> Vec<T> {
    core::iter::once(first)
        .chain(config.schedule.iter().filter_map(|(_, change)| of(change)))
        .collect()
}

proptest! {
    #[test]
    fn nothing_appears_nothing_vanishes_and_order_is_kept(config in configs(), arrivals in arrivals()) {
        let packets = packets(&arrivals);
        let Run { out, offered, end: s } = run(&config, &packets, Driver::Eager);
        prop_assert_eq!((s.queued, s.in_flight, s.in_flight_bytes), (0, 0, 0));
        prop_assert_eq!((s.offered, s.delivered), (packets.len() as u64, out.len() as u64));
        let ids: BTreeSet<_> = out.iter().map(|d| d.packet.id).collect();
        prop_assert_eq!(ids.len(), out.len(), "no packet twice");
        let all_pass = over_life(&config, config.loss.clone(), |change| {
            if let Change::Loss(loss) = change { Some(loss.clone()) } else { None }
        });
        if all_pass.iter().all(|loss| *loss == Loss::None) {
            prop_assert_eq!(s.lost, 0);
        }
        let delays: Vec<Span> = over_life(&config, config.delay, |change| {
            if let Change::Delay(delay) = change { Some(*delay) } else { None }
        });
        let (least, most) = (*delays.iter().min().unwrap(), *delays.iter().max().unwrap());
        // bits per second where that is all there ever is
        let rates = over_life(&config, config.serialiser.clone(), |change| {
            if let Change::Serialiser(kind) = change { Some(kind.clone()) } else { None }
        });
        let fastest = rates.iter().map(|kind| match kind {
            Serialiser::Rate(rate) => rate.as_bits_per_second(),
            _ => u64::MAX,
        }).max().unwrap_or(u64::MAX);
        let horizon = packets.last().unwrap().0 + Span::from_secs(3);
        for d in &out {
            let (at, packet) = packets[d.packet.id as usize];
            prop_assert_eq!((d.packet, d.offered), (packet, at));
            prop_assert!(d.marked <= packet.ecn_capable);
            prop_assert!(d.due >= d.departed + least);
            prop_assert!(d.due <= d.departed + most + config.jitter);
            let bits = on_the_wire(&packet, config.framing).as_u64() * 8;
            let takes = u128::from(bits) * 1_000_000_000 / u128::from(fastest.max(1));
            let earliest = d.offered + Span::from_nanos(takes as u64);
            prop_assert!(d.departed >= earliest.min(horizon), "faster than the link");
            if !matches!(config.discipline, Discipline::FqCodel(_)) {
                prop_assert_eq!(offered[packet.id as usize], Offered::Queued);
            }
        }
        // each group leaves in the order it came, and arrives so unless asked otherwise
        prop_assert!(out.is_sorted_by_key(|d| d.due));
        let groups: BTreeSet<u64> = out.iter().map(|d| order(&config, &d.packet)).collect();
        for group in groups {
            let mut of: Vec<_> = out.iter().filter(|d| order(&config, &d.packet) == group).collect();
            prop_assert!(config.reorder || of.is_sorted_by_key(|d| d.packet.id));
            of.sort_by_key(|d| d.packet.id);
            prop_assert!(of.is_sorted_by_key(|d| d.departed));
        }
    }

    #[test]
    fn every_driver_gets_the_same(config in configs(), arrivals in arrivals(), every in 1_000_u64..200_000) {
        let packets = packets(&arrivals);
        let eager = run(&config, &packets, Driver::Eager);
        for driver in [Driver::Offering, Driver::Lazy, Driver::Every(every)] {
            prop_assert_eq!(&run(&config, &packets, driver), &eager, "{:?}", driver);
        }
    }

    #[test]
    fn schedule_equals_timely_changes(config in configs(), arrivals in arrivals()) {
        let packets = packets(&arrivals);
        let scheduled = run(&config, &packets, Driver::Lazy);
        // the same changes by hand, each before what is offered at its time
        let horizon = packets.last().unwrap().0 + Span::from_secs(3);
        let rounds = config.schedule_period.map_or(1, |p| horizon.as_nanos() / p.as_nanos() + 1);
        let mut changes = Vec::new();
        for round in 0..rounds {
            let begun = config.schedule_period.map_or(Span::ZERO, |p| p.saturating_mul(round));
            changes.extend(config.schedule.iter().map(|(at, c)| (Time::ZERO + begun + *at, c.clone())));
        }
        changes.sort_by_key(|(at, _)| *at);
        changes.retain(|(at, _)| *at <= horizon);
        let mut changes = changes.into_iter().peekable();
        let plain = Config { schedule: Vec::new(), schedule_period: None, ..config };
        let (mut link, mut out) = (Link::new(&plain, Time::ZERO), Vec::new());
        let ends = core::iter::once((horizon, None));
        for (at, packet) in packets.iter().map(|(at, packet)| (*at, Some(packet))).chain(ends) {
            while let Some((at, change)) = changes.next_if(|(due, _)| *due <= at) {
                link.set(at, change);
            }
            match packet {
                Some(packet) => { link.offer(at, *packet); }
                None => link.set(at, Change::Serialiser(Serialiser::Infinite)),
            }
        }
        poll(&mut link, horizon + Span::from_secs(10), &mut out);
        prop_assert_eq!(out, scheduled.out);
    }

    #[test]
    fn constant_rate_is_work_conserving(
        discipline in disciplines(), rate in rates(), framing in 0_u32..39, arrivals in arrivals(),
    ) {
        let config = Config { discipline, serialiser: rate.clone(), framing, ..Config::default() };
        let Run { mut out, .. } = run(&config, &packets(&arrivals), Driver::Eager);
        let Serialiser::Rate(rate) = rate else { return Ok(()) };
        out.sort_by_key(|d| d.departed);
        let mut before = Time::ZERO;
        for d in out {
            let bits = u128::from(on_the_wire(&d.packet, framing).as_u64()) * 8;
            let takes = (bits * 1_000_000_000).div_ceil(u128::from(rate.as_bits_per_second()));
            let latest = before.max(d.offered) + Span::from_nanos(takes as u64);
            prop_assert!(d.departed <= latest, "{d:?} could have begun at {before:?}");
            before = d.departed;
        }
    }

    #[test]
    fn trace_delivers_at_its_opportunities(trace in traces(), arrivals in arrivals()) {
        let packets = packets(&arrivals);
        let serialiser = Serialiser::Trace(trace.clone());
        let Run { out, .. } = run(&Config { serialiser, ..Config::default() }, &packets, Driver::Eager);
        // line by line: each lets 1,504 bytes through of what has come
        let period = u64::from(*trace.times().last().unwrap());
        let horizon = packets.last().unwrap().0 + Span::from_secs(3);
        let lines = (0..).flat_map(|round| trace.times().iter().map(move |t| round * period + u64::from(*t)));
        let mut waiting = packets.iter().map(|(at, packet)| (*at, packet.id, u64::from(packet.bytes))).peekable();
        let mut left = waiting.peek().map_or(0, |(.., bytes)| *bytes);
        let mut expected = Vec::new();
        for line in lines.map(|ms| Time::ZERO + Span::from_millis(ms)).take_while(|line| *line <= horizon) {
            let mut room = TRACE_OPPORTUNITY;
            while let Some((_, id, _)) = waiting.peek().copied().filter(|(at, ..)| *at <= line && room > 0) {
                let part = left.min(room);
                (left, room) = (left - part, room - part);
                if left == 0 {
                    expected.push((id, line));
                    waiting.next();
                    left = waiting.peek().map_or(0, |(.., bytes)| *bytes);
                }
            }
        }
        let got: Vec<_> = out.iter().map(|d| (d.packet.id, d.departed)).collect();
        prop_assert_eq!(&got[..expected.len()], &expected);
    }

    #[test]
    fn without_events_it_is_the_same_link(config in configs(), bound in disciplines(), rate in rates(), arrivals in arrivals()) {
        let discipline = match bound {
            Discipline::FqCodel(_) => Discipline::DropTail(Bound::Unlimited),
            Discipline::DropTail(bound) | Discipline::Priority(bound) | Discipline::AckFirst(bound) => {
                Discipline::DropTail(bound)
            }
        };
        let serialiser = if config.serialiser == Serialiser::Infinite { Serialiser::Infinite } else { rate };
        let config = Config { discipline, serialiser, schedule: Vec::new(), schedule_period: None, ..config };
        let packets = packets(&arrivals);
        let link = run(&config, &packets, Driver::Eager);
        let mut fifo = Fifo::new(&config, Time::ZERO).unwrap();
        let (mut out, mut lost) = (Vec::new(), 0);
        let horizon = packets.last().unwrap().0 + Span::from_secs(3);
        for ((at, packet), offered) in packets.iter().zip(&link.offered) {
            let verdict = fifo.offer(*at, packet);
            prop_assert_eq!(verdict == Verdict::Dropped, *offered == Offered::Dropped);
            match verdict {
                Verdict::Arrives { departed, due } => {
                    let (packet, offered, marked) = (*packet, *at, false);
                    out.push(Delivered { packet, offered, departed, due, marked });
                }
                Verdict::Lost { .. } => lost += 1,
                Verdict::Dropped => {}
            }
        }
        out.sort_by_key(|d| d.due);
        // the other harness hurries up after its horizon
        prop_assume!(out.iter().all(|d| d.departed < horizon));
        prop_assert_eq!(&out, &link.out);
        let s = fifo.snapshot(Time::NEVER);
        prop_assert_eq!((s.lost, s.dropped_bytes, s.delivered_bytes), (lost, link.end.dropped_bytes, link.end.delivered_bytes));
        prop_assert_eq!((s.queued, s.queued_bytes), (0, 0));
    }

    #[test]
    fn drop_tail_matches_the_formula(
        arrivals in arrivals(), rate in prop_oneof![64_000_u64..50_000_000, Just(8_000_000)], most in 0_u64..12, in_bytes: bool,
    ) {
        // start = max(arrival, end of the one before); what has not started fills the queue
        let bound = if in_bytes { Bound::Bytes(Bytes::new(most * 500)) } else { Bound::Packets(most) };
        let config = config(Discipline::DropTail(bound), rate);
        let mut link = Link::new(&config, Time::ZERO);
        let mut fifo = Fifo::new(&config, Time::ZERO).unwrap();
        let (mut now, mut busy, mut remainder) = (0_u64, 0_u64, 0_u128);
        let mut starts: Vec<(u64, u64)> = Vec::new();
        let mut expected = Vec::new();
        for (id, (gap, bytes, ..)) in arrivals.into_iter().enumerate() {
            now += gap * 1_000;
            link.offer(Time::from_nanos(now), packet(id as u64, bytes));
            let verdict = fifo.offer(Time::from_nanos(now), &packet(id as u64, bytes));
            let waiting = || starts.iter().filter(|(start, _)| *start > now);
            let full = if in_bytes {
                waiting().map(|(_, bytes)| bytes).sum::<u64>() + u64::from(bytes) > most * 500
            } else {
                waiting().count() as u64 >= most
            };
            if busy > now && full {
                prop_assert_eq!(verdict, Verdict::Dropped);
                continue;
            }
            let start = now.max(busy);
            let carried = if start == busy { remainder } else { 0 };
            let work = u128::from(bytes) * 8_000_000_000 + carried;
            busy = start + (work / u128::from(rate)) as u64;
            remainder = work % u128::from(rate);
            starts.push((start, u64::from(bytes)));
            let Verdict::Arrives { departed, .. } = verdict else { panic!("{verdict:?}") };
            prop_assert_eq!(departed.as_nanos(), busy);
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
