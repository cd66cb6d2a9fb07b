//! Quantities: integers with their unit in the type, parsed from and printed with it.
//!
//! | type | holds | written as |
//! |---|---|---|
//! | [`Time`] | an instant, ns since the driver's origin | `1.5 s` |
//! | [`Span`] | a length of time, ns | `40 ms` |
//! | [`Rate`] | bits per second | `25 Mbit/s` |
//! | [`Bytes`] | bytes | `8 MiB` |
//! | [`Share`] | parts per 10⁹ of a whole | `0.1 %` |
//!
//! Printing is exact: what is printed parses back to the same value.

mod number;
mod rate;
mod share;
mod size;
mod time;

pub use number::UnitError;
pub(crate) use number::{named, serde_as_text};
pub use rate::Rate;
pub use share::Share;
pub use size::Bytes;
pub use time::{Span, Time};
