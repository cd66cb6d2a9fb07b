//! All integration tests of the command in one program, except those that begin with one thread (`black_hole`, `opening`).
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test may fail loudly
#![allow(dead_code)] // harnesses have more than each feature needs

mod accounts;
#[cfg(feature = "acme")]
mod acme;
mod alerts;
mod daemons;
mod doctor;
mod explain;
mod fleet;
mod forwards;
mod generated;
mod held;
mod http2_memory;
mod init;
mod invariants;
#[cfg(feature = "lab")]
mod kernel;
mod killed;
mod leaks;
#[cfg(feature = "lab")]
mod link;
mod live;
mod log_in;
mod management;
mod middle;
mod module_order;
mod other_user;
mod own_page;
mod packages;
mod read_only;
mod reloads;
mod repository;
mod results_pages;
mod serve;
mod speed;
mod traces;
mod transcripts;
mod tunnel;
mod tunnel_datagrams;
mod tunnel_faults;
mod tunnel_names;
mod user;
mod zones;
