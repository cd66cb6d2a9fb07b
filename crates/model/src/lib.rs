//! Decisions of Ekiden as pure values.
//!
//! Each state machine takes an event and its time: `new(config, now)`, `on_<event>(&mut self, now,
//! facts)`, questions, `deadline()`, `on_deadline(now)`, and `snapshot()` for the status. The
//! simulator and the daemon drive the same values.
//!
//! This crate never reads a clock, opens a socket, starts a thread, prints, or draws a random
//! number of its own; it builds without `std`, so it cannot.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod alerts;
pub mod connect;
pub mod control;
pub mod dns;
pub mod network;
pub mod renewal;
pub mod resources;
pub mod rng;
mod slab;
#[cfg(test)]
mod testing;
pub mod units;
