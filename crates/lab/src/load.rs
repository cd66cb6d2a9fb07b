//! Load through a proxy, and the small servers at its far end.
//!
//! - [`handshake`]: the client's side of HTTP CONNECT, SOCKS5 and SOCKS4a as a value without a socket.
//! - [`generator`]: thousands of connections in one thread: bulk, connects, idle.
//! - [`blocking`]: one connection at a time, for tests.
//! - [`people`]: people at browsers, by the model's workload; [`documents`]: the servers they ask;
//!   [`fetch`]: one request.
//! - [`distant`]: a server at the end of a long path; [`asking`]: what is asked of it; [`pattern`]: bytes that
//!   can be checked; [`meter`]: bytes over time; [`screens`]: scripts of writes, and how long each takes.
//! - [`servers`]: echo, hashed source and hashing sink in threads of their own, for tests.
//!
//! The generator must cost less than what it measures. It receives without copying (`MSG_TRUNC`),
//! sends from one buffer, and runs client and server side in one event loop.

pub mod asking;
pub mod blocking;
pub mod distant;
pub mod documents;
pub mod fetch;
pub mod generator;
pub mod handshake;
pub mod meter;
pub mod pattern;
pub mod people;
pub mod screens;
pub mod servers;
mod sockets;
