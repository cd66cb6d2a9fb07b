//! One socket: its options with their refusals, buffers, datagrams, `splice`, TCP_INFO, transparent sockets.

pub mod apply;
pub mod buffers;
pub mod datagram;
pub mod key;
pub mod options;
pub mod outcome;
pub mod read_back;
pub mod receive_batch;
pub(crate) mod refusal;
pub mod socket;
pub(crate) mod sockopt;
pub mod splice;
pub mod tcp_info;
pub mod transparent;
