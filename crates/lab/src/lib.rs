//! The lab: real programs to stand beside, the load to put on them, and what was measured.
//!
//! - [`peers`] starts squid, dante, HAProxy, nginx, microsocks, sshd and `ekiden` itself as child
//!   processes on free loopback ports, and reads what they cost from `/proc`.
//! - [`load`] opens connections through them and moves bytes, or opens and closes, or holds still.
//! - [`comparison`] puts the same load on each of them, with the same processor.
//! - [`statistics`] has the medians; [`machine`] says what it all ran on.
//!
//! The lab starts programs as a user would and never links the accelerator: what is measured is what
//! is shipped.

#![cfg_attr(test, allow(clippy::unwrap_used))] // a test that cannot go on panics

pub mod comparison;
pub mod load;
pub mod machine;
pub mod peers;
pub mod statistics;
