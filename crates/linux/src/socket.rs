//! Questions and small services of one socket, each a system call or two.

use crate::sockopt::{self, Errno, SIOCOUTQNSD};
use serde::Serialize;
use socket2::SockRef;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A socket's send queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Unsent {
    /// Bytes sent and not yet acknowledged.
    pub unacked: u32,
    /// Bytes written and not yet sent.
    pub unsent: u32,
}

/// A socket's buffers, bytes, as the kernel counts: with its own overhead, twice what was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Buffers {
    /// `SO_SNDBUF`.
    pub send: u32,
    /// `SO_RCVBUF`.
    pub receive: u32,
}

/// Makes the coming close an abort: what is unsent is thrown away and the peer gets an RST
/// (`SO_LINGER` of zero).
///
/// # Errors
/// Only when `fd` is not a socket.
pub fn abort(fd: BorrowedFd<'_>) -> io::Result<()> {
    SockRef::from(&fd).set_linger(Some(Duration::ZERO))
}

/// How much is waiting to be sent and to be acknowledged (`SIOCOUTQ`, `SIOCOUTQNSD`): two system
/// calls, so under way the two are not of quite the same moment.
///
/// # Errors
/// `EINVAL` on a listening socket; others when `fd` is not a TCP socket.
pub fn unsent(fd: BorrowedFd<'_>) -> io::Result<Unsent> {
    let unsent = sockopt::queue(fd, SIOCOUTQNSD).map_err(os_error)?;
    let both =
        sockopt::queue(fd, u64::from(libc::TIOCOUTQ as u32) as libc::c_ulong).map_err(os_error)?;
    Ok(Unsent { unacked: both.saturating_sub(unsent), unsent })
}

/// `SO_SNDBUF` and `SO_RCVBUF`.
///
/// # Errors
/// Only when `fd` is not a socket.
pub fn buffers(fd: BorrowedFd<'_>) -> io::Result<Buffers> {
    let read = |name| {
        let size = sockopt::get_int(fd, libc::SOL_SOCKET, name).map_err(os_error)?;
        Ok::<_, io::Error>(u32::try_from(size).unwrap_or(0))
    };
    Ok(Buffers { send: read(libc::SO_SNDBUF)?, receive: read(libc::SO_RCVBUF)? })
}

/// The congestion control in use, as `bbr`.
///
/// # Errors
/// When `fd` is not a TCP socket.
pub fn congestion(fd: BorrowedFd<'_>) -> io::Result<String> {
    sockopt::get_text(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION).map_err(os_error)
}

/// Has the kernel pace a TCP socket: what may be sent is spread over the round trip instead of leaving in bursts,
/// whatever the congestion control. No bound comes with it (`SO_MAX_PACING_RATE`, one less than «none»).
///
/// # Errors
/// Only when `fd` is not a socket.
pub fn spread(fd: BorrowedFd<'_>) -> io::Result<()> {
    sockopt::set_pace(fd, u64::MAX - 1).map_err(os_error)
}

/// The socket's pending error, which is cleared (`SO_ERROR`): after a non-blocking connect, why it
/// failed.
///
/// # Errors
/// Only when `fd` is not a socket.
pub fn take_error(fd: BorrowedFd<'_>) -> io::Result<Option<io::Error>> {
    SockRef::from(&fd).take_error()
}

fn os_error(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn the_send_queue_is_seen() {
        let (mut client, server) = pair();
        assert_eq!(unsent(client.as_fd()).unwrap(), Unsent { unacked: 0, unsent: 0 });
        client.set_nonblocking(true).unwrap();
        while client.write(&[0; 65_536]).is_ok() {}
        let queue = unsent(client.as_fd()).unwrap();
        assert!(queue.unsent > 0, "{queue:?}"); // nobody reads, so the window closed
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
}
