//! The way out for datagrams: directly, or through a peer's tunnel.

pub(crate) mod direct;
mod lookups;
pub(crate) mod peers;
mod resolved;
pub(crate) mod route;
#[cfg(test)]
mod tests;
pub(crate) mod tunnel;

use ekiden_model::units::Span;
use std::io;
use std::net::SocketAddr;
use tokio::net::UdpSocket;

/// Datagrams from one side before the other side has its turn.
pub(crate) const IN_A_ROW: usize = 32;

/// How long a decision of the rules and the kernel on a destination holds for an association: each datagram would ask them.
const DECIDED: Span = Span::from_secs(1);

/// Sends now or fails. It asks the kernel, because the runtime learns late that a new socket is writable.
pub(crate) fn send(socket: &UdpSocket, datagram: &[u8], to: SocketAddr) -> io::Result<()> {
    socket2::SockRef::from(socket).send_to(datagram, &to.into()).map(|_| ())
}
