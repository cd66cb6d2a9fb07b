//! How a connection is opened: first bytes waited for, addresses raced, SYNs sent again, upstreams that failed, path MTUs.

pub mod failover;
pub mod first_bytes;
pub mod happy_eyeballs;
pub mod outage;
pub mod path_mtu;
pub mod syn_race;
