//! Bursts and streams on a path that loses: what is sent, and what that repairs.

use super::code::{Equation, Work, solve};
use super::plan::{Path, Plan, Step, repairs};
use crate::rng::Rng;
use crate::testing::*;
use crate::units::{Span, Time};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec::Vec;

const RTT: Span = Span::from_millis(600);

fn path(loss: f64) -> Path {
    Path { rtt: RTT, loss, room: 1_400 }
}

fn bytes(offset: u64, length: u64) -> Vec<u8> {
    (offset..offset + length).map(|at| (at * 31 + at / 255) as u8).collect()
}

#[test]
fn number_of_repairs() {
    // P(Bin(11, 0.01) > 1) = 0.0052, P(Bin(12, 0.01) > 2) = 0.0002
    assert_eq!(repairs(10, 0.01), 2);
    assert_eq!(repairs(9, 0.01), 1);
    // P(both of two) = 0.0025
    assert_eq!(repairs(1, 0.05), 1);
    assert_eq!(repairs(1, 0.2), 3);
    assert_eq!((repairs(100, 0.0), repairs(0, 0.3), repairs(5, 0.000_9)), (0, 0, 0));
    // 128 packets at 5 %: 6.4, and some three standard deviations
    assert_eq!(repairs(128, 0.05), 15);
    assert!(repairs(128, 1.0) <= 131);
}

/// Sends, and gives back all repairs that follow until nothing is left to do.
fn drain(plan: &mut Plan<Vec<u8>>, now: &mut Time, path: &Path) -> Vec<(Time, Equation)> {
    let mut sent = Vec::new();
    loop {
        match plan.step(*now, path) {
            Step::Repair(window, symbol) => {
                sent.push((*now, Equation::received(window, &symbol).unwrap()));
            }
            Step::Wait(at) => {
                assert!(at > *now);
                *now = at;
            }
            Step::Idle => return sent,
        }
    }
}

#[test]
fn burst_is_repaired_when_it_is_over_and_once() {
    let (mut plan, mut now) = (Plan::default(), at(0));
    for nth in 0..10 {
        plan.on_sent(at(nth), nth * 1_000, bytes(nth * 1_000, 1_000), false);
        assert_eq!(plan.step(at(nth), &path(0.01)), Step::Wait(at(nth) + path(0.01).quiet()));
    }
    let sent = drain(&mut plan, &mut now, &path(0.01));
    // half a quiet time later than the other half
    let times: Vec<Time> = sent.iter().map(|(at, _)| *at).collect();
    let quiet = path(0.01).quiet();
    assert_eq!(times, [at(9) + quiet, at(9) + quiet + quiet]);
    assert_eq!(sent[0].1.window().range(), 0..10_000);
    assert_eq!(drain(&mut plan, &mut now, &path(0.01)), []);
    // each burst has its own repairs: small messages one after another do not repair all of a round trip
    plan.on_sent(now, 10_000, bytes(10_000, 500), false);
    plan.on_arrived(0);
    let sent = drain(&mut plan, &mut now, &path(0.01));
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].1.window().range(), 10_000..10_500);
}

/// A burst's first packet lies within a symbol, whose other bytes arrived and are kept no more.
#[test]
fn burst_that_begins_within_a_symbol_is_repaired_whole() {
    let (mut plan, mut now) = (Plan::default(), at(0));
    plan.on_sent(at(0), 0, bytes(0, 1_400), false);
    plan.on_sent(at(0), 1_400, bytes(1_400, 500), false);
    drain(&mut plan, &mut now, &path(0.01));
    plan.on_sent(now, 1_900, bytes(1_900, 900), false);
    plan.on_arrived(0);
    plan.on_arrived(1_400);
    let sent = drain(&mut plan, &mut now, &path(0.01));
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].1.window().range(), 1_900..2_800);
}

#[test]
fn nothing_without_loss_nor_for_what_arrived_nor_on_short_paths() {
    let sends = |loss, rtt, copied, arrived| {
        let (mut plan, mut now) = (Plan::default(), at(0));
        for nth in 0..10 {
            plan.on_sent(at(0), nth * 1_000, bytes(nth * 1_000, 1_000), copied);
        }
        (0..arrived).for_each(|nth| plan.on_arrived(nth * 1_000));
        let path = Path { rtt, loss, room: 1_400 };
        drain(&mut plan, &mut now, &path).len()
    };
    assert_eq!(sends(0.01, RTT, false, 0), 2);
    assert_eq!(sends(0.000_4, RTT, false, 0), 0);
    assert_eq!(sends(0.01, Span::from_millis(39), false, 0), 0);
    assert_eq!(sends(0.01, RTT, true, 0), 0);
    assert_eq!(sends(0.01, RTT, false, 10), 0);
    assert_eq!(sends(0.01, RTT, false, 9), 1);
}

