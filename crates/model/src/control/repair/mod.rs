//! Repairs what would otherwise wait a round trip for its retransmission.
//!
//! Where nothing else waits to be sent, coded repair packets follow a burst, and accompany a stream
//! that is small beside the rate. A receiver that lost packets decodes them from as many repairs.
//! Bulk that fills the rate is not coded. What was repaired counts as lost all the same (RFC 9265).
//!
//! [`packets`] does the same for flows of packets, whose repairs accompany bulk, too.
//!
//! [`plan`] decides when and how many, [`recovery`] decodes, by [`code`]. The code is a random linear
//! one over a sliding window, as RFC 8681's, with the coefficients of a Cauchy matrix.

pub mod code;
#[cfg(test)]
mod code_laws;
#[cfg(test)]
mod counted;
mod field;
mod loss;
pub mod packets;
pub mod plan;
#[cfg(test)]
mod plan_laws;
pub mod recovery;
#[cfg(test)]
mod recovery_laws;

pub use code::{Equation, MOST_SYMBOLS, Window, Work, solve};
pub use loss::PathLoss;
pub use plan::{Path, Plan, Step};
pub use recovery::{Recovery, Repaired};
