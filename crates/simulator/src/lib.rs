//! A whole network in one thread, on virtual time: hosts, links and their traffic as values of
//! `ekiden-model`, driven by one queue of events.
//!
//! This crate never reads a clock, sleeps or opens a file, and decides nothing that `model` decides:
//! the same seed gives the same run on every machine and in every build.

pub mod events;
pub mod random;
pub mod trace;
