//! A real link from the model's link.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))] // a test may fail loudly

mod direction;
pub mod recording;
pub mod replay;
mod slab;
pub mod wire;
mod worker;

pub use direction::{Direction, Parts, Tally};
pub use worker::{Stop, run};
