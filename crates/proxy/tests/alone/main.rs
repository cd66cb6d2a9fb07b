//! Tests that count this process's descriptors or memory, or change their limit. They run one after the other, and in a
//! process of their own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on panics

#[path = "../common/mod.rs"]
mod common;

mod close_order;
mod close_order_http;
mod descriptors;
mod heads;
mod malformed;
mod soak;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keeps the other tests of this process waiting.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
