//! What the relay knows about connections and legs: registry, statistics, access log, status.

pub(crate) mod access_log;
pub(crate) mod dns_counts;
pub(crate) mod flap_lines;
pub(crate) mod gateway_counts;
pub(crate) mod leg_history;
pub(crate) mod leg_stats;
pub(crate) mod log_throttle;
pub(crate) mod named_leg;
pub(crate) mod registry;
pub(crate) mod rest;
pub mod status;
pub mod traces;
pub(crate) mod udp_counts;
pub(crate) mod waiting;
