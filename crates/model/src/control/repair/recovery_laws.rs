//! Whatever arrives, in whatever order: never a wrong byte, and memory is bounded.

use super::code::{Equation, Window, Work, solve};
use super::counted::steps;
use super::recovery::Recovery;
use crate::rng::Rng;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::vec::Vec;

fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn bytes(from: u64, until: u64) -> Vec<u8> {
    (from..until).map(byte).collect()
}

fn symbol(window: Window) -> Vec<u8> {
    let mut equation = Equation::new(window);
    equation.add(window.range().start, &bytes(window.range().start, window.range().end));
    equation.into_symbol()
}

fn window(nth: u8) -> Window {
    Window { base: 1_000, size: 100, first: 0, length: 2_000, nth }
}

#[test]
fn repairs_that_come_before_the_bytes_do() {
    let mut recovery = Recovery::<Vec<u8>>::default();
    for nth in 0..3 {
        assert!(recovery.on_repair(window(nth), &symbol(window(nth))).is_empty());
    }
    let mut repaired = Vec::new();
    for at in (1_000..3_000).step_by(100).filter(|at| ![1_300, 1_400, 2_900].contains(at)) {
        repaired.extend(recovery.on_bytes(at, bytes(at, at + 100)));
    }
    repaired.sort_unstable();
    let each = |at| (at, bytes(at, at + 100));
    assert_eq!(repaired, [each(1_300), each(1_400), each(2_900)]);
    assert_eq!(recovery.equations_len(), 0);
}

/// Two short repairs, the whole flow apart: what lies between is no unknown of theirs.
#[test]
fn repairs_far_apart_cost_nothing() {
    let mut recovery = Recovery::<Vec<u8>>::default();
    let lie = |first| Window { base: 0, size: 1, first, length: 2, nth: 0 };
    for first in [0, 1 << 40, 1 << 50] {
        assert!(recovery.on_repair(lie(first), &[7]).is_empty());
        assert!(recovery.on_bytes(first + 5, std::vec![1]).is_empty());
    }
    assert!(recovery.kept() < 1_000);
}

/// Whatever is sent, a byte is worth so many steps of work, and no more.
#[test]
fn work_is_earned_by_bytes() {
    let mut work = Work::default();
    work.take(u64::MAX);
    work.earn(100);
    assert!(work.take(6_000) && !work.take(6_000) && !work.take(1));
}

/// Tiny repairs, each of a grid of its own, which overlap all others: the search for those that belong together is paid
/// for like the rest. What each call looks at beside is bounded by the equations that are kept.
#[test]
fn tiny_repairs_of_many_grids_cost_no_more_than_they_earn() {
    let (mut recovery, mut bytes, mut calls) = (Recovery::<Vec<u8>>::default(), 0, 0);
    let before = steps();
    for nth in 0..20_000_u32 {
        let window = Window {
            base: u64::from(nth % 1_000),
            size: 1 + nth % 7,
            first: 0,
            length: 100,
            nth: nth as u8,
        };
        let window = Window { length: window.length.min(u64::from(window.size) * 100), ..window };
        let symbol = std::vec![1; window.width()];
        recovery.on_repair(window, &symbol);
        (bytes, calls) = (bytes + symbol.len() as u64, calls + 1);
    }
    let taken = steps() - before;
    assert!(
        taken <= 32 * 1024 + 64 * bytes + calls * 8 * 128,
        "{taken} steps for {bytes} bytes in {calls} calls"
    );
}

#[test]
fn forgotten_bytes_are_not_taken_for_known() {
    let mut recovery = Recovery::<Vec<u8>>::default();
    (10..29).for_each(|at| {
        assert!(recovery.on_bytes(at * 100, bytes(at * 100, at * 100 + 100)).is_empty())
    });
    assert!(recovery.forget_first());
    // two are unknown now
    assert!(recovery.on_repair(window(0), &symbol(window(0))).is_empty());
    let repaired = recovery.on_repair(window(1), &symbol(window(1)));
    assert_eq!(repaired, [(1_000, bytes(1_000, 1_100)), (2_900, bytes(2_900, 3_000))]);
    while recovery.forget_first() {}
    assert_eq!(recovery.kept(), 0);
}

/// What happens at a receiver.
#[derive(Debug, Clone, Copy)]
enum Arrival {
    Piece(u64, u64),
    Repair(Window),
    Forgotten,
}

