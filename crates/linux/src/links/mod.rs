//! Devices and the way between them: rtnetlink, packet sockets, offloads, NAT, forwarding.

pub mod forwarding;
pub mod nat;
pub mod netlink;
pub mod offload;
pub mod packet;
