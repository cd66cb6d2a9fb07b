//! Load through a proxy, and the small servers at its far end.
//!
//! - [`generator`]: thousands of connections in one thread; it must cost less than what it measures.
//! - [`blocking`], [`servers`]: one connection at a time, and servers, for tests.
//! - [`browsers`]: people by the model's workload; [`documents`]: their servers; [`fetch`]: one request.
//! - [`far_server`], [`far_client`], [`thin_clients`]: load over a long path, of bytes that can be checked
//!   ([`pattern`]) and are metered ([`meter`]).

pub mod blocking;
pub mod browsers;
pub mod documents;
pub mod far_client;
pub mod far_server;
pub mod fetch;
pub mod generator;
mod handshake;
pub mod meter;
pub mod pattern;
pub mod servers;
mod sockets;
pub mod thin_clients;

pub use handshake::{Destination, Method};
