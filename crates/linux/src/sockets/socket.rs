//! Questions and small services of one socket, each a system call or two.

use crate::sockets::sockopt::{self, os_error};
use serde::Serialize;
use socket2::SockRef;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A socket's buffers, bytes, as the kernel counts: with its own overhead, twice what was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Buffers {
    /// `SO_SNDBUF`.
    pub send: u32,
    /// `SO_RCVBUF`.
    pub receive: u32,
}

/// Makes the coming close an abort: unsent data is discarded and the peer gets an RST (`SO_LINGER`
/// of zero). Fails only when `fd` is not a socket.
pub fn abort(fd: BorrowedFd<'_>) -> io::Result<()> {
    SockRef::from(&fd).set_linger(Some(Duration::ZERO))
}

/// Bytes written that the other side has not acknowledged, sent or not (`SIOCOUTQ`). Errors: `EINVAL` on a listening
/// socket; `fd` is not a TCP socket.
pub fn unacknowledged(fd: BorrowedFd<'_>) -> io::Result<u32> {
    sockopt::queue(fd, u64::from(libc::TIOCOUTQ as u32) as libc::c_ulong).map_err(os_error)
}

/// The DSCP, 0 to 63, of the SYN of an accepted connection, if the kernel keeps it: `IP_PKTOPTIONS`
/// and `IPV6_2292PKTOPTIONS` hold the SYN's for streams.
pub fn received_dscp(fd: BorrowedFd<'_>) -> Option<u8> {
    let ipv6 = SockRef::from(&fd).domain().ok()? == socket2::Domain::IPV6;
    // an IPv6 socket may carry IPv4: then the IPv4 options know
    let mapped = SockRef::from(&fd).peer_addr().ok()?.as_socket_ipv6();
    let v4 = !ipv6 || mapped.is_some_and(|address| address.ip().to_ipv4_mapped().is_some());
    let (level, ask, all, kind) = match v4 {
        true => (libc::IPPROTO_IP, libc::IP_RECVTOS, IP_PKTOPTIONS, libc::IP_TOS),
        false => {
            (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, IPV6_2292PKTOPTIONS, libc::IPV6_TCLASS)
        }
    };
    sockopt::set_int(fd, level, ask, 1).ok()?;
    let mut control = [0; 256];
    let length = sockopt::get_bytes(fd, level, all, &mut control).ok()?;
    let mut rest = control.get(..length)?;
    // struct cmsghdr: its length (a word), level and type, then data, padded to words
    let word = size_of::<usize>();
    while let Some((head, _)) = rest.split_at_checked(word + 8) {
        let (length, kinds) = head.split_at(word);
        let length = usize::from_ne_bytes(length.try_into().ok()?);
        let number = |at: usize| Some(i32::from_ne_bytes(kinds.get(at..at + 4)?.try_into().ok()?));
        if number(0)? == level && number(4)? == kind {
            // an int, or a byte
            return rest.get(word + 8).map(|tos| tos >> 2);
        }
        rest = rest.get(length.max(word + 8).next_multiple_of(word)..)?;
    }
    None
}

// include/uapi/linux/in.h, in6.h
/// `IP_PKTOPTIONS`
const IP_PKTOPTIONS: libc::c_int = 9;
/// `IPV6_2292PKTOPTIONS`
const IPV6_2292PKTOPTIONS: libc::c_int = 6;

/// `SO_SNDBUF` and `SO_RCVBUF`. Fails only when `fd` is not a socket.
pub fn buffers(fd: BorrowedFd<'_>) -> io::Result<Buffers> {
    let read = |name| {
        let size = sockopt::get_int(fd, libc::SOL_SOCKET, name).map_err(os_error)?;
        Ok::<_, io::Error>(u32::try_from(size).unwrap_or(0))
    };
    Ok(Buffers { send: read(libc::SO_SNDBUF)?, receive: read(libc::SO_RCVBUF)? })
}

/// The congestion control in use, as `bbr`. Fails when `fd` is not a TCP socket.
pub fn congestion(fd: BorrowedFd<'_>) -> io::Result<String> {
    sockopt::get_text(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION).map_err(os_error)
}

/// Makes the kernel pace a TCP socket: data is spread over the round trip instead of leaving in
/// bursts, without a bound (`SO_MAX_PACING_RATE`, one less than "none"). Errors: `fd` is not a
/// socket.
pub fn spread(fd: BorrowedFd<'_>) -> io::Result<()> {
    sockopt::set_pace(fd, u64::MAX - 1).map_err(os_error)
}

/// Takes the socket's pending error (`SO_ERROR`): why a non-blocking connect failed.
pub fn take_error(fd: BorrowedFd<'_>) -> io::Result<Option<io::Error>> {
    SockRef::from(&fd).take_error()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::pair;
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    #[test]
    fn the_send_queue_is_seen() {
        let (mut client, server) = pair();
        assert_eq!(unacknowledged(client.as_fd()).unwrap(), 0);
        client.set_nonblocking(true).unwrap();
        while client.write(&[0; 65_536]).is_ok() {}
        // nobody reads, so the window closed
        assert!(unacknowledged(client.as_fd()).unwrap() > 0);
        drop(server);
    }

    #[test]
    fn a_socket_that_spreads_has_no_bound_that_matters() {
        let (client, _server) = pair();
        assert_eq!(sockopt::get_pace(client.as_fd()).unwrap(), u64::MAX);
        spread(client.as_fd()).unwrap();
        assert_eq!(sockopt::get_pace(client.as_fd()).unwrap(), u64::MAX - 1);
    }

    #[test]
    fn an_aborted_socket_resets() {
        let (client, mut server) = pair();
        abort(client.as_fd()).unwrap();
        drop(client);
        assert_eq!(server.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert!(take_error(server.as_fd()).unwrap().is_none());
    }

    #[test]
    fn buffers_and_congestion_control_are_read() {
        let (client, _server) = pair();
        let buffers = buffers(client.as_fd()).unwrap();
        assert!(buffers.send >= 4096 && buffers.receive >= 2048, "{buffers:?}");
        assert!(!congestion(client.as_fd()).unwrap().is_empty());
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(congestion(file.as_fd()).is_err());
    }

    #[test]
    fn reads_the_mark_of_the_connecting_socket() {
        for (any, loopback, v6) in [
            ("127.0.0.1:0", "127.0.0.1", false),
            ("[::1]:0", "::1", true),
            ("[::]:0", "127.0.0.1", false),
        ] {
            let Ok(listener) = TcpListener::bind(any) else {
                assert!(any.starts_with('['), "IPv4 is always there");
                continue;
            };
            for dscp in [0_u8, 8, 46] {
                let port = listener.local_addr().unwrap().port();
                let to = std::net::SocketAddr::new(loopback.parse().unwrap(), port);
                let domain = socket2::Domain::for_address(to);
                let client = socket2::Socket::new(domain, socket2::Type::STREAM, None).unwrap();
                crate::sockets::datagram::set_dscp(client.as_fd(), v6, dscp).unwrap();
                client.connect(&to.into()).unwrap();
                let server = listener.accept().unwrap().0;
                assert_eq!(received_dscp(server.as_fd()), Some(dscp), "{any}");
            }
        }
        assert_eq!(received_dscp(std::fs::File::open("/dev/null").unwrap().as_fd()), None);
    }
}
