//! How many wait at one place, for the status.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Those who wait there now.
#[derive(Debug, Default)]
pub(crate) struct WaitCount(AtomicU64);

/// One of them, until its drop.
#[derive(Debug)]
pub(crate) struct Waits<'a>(&'a WaitCount);

impl WaitCount {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(crate) fn enter(&self) -> Waits<'_> {
        self.0.fetch_add(1, Relaxed);
        Waits(self)
    }

    pub(crate) fn now(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}
