//! How Linux does it: TCP_INFO, socket options with their refusals, `splice`, and what this kernel
//! and its settings allow. All the unsafe code of Ekiden stands here.
//!
//! This crate never decides: it does what it is asked, and says what the kernel granted.
#![allow(unsafe_code)] // the one crate where it is allowed; each block says why it is sound

pub mod answer;
pub mod apply;
pub mod bpf;
pub mod buffers;
pub mod clock;
pub mod datagram;
pub mod facts;
pub mod forwarding;
pub mod key;
pub mod memory;
pub mod mounts;
pub mod nat;
pub mod netlink;
pub mod netns;
pub mod offload;
pub mod options;
pub mod packet;
pub mod read_back;
mod refusal;
pub mod sandbox;
pub mod signals;
pub mod socket;
mod sockopt;
pub mod splice;
pub mod sysctl;
pub mod tcp_info;
pub mod usage;
