//! UDP sockets for a protocol that discovers the path MTU itself and marks each datagram.

use crate::sockets::sockopt::{self, os_error};
use libc::{IPPROTO_IP, IPPROTO_IPV6, c_int};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Room for datagrams that came while the reader slept: at 1 Gbit/s some 30 ms.
const BUFFER: usize = 4 << 20;

/// A non-blocking socket at `address` that never fragments, with buffers of up to 4 MiB as the
/// kernel permits. IPv6 sockets carry IPv6 alone. Errors: the address cannot be bound.
pub fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = unbound(address)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Another one at the address of `first`: from then on the kernel gives each of them the datagrams of some senders
/// (`SO_REUSEPORT`, socket(7)). Programs that do not ask for it, and other users', still cannot bind the address. Errors:
/// the kernel refuses it.
pub fn open_beside(first: &UdpSocket, address: SocketAddr) -> io::Result<UdpSocket> {
    SockRef::from(first).set_reuse_port(true)?;
    let socket = unbound(address)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

fn unbound(address: SocketAddr) -> io::Result<Socket> {
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
    Ok(socket)
}

/// Lets datagrams that are longer than the path's MTU go in fragments, for a protocol that does not look for it.
/// Errors: the kernel refuses it.
pub fn allow_fragments(socket: &UdpSocket) -> io::Result<()> {
    let (level, name, never) = match socket.local_addr()?.is_ipv6() {
        true => (IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT),
        false => (IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT),
    };
    sockopt::set_int(socket.as_fd(), level, name, never).map_err(os_error)
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

/// Makes a [`ReceiveBatch`](super::receive_batch::ReceiveBatch) tell the address here that each datagram was sent to. Errors: the kernel refuses it.
pub fn report_destinations(socket: &UdpSocket) -> io::Result<()> {
    let (level, name) = match socket.local_addr()?.is_ipv6() {
        true => (IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
        false => (IPPROTO_IP, libc::IP_PKTINFO),
    };
    sockopt::set_int(socket.as_fd(), level, name, 1).map_err(os_error)
}

/// Sends a datagram to the second address, from the first where there is one: a socket of all
/// addresses has several. Errors: nothing was sent; `EINVAL` where the first is no longer there.
pub fn send(
    socket: &UdpSocket,
    (from, to): (Option<IpAddr>, SocketAddr),
    bytes: &[u8],
) -> io::Result<()> {
    match from {
        None => socket.send_to(bytes, to).map(drop),
        Some(_) => send_message(socket, (from, to), bytes, None),
    }
}

/// Hands datagrams of `size` bytes each, the last perhaps shorter, to the kernel as one
/// (`UDP_SEGMENT`, Linux 4.18): routed together, sent one by one, from and to as [`send`] does. Errors:
/// `InvalidInput` for a `size` of 0 or from 64 KiB on, `EIO` where a device does not support this, `EINVAL`
/// beyond the path's MTU; nothing was sent then.
pub fn send_segments(
    socket: &UdpSocket,
    ends: (Option<IpAddr>, SocketAddr),
    bytes: &[u8],
    size: usize,
) -> io::Result<()> {
    let segment = u16::try_from(size).ok().filter(|size| *size > 0);
    send_message(socket, ends, bytes, Some(segment.ok_or(io::ErrorKind::InvalidInput)?))
}

fn send_message(
    socket: &UdpSocket,
    (from, to): (Option<IpAddr>, SocketAddr),
    bytes: &[u8],
    segment: Option<u16>,
) -> io::Result<()> {
    let address = socket2::SockAddr::from(to);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Outgoing { room: Control([0; CONTROL]), used: 0 };
    if let Some(size) = segment {
        control.add((libc::SOL_UDP, libc::UDP_SEGMENT), size);
    }
    match from {
        Some(IpAddr::V4(from)) => {
            let ipi_spec_dst = libc::in_addr { s_addr: from.to_bits().to_be() };
            let ipi_addr = libc::in_addr { s_addr: 0 };
            let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst, ipi_addr };
            control.add((IPPROTO_IP, libc::IP_PKTINFO), info);
        }
        Some(IpAddr::V6(from)) => {
            let ipi6_addr = libc::in6_addr { s6_addr: from.octets() };
            let info = libc::in6_pktinfo { ipi6_addr, ipi6_ifindex: 0 };
            control.add((IPPROTO_IPV6, libc::IPV6_PKTINFO), info);
        }
        None => {}
    }
    // SAFETY: all zeros is a `msghdr` that says nothing.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = address.as_ptr().cast_mut().cast();
    message.msg_namelen = address.len();
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.room.0.as_mut_ptr().cast();
    message.msg_controllen = control.used as _;
    // SAFETY: `message` points to things that outlive the call, and the kernel only reads them.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Room for two control messages with their alignment, the larger an `in6_pktinfo`.
pub(super) const CONTROL: usize = 128;
#[repr(align(8))]
#[derive(Clone, Copy)]
pub(super) struct Control(pub(super) [u8; CONTROL]);

struct Outgoing {
    room: Control,
    used: usize,
}

impl Outgoing {
    /// Appends a control message: the kernel's structure of its level and type.
    fn add<T: Copy>(&mut self, (level, kind): (c_int, c_int), value: T) {
        let size = size_of::<T>() as u32;
        // SAFETY: plain arithmetic.
        let (space, length) = unsafe { (libc::CMSG_SPACE(size) as usize, libc::CMSG_LEN(size)) };
        let Some(place) = self.room.0.get_mut(self.used..self.used + space) else { return };
        let head = place.as_mut_ptr().cast::<libc::cmsghdr>();
        // SAFETY: `place` has room for the head and the value, and is as aligned as a head: `space` is a multiple of that.
        unsafe {
            (*head).cmsg_level = level;
            (*head).cmsg_type = kind;
            (*head).cmsg_len = length as _;
            libc::CMSG_DATA(head).cast::<T>().write_unaligned(value);
        }
        self.used += space;
    }
}

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
        send_segments(&from, (None, address), &bytes, 1_000).unwrap();
        let (mut came, mut buffer) = (Vec::new(), [0; 4_000]);
        for expected in [1_000, 1_000, 500] {
            let length = to.recv(&mut buffer).unwrap();
            assert_eq!(length, expected);
            came.extend_from_slice(&buffer[..length]);
        }
        assert_eq!(came, bytes);
        for size in [0, 70_000] {
            let error = send_segments(&from, (None, address), &bytes, size).unwrap_err();
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
