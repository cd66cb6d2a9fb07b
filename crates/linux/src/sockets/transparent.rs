//! Sockets with addresses of others: listeners for diverted connections, and connections that keep their
//! client's address.

use crate::sockets::sockopt::{self, os_error};
use socket2::{Domain, SockRef, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, BorrowedFd};

/// `IP_BIND_ADDRESS_NO_PORT` (include/uapi/linux/in.h): the port is chosen when the destination is known.
const IP_BIND_ADDRESS_NO_PORT: libc::c_int = 24;

/// A listener that diverted connections arrive at, on loopback and a port that the kernel chooses. Errors:
/// `EPERM` without CAP_NET_ADMIN; the family is off.
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
    socket.bind(&SocketAddr::new(address, 0).into())?;
    socket.listen(backlog)?;
    Ok(socket.into())
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
