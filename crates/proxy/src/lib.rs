//! The accelerator: front doors (HTTP/1.1 forward and CONNECT, SOCKS5, SOCKS4a on one port), access
//! rules, routes, legs and the relaying of bytes between them.
//!
//! It never parses the configuration file or arguments (that is `ekiden`), never speaks to the kernel
//! except through `ekiden-linux`, and never depends on the simulator or the lab.

pub mod access;
pub mod destination;
pub mod http;
pub mod settings;
pub mod socks;
pub mod status;
