//! The accelerator: HTTP/1.1, HTTP/2 within TLS, SOCKS5 and SOCKS4a on one port, access rules,
//! routes, legs, and the relaying of bytes between legs.
//!
//! It never reads configuration files or arguments (`ekiden` does), never speaks to the kernel
//! except through `ekiden-linux`, and never depends on the simulator or the lab.
//!
//! ```text
//! server → inbound → session → outbound → {cache, resources, transfer, policy} → observe →
//! {settings, wire, ...}
//! ```
//! Imports point in this direction only; `crates/ekiden/tests/module_order.rs` checks it.

#[cfg(feature = "cache")]
mod cache;
#[cfg(not(feature = "cache"))]
#[path = "cache/absent.rs"]
mod cache;
pub mod destination;
mod error;
pub(crate) mod inbound;
pub mod observe;
pub(crate) mod outbound;
pub mod policy;
mod resources;
mod runtime;
mod server;
mod session;
pub mod settings;
pub(crate) mod transfer;
pub mod wire;

pub use crate::observe::access_log::PendingLines;
pub use crate::observe::log_throttle::LogThrottle;
pub use runtime::acme::{AcmeReport, AcmeState};
pub use runtime::alerts::{AlertReport, AlertState, StandingAlert};
pub use runtime::certificate::CertificateFiles;
pub use server::{Handle, Ports, SecureStream, Server, StartError, Stopped, divert_plan};
