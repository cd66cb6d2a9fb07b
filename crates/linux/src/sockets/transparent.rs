//! Sockets with addresses of others: listeners for diverted connections and datagrams, connections that keep
//! their client's address, and answers that come from the address that was asked.

use crate::sockets::sockopt::{self, os_error};
use socket2::{Domain, SockRef, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd};

/// `IP_BIND_ADDRESS_NO_PORT` (include/uapi/linux/in.h): the port is chosen when the destination is known.
const IP_BIND_ADDRESS_NO_PORT: libc::c_int = 24;

/// `IPV6_ORIGDSTADDR`, also the option that asks for it (include/uapi/linux/in6.h); musl's headers lack it.
pub(crate) const IPV6_ORIGDSTADDR: libc::c_int = 74;

/// A listener that diverted connections arrive at, on loopback and a port that the kernel chooses, with `TCP_NODELAY`.
/// Errors: `EPERM` without CAP_NET_ADMIN; the family is off.
pub fn listen(ipv6: bool, backlog: i32) -> io::Result<TcpListener> {
    let (domain, address): (_, IpAddr) = match ipv6 {
        true => (Domain::IPV6, Ipv6Addr::LOCALHOST.into()),
        false => (Domain::IPV4, Ipv4Addr::LOCALHOST.into()),
    };
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), None)?;
    if ipv6 {
        socket.set_only_v6(true)?;
    }
    set_transparent(socket.as_fd(), ipv6)?;
    // accepted sockets have it from here, at no call of their own
    socket.set_tcp_nodelay(true)?;
    socket.bind(&SocketAddr::new(address, 0).into())?;
    socket.listen(backlog)?;
    Ok(socket.into())
}

/// A non-blocking socket that diverted datagrams arrive at, on loopback and a port that the kernel chooses. A
/// [`ReceiveBatch`](super::receive_batch::ReceiveBatch) tells where each was going. Errors: `EPERM` without
/// CAP_NET_ADMIN; the family is off.
pub fn datagrams(ipv6: bool) -> io::Result<UdpSocket> {
    let (address, level, name): (IpAddr, _, _) = match ipv6 {
        true => (Ipv6Addr::LOCALHOST.into(), libc::IPPROTO_IPV6, IPV6_ORIGDSTADDR),
        false => (Ipv4Addr::LOCALHOST.into(), libc::IPPROTO_IP, libc::IP_RECVORIGDSTADDR),
    };
    let socket = transparent_datagrams(ipv6)?;
    sockopt::set_int(socket.as_fd(), level, name, 1).map_err(os_error)?;
    // a burst of many clients; without the right to more, as much as there may be
    let size = 4 << 20;
    sockopt::set_int(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, size)
        .or_else(|_| sockopt::set_int(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, size))
        .map_err(os_error)?;
    socket.bind(&SocketAddr::new(address, 0).into())?;
    Ok(socket.into())
}

/// A non-blocking socket whose datagrams come from `source`, an address of another machine. Several may have the same
/// one. Errors: `EPERM` without CAP_NET_ADMIN; `EADDRINUSE` where a program serves that port on all addresses.
pub fn datagrams_from(source: SocketAddr) -> io::Result<UdpSocket> {
    let socket = transparent_datagrams(source.is_ipv6())?;
    socket.set_reuse_address(true)?;
    socket.bind(&source.into())?;
    Ok(socket.into())
}

fn transparent_datagrams(ipv6: bool) -> io::Result<Socket> {
    let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::DGRAM.nonblocking(), None)?;
    if ipv6 {
        socket.set_only_v6(true)?;
    }
    set_transparent(socket.as_fd(), ipv6)?;
    Ok(socket)
}

/// Lets a socket that is not connected yet connect from an address of another machine. Errors: `EPERM`
/// without CAP_NET_ADMIN; another family.
pub fn bind_foreign(fd: BorrowedFd<'_>, source: IpAddr) -> io::Result<()> {
    set_transparent(fd, source.is_ipv6())?;
    // otherwise each port would serve one connection of all
    sockopt::set_int(fd, libc::IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1).map_err(os_error)?;
    SockRef::from(&fd).bind(&SocketAddr::new(source, 0).into())
}

/// Where a connection that [`listen`] accepted was going, and whether by REDIRECT, as this machine's own are.
/// `None`: it came to the listener itself, and was not diverted.
pub fn original_destination(fd: BorrowedFd<'_>) -> Option<(SocketAddr, bool)> {
    let socket = SockRef::from(&fd);
    let local = socket.local_addr().ok()?.as_socket()?;
    // TPROXY leaves the address in place; REDIRECT writes its own
    if !local.ip().is_loopback() {
        return Some((local, false));
    }
    let original = match local.is_ipv6() {
        true => socket.original_dst_v6(),
        false => socket.original_dst_v4(),
    };
    let original = original.ok()?.as_socket()?;
    (original != local).then_some((original, true))
}

fn set_transparent(fd: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    let socket = SockRef::from(&fd);
    if ipv6 { socket.set_ip_transparent_v6(true) } else { socket.set_ip_transparent_v4(true) }
}
