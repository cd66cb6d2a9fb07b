//! The laboratory's framework: plans, runs, evaluation and reports of experiments. It knows no study by name,
//! starts no program and opens no socket.
//!
//! - [`study`] is the trait by which the framework knows an experiment.
//! - [`plan`] reads what an experiment varies; a [`runner`] runs it on an [`engine`] and keeps every run;
//!   [`evaluation`] compares with published figures; [`report`] shows them.
//! - [`classify`] finds the flows of a thin client's traffic in a capture.

#![cfg_attr(test, allow(clippy::unwrap_used))] // a test that cannot go on panics

pub mod cell;
pub mod chart;
pub mod classify;
pub mod command;
pub mod engine;
pub mod evaluation;
pub mod machine;
pub mod path;
pub mod plan;
pub mod report;
pub mod runner;
pub mod statistics;
pub mod study;