proptest! {
    /// Pieces and repairs of any windows, lost, twice and in any order; pieces forgotten meanwhile.
    #[test]
    fn never_a_wrong_byte(
        seed: u64,
        size in 1_u32..60,
        pieces in prop::collection::vec(1_u64..60, 1..60),
        repairs in prop::collection::vec((0_u64..60, 1_u64..1_500, any::<u8>()), 0..40),
        forgotten in 0_u64..30,
    ) {
        let mut rng = Rng::new(seed);
        let mut events: Vec<(u64, Arrival)> = Vec::new();
        let mut end = 0;
        for length in pieces {
            if rng.below(5) > 0 {
                events.push((rng.next_u64(), Arrival::Piece(end, end + length)));
            }
            end += length;
        }
        for (first, length, nth) in repairs {
            let window = Window { base: 0, size, first, length, nth };
            if window.checked().is_some() && window.range().end <= end {
                events.push((rng.next_u64(), Arrival::Repair(window)));
            }
        }
        for _ in 0..forgotten {
            events.push((rng.next_u64(), Arrival::Forgotten));
        }
        events.sort_unstable_by_key(|event| event.0);
        let mut recovery = Recovery::<Vec<u8>>::default();
        let mut known = BTreeSet::new();
        for (_, arrival) in events {
            let repaired = match arrival {
                Arrival::Piece(from, until) => {
                    known.extend(from..until);
                    recovery.on_bytes(from, bytes(from, until))
                }
                Arrival::Repair(window) => recovery.on_repair(window, &symbol(window)),
                Arrival::Forgotten => {
                    recovery.forget_first();
                    Vec::new()
                }
            };
            for (at, got) in repaired {
                prop_assert_eq!(&got, &bytes(at, at + got.len() as u64));
                prop_assert!(at + got.len() as u64 <= end);
                known.extend(at..at + got.len() as u64);
            }
            prop_assert!(recovery.equations_len() <= 128);
        }
    }

    /// What all that came decodes by itself was decoded when the last of it came.
    #[test]
    fn everything_that_can_be_decoded_is(
        seed: u64,
        size in 20_u32..60,
        pieces in prop::collection::vec((20_u64..60, prop::bool::weighted(0.15)), 1..60),
        repairs in prop::collection::vec((0_u64..40, 1_u64..30), 0..16),
        start: u8,
    ) {
        let mut rng = Rng::new(seed);
        let (mut events, mut end, mut lost) = (Vec::new(), 0, Vec::new());
        for (length, is_lost) in pieces {
            if is_lost {
                lost.push(end..end + length);
            } else {
                events.push((rng.next_u64(), Arrival::Piece(end, end + length)));
            }
            end += length;
        }
        let mut equations: Vec<Equation> = Vec::new();
        for (nth, (first, symbols)) in (0..).zip(repairs) {
            // as a sender counts them
            let nth = start.wrapping_add(nth);
            let length = (symbols * u64::from(size)).min(end.saturating_sub(first * u64::from(size)));
            let window = Window { base: 0, size, first, length, nth };
            let known = equations.iter().any(|equation| *equation.window() == window);
            if window.checked().is_some() && !known {
                events.push((rng.next_u64(), Arrival::Repair(window)));
                equations.push(Equation::received(window, &symbol(window)).unwrap());
            }
        }
        events.sort_unstable_by_key(|event| event.0);
        let mut recovery = Recovery::<Vec<u8>>::default().with_work();
        let mut decoded = BTreeSet::new();
        for (_, arrival) in events {
            let repaired = match arrival {
                Arrival::Piece(from, until) => recovery.on_bytes(from, bytes(from, until)),
                Arrival::Repair(window) => recovery.on_repair(window, &symbol(window)),
                Arrival::Forgotten => unreachable!(),
            };
            decoded.extend(repaired.iter().flat_map(|(at, got)| *at..*at + got.len() as u64));
        }
        // all at once, of the bytes that were not lost; with other coefficients, too, since one of 256 systems with fewer
        // equations than unknowns happens to determine one of them
        let covered: BTreeSet<u64> = equations.iter().flat_map(|equation| equation.window().range()).collect();
        let unknown: Vec<_> = lost.iter().cloned().flatten().filter(|at| covered.contains(at)).map(|at| at..at + 1).collect();
        let decodable = |shift: u8| -> BTreeSet<u64> {
            let again = |equation: &Equation| {
                let window = Window { nth: equation.window().nth.wrapping_add(shift), ..*equation.window() };
                let mut equation = Equation::received(window, &symbol(window)).unwrap();
                let mut at = 0;
                for gap in lost.iter().cloned().chain(core::iter::once(end..end)) {
                    equation.add(at, &bytes(at, gap.start));
                    at = gap.end;
                }
                equation
            };
            let all: Vec<Equation> = equations.iter().map(again).collect();
            let solved = solve(&all.iter().collect::<Vec<_>>(), &unknown, &mut Work::of(u64::MAX));
            solved.into_iter().flat_map(|(at, got)| at..at + got.len() as u64).collect()
        };
        let others = [32, 64, 96].map(decodable);
        for at in decodable(0).into_iter().filter(|at| others.iter().all(|other| other.contains(at))) {
            prop_assert!(decoded.contains(&at), "byte {} of {}", at, end);
        }
    }

    /// Lies: whatever a peer sends, it ends, and memory is bounded.
    #[test]
    fn lies_cost_no_more_than_truth(
        lies in prop::collection::vec(
            (0_u64..5_000, 1_u32..1_400, 0_u64..40, 1_u64..200_000, any::<u8>(), 0_usize..1_400), 1..120),
    ) {
        let mut recovery = Recovery::<Vec<u8>>::default();
        for (base, size, first, length, nth, long) in lies {
            recovery.on_repair(Window { base, size, first, length, nth }, &std::vec![nth; long]);
            let right = Window { base, size, first, length, nth };
            if right.checked().is_some() {
                recovery.on_repair(right, &std::vec![nth; right.width()]);
            }
            recovery.on_bytes(base, std::vec![nth; long]);
            prop_assert!(recovery.equations_len() <= 128);
        }
    }
}
