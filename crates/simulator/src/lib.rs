//! A whole network in one thread, on virtual time: values of `ekiden-model` driven by one queue of
//! events. It never reads a clock, sleeps or opens a file, and decides nothing that `model`
//! decides: a seed gives the same run on every machine and in every build.

pub mod applications;
pub mod events;
pub mod network;
pub mod observer;
pub mod random;
pub mod recorder;
pub mod simulator;
pub mod trace;
