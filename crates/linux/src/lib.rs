//! The Linux interface: TCP_INFO, socket options with their refusals, `splice`, namespaces, links,
//! facts about the kernel. All unsafe code of Ekiden is here.
//!
//! This crate never decides: it does what is requested, and returns what the kernel granted.
#![allow(unsafe_code)] // the one crate where it is allowed; each block says why it is sound

pub mod bpf;
pub mod host;
pub mod links;
pub mod namespaces;
pub mod sockets;
#[cfg(test)]
mod testing;
