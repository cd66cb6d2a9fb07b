//! Names for clients: the answers that are kept, the servers that are asked, and how.

mod ask;
mod connection;
mod https;
mod kept;
mod liveness;
pub(crate) mod name_rate;
pub(crate) mod own;
pub(crate) mod pipe;
mod random;
pub(crate) mod resolve;
pub(crate) mod server;
pub(crate) mod state;
mod udp;

use crate::destination::{Destination, Host};
use std::io;
use std::net::SocketAddr;

/// Not a DNS name (RFC 6761 §6.4): a peer that does not know it reports that it cannot be resolved.
const NAME: &str = "names.ekiden.invalid";
const PORT: u16 = 53;

/// Nothing is free here that a question takes, whoever is asked.
const EXHAUSTED: io::ErrorKind = io::ErrorKind::QuotaExceeded;

/// An error of opening a socket. Where no descriptor or port was free, its kind says so, which stays where others wrap it.
fn here(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(
            libc::EMFILE
            | libc::ENFILE
            | libc::EADDRINUSE
            | libc::EADDRNOTAVAIL
            | libc::ENOMEM
            | libc::ENOBUFS,
        ) => io::Error::new(EXHAUSTED, error),
        _ => error,
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no reply in time")
}

/// Where a peer answers questions itself.
fn at_peer(to: Option<SocketAddr>) -> Destination {
    let itself = || Destination { host: Host::Name(NAME.to_owned()), port: PORT };
    to.map_or_else(itself, Destination::from)
}

/// Whether a flow out of a tunnel carries questions for this relay.
pub(crate) fn is_meant(to: &Destination) -> bool {
    to.port == PORT && matches!(&to.host, Host::Name(name) if name == NAME)
}
