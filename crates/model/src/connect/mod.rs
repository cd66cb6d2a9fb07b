//! How a connection is opened: first bytes waited for, addresses raced, SYNs sent again, upstreams that failed, path MTUs,
//! pauses between attempts.

pub mod failover;
pub mod first_bytes;
pub mod happy_eyeballs;
pub mod outage;
pub mod path_mtu;
pub mod reconnect;
pub mod syn_race;
