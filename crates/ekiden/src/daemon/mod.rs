//! The daemon: starts, reloads and stops the accelerator.

pub(crate) mod accounts;
pub(crate) mod alerts;
pub(crate) mod announce;
pub(crate) mod bpf;
pub(crate) mod control;
pub(crate) mod limits;
pub(crate) mod listening;
pub(crate) mod logging;
pub(crate) mod orders;
pub(crate) mod reload;
pub(crate) mod signals;
pub(crate) mod start;
pub(crate) mod state;
pub(crate) mod traces;
