//! Routes, names and legs as a client, a name server, an upstream proxy and the kernel see them.
//! They duplicate this process's sockets to read their options, so they have a process of their own.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test may fail loudly

#[path = "../common/mod.rs"]
mod common;

mod answers;
mod datagrams;
mod failover;
mod harness;
mod held;
mod lan_names;
mod name_server;
mod names;
mod options;
mod outside;
mod own_listener;
mod rebinding;
mod reload;
mod routes;
mod upstream;
