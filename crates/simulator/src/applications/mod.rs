//! Applications on the hosts, each driven by the simulator: bulk senders, relayed requests, a proxy.

pub mod bulk;
pub mod chain;
pub mod proxy;
pub mod shared_rate;
