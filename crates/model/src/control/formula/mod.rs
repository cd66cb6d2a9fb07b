//! Closed forms from the papers and studies: expectations before any simulation.
//!
//! | file | answers | source |
//! |---|---|---|
//! | `throughput` | a sender's rate under loss, and the buffer it needs | Padhye et al. 1998; the proxy-pressure study |
//! | `response` | the mean windows of Reno and CUBIC under loss | RFC 9438 §5 |
//! | `acks` | ACK bandwidth on a narrow uplink | RFC 3449; the asymmetric study |
//! | `handshake` | the delay of a handshake under loss | the asymmetric study |
//!
//! The best split of a path and the cost of a start are in [`crate::network::placement`]. Each is
//! a mean for independent losses, no other traffic, and a fluid instead of packets. Logarithms and
//! roots are `libm`'s, the same on every machine.

mod acks;
mod handshake;
mod response;
mod throughput;

pub use acks::AckStream;
pub use handshake::handshake_delay;
pub use response::{cubic_window, reno_window};
pub use throughput::Path;

use crate::units::Span;

fn seconds(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e9
}
