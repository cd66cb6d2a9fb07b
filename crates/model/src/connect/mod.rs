//! How a connection is opened: addresses raced, SYNs sent again, upstreams that failed, path MTUs.

pub mod failover;
pub mod happy_eyeballs;
pub mod path_mtu;
pub mod syn_race;
