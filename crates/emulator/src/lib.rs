//! A real link from the model's link, with each run's own verdict on it ([`fidelity`]).
//!
//! ```text
//! program ─ host's veth ═ emulator's veth ─ packet socket ─ model::link ─ packet socket ─ veth ═ veth ─
//! program
//! ```
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))] // a test may fail loudly

mod dns;
pub mod engine;
pub mod fidelity;
pub mod pair;
pub mod recording;
pub mod report;
pub mod settings;
pub mod topology;
