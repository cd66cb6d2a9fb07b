//! Real clients and relays, end to end.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test that cannot go on panics

mod browser;
mod chains;
mod clients;
mod common;
mod peers;
