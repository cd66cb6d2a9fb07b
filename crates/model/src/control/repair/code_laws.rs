//! Whatever is lost: what can be decoded is decoded, and never a wrong byte.

use super::code::{Equation, MOST_SYMBOLS, Window, Work, solve};
use core::ops::Range;
use proptest::prelude::*;
use std::vec::Vec;

fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn bytes(range: Range<u64>) -> Vec<u8> {
    range.map(byte).collect()
}

fn symbol(window: Window) -> Vec<u8> {
    let mut equation = Equation::new(window);
    equation.add(window.range().start, &bytes(window.range()));
    equation.into_symbol()
}

/// An equation that lacks the lost ranges.
fn received(window: Window, lost: &[Range<u64>]) -> Equation {
    let mut equation = Equation::received(window, &symbol(window)).unwrap();
    let mut at = window.range().start;
    for range in lost {
        let until = range.start.min(window.range().end);
        if at < until {
            equation.add(at, &bytes(at..until));
        }
        at = at.max(range.end);
    }
    if at < window.range().end {
        equation.add(at, &bytes(at..window.range().end));
    }
    equation
}

/// Packets of given lengths from `base` on, and those of them that were lost.
fn packets(base: u64, lengths: &[(u64, bool)]) -> (u64, Vec<Range<u64>>) {
    let (mut at, mut lost) = (base, Vec::new());
    for (length, is_lost) in lengths {
        if *is_lost {
            lost.push(at..at + length);
        }
        at += length;
    }
    (at, lost)
}

fn assert_true(solved: &[(u64, Vec<u8>)]) {
    for (offset, got) in solved {
        assert_eq!(*got, bytes(*offset..*offset + got.len() as u64), "at {offset}");
    }
}

/// Bytes of ranges that no piece of the solution has.
fn left(lost: &[Range<u64>], solved: &[(u64, Vec<u8>)]) -> u64 {
    let all: u64 = lost.iter().map(|range| range.end - range.start).sum();
    all - solved.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>()
}

#[test]
fn refuses_windows_out_of_range() {
    let good = Window { base: 5, size: 100, first: 2, length: 100 * MOST_SYMBOLS, nth: 255 };
    assert!(good.checked().is_some());
    assert_eq!(good.range(), 205..205 + 12_800);
    for bad in [
        Window { size: 0, ..good },
        Window { length: 0, ..good },
        Window { length: good.length + 1, ..good },
        Window { base: u64::MAX, ..good },
        Window { first: u64::MAX / 50, ..good },
        Window { base: 1 << 62, ..good },
    ] {
        assert!(bad.checked().is_none(), "{bad:?}");
        assert!(Equation::received(bad, &[0; 100]).is_none());
    }
    assert!(Equation::received(good, &[0; 99]).is_none());
    assert!(Equation::received(good, &[0; 100]).is_some());
}

#[test]
fn repair_of_one_short_packet_is_as_long_as_that() {
    let window = Window { base: 70, size: 1_400, first: 0, length: 64, nth: 3 };
    let equation = received(window, core::slice::from_ref(&(70..134)));
    assert_eq!(equation.clone().into_symbol().len(), 64);
    assert_eq!(
        solve(&[&equation], core::slice::from_ref(&(70..134)), &mut Work::of(u64::MAX)),
        [(70, bytes(70..134))]
    );
}

proptest! {
    /// In one window so many packets may be lost as repairs came, wherever they began.
    #[test]
    fn as_many_repairs_as_losses_suffice(
        base in 0_u64..10_000,
        lengths in prop::collection::vec((1_u64..=40, prop::bool::weighted(0.2)), 1..60),
        start in 0_u8..=255,
    ) {
        let (end, lost) = packets(base, &lengths);
        let (size, length) = (40, end - base);
        let window = |nth| Window { base, size, first: 0, length, nth: start.wrapping_add(nth) };
        let equations: Vec<_> = (0..lost.len() as u8).map(|nth| received(window(nth), &lost)).collect();
        // a repair symbol is as wide as the window, so only a window of one symbol is narrower
        let solved = solve(&equations.iter().collect::<Vec<_>>(), &lost, &mut Work::of(u64::MAX));
        assert_true(&solved);
        prop_assert_eq!(left(&lost, &solved), 0);
    }

    /// Windows that slide over the flow: never a wrong byte, and none twice.
    #[test]
    fn never_a_wrong_byte(
        base in 0_u64..1_000,
        size in 1_u32..50,
        lengths in prop::collection::vec((1_u64..=60, prop::bool::weighted(0.15)), 1..80),
        windows in prop::collection::vec((0_u64..100, 1_u64..2_000, any::<u8>()), 1..20),
    ) {
        let (end, lost) = packets(base, &lengths);
        let symbols = (end - base).div_ceil(u64::from(size));
        let fit = |(first, length, nth): (u64, u64, u8)| {
            let first = first % symbols;
            let rest = end - base - first * u64::from(size);
            let length = length.min(rest).min(u64::from(size) * MOST_SYMBOLS);
            Window { base, size, first, length, nth }
        };
        let equations: Vec<_> = windows.into_iter().map(|window| received(fit(window), &lost)).collect();
        let solved = solve(&equations.iter().collect::<Vec<_>>(), &lost, &mut Work::of(u64::MAX));
        assert_true(&solved);
        let mut pieces: Vec<_> = solved.iter().map(|(at, bytes)| (*at, at + bytes.len() as u64)).collect();
        pieces.sort_unstable();
        prop_assert!(pieces.windows(2).all(|two| two[0].1 <= two[1].0));
        let is_lost = |at| lost.iter().any(|range| range.contains(&at));
        prop_assert!(pieces.iter().all(|(from, until)| is_lost(*from) && is_lost(until - 1)));
    }
}
