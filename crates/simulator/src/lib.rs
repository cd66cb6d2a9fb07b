//! A whole network in one thread, on virtual time: hosts, links and their traffic as values of
//! `ekiden-model`, driven by one queue of events.
//!
//! This crate never reads a clock, sleeps or opens a file, and decides nothing that `model` decides:
//! the same seed gives the same run on every machine and in every build.

pub mod bulk;
mod carrier;
pub mod chain;
pub mod connection;
pub mod delays;
pub mod downloads;
pub mod dumbbell;
pub mod events;
pub mod flow;
pub mod households;
pub mod observer;
mod packet;
pub mod proxy;
pub mod random;
pub mod recorder;
pub mod simulator;
pub mod topology;
pub mod trace;
mod writes;
