//! The lab: real programs to stand beside, the load to put on them, and what was measured.
//!
//! - [`peers`] starts squid, dante, HAProxy, nginx, microsocks, sshd and `ekiden` itself as child
//!   processes on free loopback ports, and reads what they cost from `/proc`.
//! - [`load`] opens connections through them and moves bytes, or opens and closes, or holds still.
//! - [`comparison`] puts the same load on each of them, with the same processor.
//! - [`plan`] reads what an experiment varies; a [`runner`] makes its runs with an [`engine`] and keeps
//!   every one; [`evaluation`] puts what was measured beside what was published; [`report`] shows it.
//! - [`classify`] finds the flows of a thin client's traffic in a capture.
//! - [`statistics`] has medians and intervals; [`machine`] says what it all ran on.
//!
//! The lab starts programs as a user would and never links the accelerator: what is measured is what
//! is shipped.

#![cfg_attr(test, allow(clippy::unwrap_used))] // a test that cannot go on panics

mod asymmetry;
pub mod cell;
pub mod chart;
pub mod classify;
pub mod command;
pub mod comparison;
pub mod engine;
pub mod evaluation;
pub mod kernel;
pub mod load;
pub mod machine;
pub mod path;
pub mod peers;
pub mod plan;
pub mod report;
pub mod runner;
pub mod sim;
pub mod statistics;
