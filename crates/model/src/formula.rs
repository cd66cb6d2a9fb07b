//! The closed forms that the papers and seeds rest on: what to expect, before anything is simulated.
//!
//! | file | answers | source |
//! |---|---|---|
//! | `throughput` | how fast a sender is under loss, and how much buffer it needs | Padhye et al. 1998; seed 2 |
//! | `response` | the mean windows of Reno, CUBIC and any AIMD under loss | RFC 9438 §5 |
//! | `states` | how often, and for how long, two states last | seed 0 |
//! | `acks` | what ACKs ask of a narrow uplink | RFC 3449; seed 3 |
//! | `bursts` | Gilbert–Elliott loss from its mean and burst length; handshakes under loss | seeds 3, 4 |
//!
//! Window limits and split paths are in [`crate::placement`]: [`Sender::window_limit`],
//! [`steady_rate`], and what a start costs in [`transfer_time`].
//!
//! Each is a mean for independent losses, no other traffic, and a fluid instead of packets. Logarithms
//! and roots are `libm`'s, the same on every machine.
//!
//! [`Sender::window_limit`]: crate::placement::Sender::window_limit
//! [`steady_rate`]: crate::placement::steady_rate
//! [`transfer_time`]: crate::placement::transfer_time

mod acks;
mod bursts;
mod response;
mod states;
mod throughput;

pub use acks::AckStream;
pub use bursts::{gilbert_elliott, handshake_delay};
pub use response::{aimd_window, cubic_window, reno_loss, reno_window};
pub use states::{run_length, stationary_ratio};
pub use throughput::{Equation, Path};

use crate::units::Span;

fn seconds(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e9
}
