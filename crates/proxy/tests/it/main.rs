//! The relay in this process, between clients and servers as plain sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on panics

#[path = "../common/mod.rs"]
mod common;

mod accounts;
mod accounts_limits;
mod accounts_start;
mod connect_udp;
mod deadlines;
mod floods;
mod forbidden;
mod guests;
mod http;
mod metered;
mod pressure;
mod resources;
mod shares;
mod streams;
mod tls;
mod upstream_tls;
