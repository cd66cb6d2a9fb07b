//! HTTP/1.1 through the relay, byte by byte.

mod bodies;
#[cfg(feature = "cache")]
mod cache;
mod connections;
mod faults;
mod messages;
mod secrets;
mod upstream;
