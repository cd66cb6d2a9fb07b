//! Sockets of the generator: none of them blocks, and none leaves a port in TIME_WAIT on our side.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Begins to connect from an address of ours: the generator takes many in turn, because one has only 28,000 ports.
/// `closes_at_once`: it closes with RST (linger 0), which frees the port.
pub(super) fn connect(
    source: Ipv4Addr,
    to: SocketAddr,
    closes_at_once: bool,
) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if closes_at_once {
        socket.set_linger(Some(Duration::ZERO))?;
    }
    socket.set_tcp_nodelay(true)?;
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    match socket.connect(&to.into()) {
        Err(e) if e.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => Err(e),
        _ => Ok(socket),
    }
}

/// A listener with a backlog for bursts.
pub(super) fn listen(on: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&on.into())?;
    socket.listen(4096)?;
    Ok(socket)
}
