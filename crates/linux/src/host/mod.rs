//! This machine: clock, kernel and settings, what is in use, signals; and what outlives a panic.

pub mod clock;
pub mod facts;
pub mod memory;
pub mod panics;
pub mod signals;
pub mod state_files;
pub mod sync;
pub mod sysctl;
pub mod usage;
