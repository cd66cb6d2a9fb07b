//! Steps that were really taken, for laws about how many a peer can cause.

use std::cell::Cell;

std::thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Something was looked at, or so many bytes were added.
pub(super) fn step(number: usize) {
    STEPS.with(|steps| steps.set(steps.get() + number as u64));
}

/// Steps of this thread since it began.
pub(super) fn steps() -> u64 {
    STEPS.with(Cell::get)
}
