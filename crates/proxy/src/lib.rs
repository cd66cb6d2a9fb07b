//! The accelerator: front doors (HTTP/1.1 forward and CONNECT, SOCKS5, SOCKS4a on one port), access
//! rules, routes, legs and the relaying of bytes between them.
//!
//! It never parses the configuration file or arguments (that is `ekiden`), never speaks to the kernel
//! except through `ekiden-linux`, and never depends on the simulator or the lab.

pub mod access;
mod access_log;
pub mod accounts;
mod cache;
mod certificate;
mod chain;
pub mod destination;
mod dial;
mod failure;
pub mod households;
pub mod http;
mod incoming;
mod known;
mod means;
mod opening;
mod pump;
mod registry;
mod relay;
mod resolve;
mod resources;
mod seen_leg;
mod seldom;
mod server;
mod session;
pub mod settings;
pub mod socks;
mod socks_door;
pub mod status;
mod tls_door;
mod tunnel_door;
mod tunnels;
mod udp;
mod world;

pub use seldom::Seldom;
pub use server::{Handle, Server, StartError, Stopped};
