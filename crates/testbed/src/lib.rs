//! The testbed: real programs to measure against, and load for them. It starts programs as a user would and
//! measures the binary that ships.
//!
//! - [`peers`] starts squid, dante, HAProxy, nginx, microsocks, sshd and `ekiden` and reads their cost from
//!   `/proc`.
//! - [`chromium`] has a real browser load pages.
//! - [`quic`] is a QUIC client and its server.
//! - [`load`] moves bytes through them, opens and closes connections, or holds them idle.

#![cfg_attr(test, allow(clippy::unwrap_used))] // a test that cannot go on panics

pub mod certificate;
pub mod chromium;
pub mod limits;
pub mod load;
pub mod peers;
pub mod quic;
