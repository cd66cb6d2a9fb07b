//! UDP sockets for a protocol that finds the path's MTU by itself and marks each datagram.

use crate::sockopt;
use libc::{IPPROTO_IP, IPPROTO_IPV6, c_int};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

/// Room for datagrams that came while the reader slept: at 1 Gbit/s some 30 ms.
const BUFFER: usize = 4 << 20;

/// A socket at `address` that does not block, whose datagrams are never fragmented, and whose buffers are as
/// large as the kernel permits up to 4 MiB. An IPv6 socket carries IPv6 alone.
///
/// # Errors
/// The address cannot be bound.
pub fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    let fd = socket.as_fd();
    for (forced, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        let size = BUFFER as c_int;
        let set = sockopt::set_int(fd, libc::SOL_SOCKET, forced, size)
            .or_else(|_| sockopt::set_int(fd, libc::SOL_SOCKET, plain, size));
        set.map_err(io::Error::from_raw_os_error)?;
    }
    let (level, name, probe) = match address.is_ipv6() {
        true => (IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
        false => (IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
    };
    sockopt::set_int(fd, level, name, probe).map_err(io::Error::from_raw_os_error)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Marks what is sent from now on with a DSCP of 0 to 63 (the two ECN bits are 0).
///
/// # Errors
/// The kernel refuses it.
pub fn set_dscp(fd: BorrowedFd<'_>, ipv6: bool, dscp: u8) -> io::Result<()> {
    let (level, name) = match ipv6 {
        true => (IPPROTO_IPV6, libc::IPV6_TCLASS),
        false => (IPPROTO_IP, libc::IP_TOS),
    };
    let value = c_int::from(dscp & 63) << 2;
    sockopt::set_int(fd, level, name, value).map_err(io::Error::from_raw_os_error)
}

/// The largest IP packet that goes out towards `to` as far as this machine knows: its device's MTU, or
/// what a router said.
///
/// # Errors
/// There is no route.
pub fn route_mtu(to: SocketAddr) -> io::Result<u32> {
    let from: SocketAddr = match to.is_ipv6() {
        true => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
        false => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(from)?;
    // nothing is sent by this
    socket.connect(to)?;
    let (level, name) = match to.is_ipv6() {
        true => (IPPROTO_IPV6, libc::IPV6_MTU),
        false => (IPPROTO_IP, libc::IP_MTU),
    };
    let mtu =
        sockopt::get_int(socket.as_fd(), level, name).map_err(io::Error::from_raw_os_error)?;
    Ok(u32::try_from(mtu).unwrap_or(1_500))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_goes_from_one_to_the_other_with_its_mark() {
        for loopback in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(one) = open(loopback.parse().unwrap()) else {
                assert!(loopback.starts_with('['), "IPv4 is always there");
                continue;
            };
            let other = open(loopback.parse().unwrap()).unwrap();
            let to = other.local_addr().unwrap();
            set_dscp(one.as_fd(), to.is_ipv6(), 46).unwrap();
            one.send_to(b"hello", to).unwrap();
            let mut buffer = [0; 9];
            let received = loop {
                match other.recv(&mut buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        std::thread::yield_now()
                    }
                    received => break received.unwrap(),
                }
            };
            assert_eq!(&buffer[..received], b"hello");
            assert!(route_mtu(to).unwrap() >= 1_500);
            // never fragmented: larger than the device's is refused
            let too_large = vec![0; 65_507];
            if route_mtu(to).unwrap() < 65_535 {
                assert!(one.send_to(&too_large, to).is_err());
            }
        }
    }
}
