//! Closed forms from the papers and studies: expectations before any simulation.
//!
//! | file | answers | source |
//! |---|---|---|
//! | `throughput` | a sender's rate under loss, and the buffer it needs | Padhye et al. 1998; the proxy-pressure study |
//! | `response` | the mean windows of Reno, CUBIC and any AIMD under loss | RFC 9438 §5 |
//! | `states` | how often, and for how long, two states last | the thin-client study |
//! | `acks` | ACK bandwidth on a narrow uplink | RFC 3449; the asymmetric study |
//! | `bursts` | Gilbert–Elliott loss from its mean and burst length; handshakes under loss | the asymmetric and satellite studies |
//!
//! Window limits, split paths and the cost of a start are in [`crate::network::placement`]. Each is
//! a mean for independent losses, no other traffic, and a fluid instead of packets. Logarithms and
//! roots are `libm`'s, the same on every machine.

mod acks;
mod bursts;
mod response;
mod states;
mod throughput;

pub use acks::AckStream;
pub use bursts::{gilbert_elliott, handshake_delay};
pub use response::{aimd_window, cubic_window, reno_loss, reno_window};
pub use states::{run_length, stationary_ratio};
pub use throughput::Path;

use crate::units::Span;

fn seconds(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e9
}
