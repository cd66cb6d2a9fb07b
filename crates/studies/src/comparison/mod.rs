//! Ekiden beside other relays, as the benchmarks `relays` and `gateway` measure it: the tests, a window of one of them,
//! what is kept of a run, and its tables.
//!
//! Relay and generator have one processor each. A relay's cost is the user and system time of its process tree
//! from `/proc`. A kernel that counts time by ticks (`CONFIG_TICK_CPU_ACCOUNTING`) charges to a process the softirqs that
//! run while it does, so the packets that a relay sends are its own cost up to the receiver's socket, and those that
//! the load sends are the load's. What runs in ksoftirqd counts for nobody; [`Row::busy_seconds`] has that, too.

mod processor;
mod record;
mod row;
mod table;

pub use processor::busy;
pub use record::{Effort, Record, bar, chosen, command, default_control, lock, rounds};
pub use row::{CONCURRENT, Row, Test, window};
pub use table::{Reference, table};
