//! What to do: every decision of Ekiden as a pure value.
//!
//! Each state machine here is told what happened and when, and answers what to do and when to ask
//! again: `new(config, now)`, `on_<event>(&mut self, now, facts)`, questions, `deadline()` and
//! `on_deadline(now)`, and `snapshot()` where there is something to show. The simulator and the real
//! programs drive the same values.
//!
//! This crate never reads a clock, opens a socket, starts a thread, prints, or draws a random number
//! it was not handed; it builds without `std`, so it cannot.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod budget;
pub mod buffers;
pub mod congestion;
pub mod failover;
pub mod formula;
pub mod happy_eyeballs;
pub mod idle;
pub mod lifetime;
pub mod link;
pub mod movement;
pub mod opening;
pub mod pacing;
pub mod path_mtu;
pub mod placement;
pub mod pressure;
pub mod quota;
pub mod rate_hold;
pub mod reclaim;
pub mod rng;
pub mod rto;
pub mod scheduler;
mod slab;
pub mod tcp;
pub mod traffic;
pub mod units;
pub mod workload;
