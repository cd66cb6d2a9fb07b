//! Devices and the way between them: rtnetlink, packet sockets, offloads, NAT, forwarding, diverting, TUN.

pub mod divert;
pub mod forwarding;
pub mod nat;
pub mod netlink;
pub mod nft;
pub mod offload;
pub mod packet;
pub mod tun;
