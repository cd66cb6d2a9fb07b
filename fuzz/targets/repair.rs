//! Repairs of a flow: true ones give true bytes whatever is lost, and lies end.
#![no_main]

use ekiden_model::control::repair::{Equation, Recovery, Window};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

const FLOW: u64 = 20_000;

/// Bytes of an input that are read: repairs for more equations than a receiver keeps. More is slow, and is no other case.
const LONGEST: usize = 2_048;

/// The flow's bytes.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    (0..FLOW).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
});

fn true_bytes(from: u64, until: u64) -> &'static [u8] {
    &BYTES[from as usize..until as usize]
}

/// Numbers from the input, 0 at its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn next(&mut self) -> u64 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        (*first).into()
    }

    fn two(&mut self) -> u64 {
        self.next() << 8 | self.next()
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(&bytes[..bytes.len().min(LONGEST)]);
    let lies = input.next() % 2 == 1;
    let mut recovery = Recovery::<Vec<u8>>::default();
    while !input.0.is_empty() {
        let repaired = match input.next() % 8 {
            0 => {
                recovery.forget_first();
                Vec::new()
            }
            1..=4 => {
                let from = input.two() % FLOW;
                let until = (from + 1 + input.two() % 1_500).min(FLOW);
                recovery.on_bytes(from, true_bytes(from, until).to_vec())
            }
            _ => {
                let base = input.two() % FLOW;
                let size = 1 + (input.two() % 1_500) as u32;
                let (first, length, nth) = (input.next() % 40, input.two(), input.next() as u8);
                let window = Window { base, size, first, length, nth };
                if lies {
                    // windows far apart
                    let first = first << (input.next() % 40);
                    let window = Window { first, ..window };
                    let long = match input.next() % 4 {
                        0 => input.two() as usize % 1_600,
                        _ => (window.length as usize).min(window.size as usize),
                    };
                    let symbol = vec![nth; long];
                    recovery.on_repair(window, &symbol)
                } else {
                    let Some(window) = window.checked() else { continue };
                    let range = window.range();
                    if range.end > FLOW {
                        continue;
                    }
                    let mut symbol = Equation::new(window);
                    symbol.add(range.start, true_bytes(range.start, range.end));
                    recovery.on_repair(window, &symbol.into_symbol())
                }
            }
        };
        for (at, got) in repaired.into_iter().filter(|_| !lies) {
            assert!(at + got.len() as u64 <= FLOW);
            assert_eq!(got, true_bytes(at, at + got.len() as u64), "at {at}");
        }
        // what is kept: the flow, and 128 equations
        assert!(lies || recovery.kept() < (FLOW as usize) * 65 + 128 * 1_600);
    }
});
