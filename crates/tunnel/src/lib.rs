//! Tunnels between two relays over QUIC: a schedule holds the rate, instead of a congestion window;
//! data waits where it can be scheduled; interactive data goes first.
//!
//! [`core`] is the protocol: it reads no clock, opens no socket and starts no thread. [`frame`] is
//! its wire format inside QUIC (`docs/book/src/design/protocol.md`). [`trust`] holds certificates,
//! invitations and known peers. [`driver`] runs a core on a UDP socket in its own thread and hands
//! flows to tokio; where UDP is blocked it uses TLS on TCP.
//!
//! This crate never resolves names, connects to destinations or knows routes: the proxy does.

pub mod core;
pub mod driver;
pub mod frame;
pub mod trust;
