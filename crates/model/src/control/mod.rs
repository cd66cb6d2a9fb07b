//! How bytes are sent: congestion control, held rates, pacing, order, and by which system call.

pub mod classifier;
pub mod congestion;
pub mod copy_mode;
pub mod formula;
pub mod pacing;
pub mod rate_hold;
pub mod rate_meter;
pub mod repair;
pub mod scheduler;