/// From 0 to 1.
fn unit(rng: &mut Rng) -> f64 {
    rng.below(1 << 32) as f64 / (1_u64 << 32) as f64
}

/// A stream of 95 packets a second at 2 %: the share of packets that no repair gave back within a
/// quarter of a round trip, and repairs a packet.
fn stream(loss: f64, interval: Span, packets: u64, seed: u64) -> (f64, f64) {
    let mut rng = Rng::new(seed);
    let (mut plan, path) = (Plan::default(), path(loss));
    let (mut lost, mut got, mut repairs, mut late) = (Vec::new(), Vec::new(), 0_u64, 0);
    let mut acknowledged = VecDeque::new();
    let mut now = at(0);
    for nth in 0..packets {
        let next = at(0) + interval.saturating_mul(nth);
        loop {
            match plan.step(now, &path) {
                Step::Repair(window, symbol) => {
                    repairs += 1;
                    if unit(&mut rng) >= loss {
                        got.push(Equation::received(window, &symbol).unwrap());
                    }
                }
                Step::Wait(at) if at < next => now = at,
                _ => break,
            }
        }
        now = next;
        let offset = nth * 1_316;
        plan.on_sent(now, offset, bytes(offset, 1_316), false);
        match unit(&mut rng) < loss {
            true => lost.push((now, offset..offset + 1_316)),
            false => acknowledged.push_back((now + RTT, offset)),
        }
        while let Some((_, offset)) = acknowledged.pop_front_if(|(at, _)| *at <= now) {
            plan.on_arrived(offset);
        }
        // the receiver: takes what it knows from each equation, and solves
        let missing: Vec<_> = lost.iter().map(|(_, range)| range.clone()).collect();
        let mut equations = Vec::new();
        for equation in &got {
            let mut known = equation.clone();
            for at in equation.window().range().step_by(1_316) {
                if !missing.iter().any(|range| range.start == at) {
                    known.add(at, &bytes(at, 1_316));
                }
            }
            equations.push(known);
        }
        let grid = equations.last().map(|equation| *equation.window());
        let same: Vec<_> = equations
            .iter()
            .filter(|one| grid.is_some_and(|grid| grid.is_same_grid(one.window())))
            .collect();
        let solved = solve(&same, &missing, &mut Work::of(u64::MAX));
        lost.retain(|(_, range)| !solved.iter().any(|(at, _)| *at == range.start));
        // given up here after a quarter of a round trip, arrived by retransmission
        while lost.first().is_some_and(|(sent, _)| now.since(*sent) > Span::from_millis(150)) {
            let (_, range) = lost.remove(0);
            acknowledged.push_back((now + RTT, range.start));
            late += 1;
        }
        let first = lost.first().map_or(offset, |(_, range)| range.start);
        got.retain(|equation| equation.window().range().end > first);
    }
    (late as f64 / packets as f64, repairs as f64 / packets as f64)
}

#[test]
fn a_stream_s_losses_are_repaired_within_a_quarter_of_a_round_trip() {
    let (late, overhead) = stream(0.02, Span::from_micros(10_500), 3_000, 3);
    assert!(late < 0.002 && overhead < 0.25, "{late} {overhead}");
    // ten times as fast: twice the loss and a fiftieth
    let (late, overhead) = stream(0.02, Span::from_micros(1_050), 3_000, 3);
    assert!(late < 0.002 && overhead < 0.08, "{late} {overhead}");
}

proptest! {
    /// Whatever is sent and acknowledged, each repair is of bytes that were sent, and steps end.
    #[test]
    fn repairs_are_of_what_was_sent(
        events in prop::collection::vec((0_u64..60, 1_u64..1_600, 0_u8..4, any::<bool>()), 1..300),
        loss in 0.0_f64..0.3,
        room in 1_u32..1_600,
    ) {
        let (mut plan, mut now, mut sent) = (Plan::default(), at(0), 0);
        let path = Path { rtt: RTT, loss, room };
        for (millis, length, kind, copied) in events {
            now += Span::from_millis(millis);
            match kind {
                0 => plan.on_arrived(length * sent / 1_600),
                3 => {
                    // bytes between were sent otherwise
                    sent += length;
                    plan.on_sent(now, sent, bytes(sent, length), copied);
                    sent += length;
                }
                _ => {
                    plan.on_sent(now, sent, bytes(sent, length), copied);
                    sent += length;
                }
            }
            for step in 0.. {
                prop_assert!(step < 1_000);
                let Step::Repair(window, symbol) = plan.step(now, &path) else { break };
                prop_assert!(window.checked().is_some() && window.range().end <= sent);
                prop_assert!(symbol.len() <= room as usize);
                let mut expected = Equation::new(window);
                let range = window.range();
                expected.add(range.start, &bytes(range.start, range.end - range.start));
                prop_assert_eq!(symbol, expected.into_symbol());
            }
        }
    }
}
