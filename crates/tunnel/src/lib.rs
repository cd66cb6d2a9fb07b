//! Legs between two relays over QUIC: the rate is held by a schedule of our own and not by a congestion
//! window, what waits waits where it can be scheduled, and what is interactive goes first.
//!
//! [`core`] is the protocol: told what arrived and when, it answers which datagram leaves and when to ask
//! again. It reads no clock, opens no socket and starts no thread. [`frame`] is what it says inside QUIC
//! (`docs/protocol.md`). [`trust`] is who may speak to whom: certificates, invitations, files.
//! [`driver`] runs a core on a UDP socket in a thread of its own and hands its flows to tokio; where UDP does
//! not get through, `carrier` takes its datagrams over TLS on TCP.
//!
//! This crate never resolves names, connects to destinations or knows routes: the proxy does.

mod carrier;
pub mod core;
pub mod driver;
pub mod frame;
pub mod reason;
pub mod trust;
