//! A real link from the model's link.
//!
//! ```text
//! program ─ host's veth ═ emulator's veth ─ packet socket ─ model::link ─ packet socket ─ veth ═ veth ─ program
//! ```
//! [`topology::Topology`] makes machines and links; a thread drives the same [`ekiden_model::link`]
//! as the simulator does, and each run says how far to trust it ([`fidelity`]).
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))] // a test may fail loudly

mod coalesce;
mod direction;
mod dns;
pub mod engine;
pub mod fidelity;
pub mod pair;
pub mod recording;
pub mod replay;
pub mod report;
pub mod settings;
mod slab;
pub mod topology;
pub mod wire;
mod worker;
