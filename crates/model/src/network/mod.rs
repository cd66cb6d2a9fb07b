//! What a simulated network consists of: the link, TCP, its timers, applications, and where a relay stands.

pub mod link;
pub mod placement;
pub mod rto;
pub mod tcp;
pub mod workload;
