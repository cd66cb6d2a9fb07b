//! The buffer that each thread lends for reads.

use std::cell::RefCell;

/// Bytes read at a time when copying. Each thread has one buffer of this size; a connection has none.
pub(crate) const SCRATCH: usize = 64 * 1024;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH].into());
}

/// Lends this thread's buffer. Loans must not nest, and its contents do not survive a loan.
pub(crate) fn with_scratch<T>(work: impl FnOnce(&mut [u8]) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| work(buffer))
}
