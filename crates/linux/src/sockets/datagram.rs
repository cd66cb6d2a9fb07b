//! UDP sockets for a protocol that discovers the path MTU itself and marks each datagram.

use crate::sockets::sockopt::{self, os_error};
use libc::{IPPROTO_IP, IPPROTO_IPV6, c_int};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Room for datagrams that came while the reader slept: at 1 Gbit/s some 30 ms.
const BUFFER: usize = 4 << 20;

/// A non-blocking socket at `address` that never fragments, with buffers of up to 4 MiB as the
/// kernel permits. IPv6 sockets carry IPv6 alone. Errors: the address cannot be bound.
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
        set.map_err(os_error)?;
    }
    let (level, name, probe) = match address.is_ipv6() {
        true => (IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
        false => (IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
    };
    sockopt::set_int(fd, level, name, probe).map_err(os_error)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Marks datagrams sent from now on with a DSCP of 0 to 63 (the two ECN bits are 0). Errors: the
/// kernel refuses it.
pub fn set_dscp(fd: BorrowedFd<'_>, ipv6: bool, dscp: u8) -> io::Result<()> {
    let (level, name) = match ipv6 {
        true => (IPPROTO_IPV6, libc::IPV6_TCLASS),
        false => (IPPROTO_IP, libc::IP_TOS),
    };
    let value = c_int::from(dscp & 63) << 2;
    sockopt::set_int(fd, level, name, value).map_err(os_error)
}

/// Hands datagrams of `size` bytes each, the last perhaps shorter, to the kernel as one
/// (`UDP_SEGMENT`, Linux 4.18): routed together, sent one by one. Errors: `InvalidInput` for a
/// `size` of 0 or from 64 KiB on, `EIO` where a device does not support this, `EINVAL` beyond the
/// path's MTU; nothing was sent then.
pub fn send_segments(
    socket: &UdpSocket,
    to: SocketAddr,
    bytes: &[u8],
    size: usize,
) -> io::Result<()> {
    let segment = u16::try_from(size).ok().filter(|size| *size > 0);
    let segment = segment.ok_or(io::ErrorKind::InvalidInput)?;
    let address = socket2::SockAddr::from(to);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Control([0; CONTROL]);
    // SAFETY: all zeros is a `msghdr` that says nothing.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = address.as_ptr().cast_mut().cast();
    message.msg_namelen = address.len();
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: plain arithmetic on a constant.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(2) } as _;
    // SAFETY: `control` is aligned for and has room for a header and its two bytes, which are written within it;
    // `message` points to things that outlive the call, and the kernel only reads them.
    let sent = unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (*head).cmsg_level = libc::SOL_UDP;
        (*head).cmsg_type = libc::UDP_SEGMENT;
        (*head).cmsg_len = libc::CMSG_LEN(2) as _;
        libc::CMSG_DATA(head).cast::<u16>().write_unaligned(segment);
        libc::sendmsg(socket.as_raw_fd(), &raw const message, 0)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Room for one control message of two bytes, with its alignment.
const CONTROL: usize = 32;
#[repr(align(8))]
struct Control([u8; CONTROL]);

/// The largest IP packet towards `to`, by its device's MTU or a router's report. Errors: no route.
pub fn route_mtu(to: SocketAddr) -> io::Result<u32> {
    let (from, level, name): (IpAddr, _, _) = match to.is_ipv6() {
        true => (Ipv6Addr::UNSPECIFIED.into(), IPPROTO_IPV6, libc::IPV6_MTU),
        false => (Ipv4Addr::UNSPECIFIED.into(), IPPROTO_IP, libc::IP_MTU),
    };
    let socket = UdpSocket::bind((from, 0))?;
    // nothing is sent by this
    socket.connect(to)?;
    let mtu = sockopt::get_int(socket.as_fd(), level, name).map_err(os_error)?;
    Ok(u32::try_from(mtu).unwrap_or(1_500))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_batch_arrives_as_several_datagrams() {
        let [from, to] = [0, 1].map(|_| open("127.0.0.1:0".parse().unwrap()).unwrap());
        to.set_nonblocking(false).unwrap();
        to.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        let bytes: Vec<u8> = (0..2_500_u32).map(|n| n as u8).collect();
        let address = to.local_addr().unwrap();
        send_segments(&from, address, &bytes, 1_000).unwrap();
        let (mut came, mut buffer) = (Vec::new(), [0; 4_000]);
        for expected in [1_000, 1_000, 500] {
            let length = to.recv(&mut buffer).unwrap();
            assert_eq!(length, expected);
            came.extend_from_slice(&buffer[..length]);
        }
        assert_eq!(came, bytes);
        for size in [0, 70_000] {
            let error = send_segments(&from, address, &bytes, size).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }

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
