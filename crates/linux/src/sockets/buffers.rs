//! The buffers of a live socket: set, raised beyond the system's limits where permitted, and given
//! back to auto-tuning. Sizes are the kernel's, in bytes (`rb` and `tb` of `ss -tm`): packet
//! headers included, twice the number given to `setsockopt`.

use crate::host::sysctl;
use crate::sockets::sockopt::{self, Errno, os_error};
use ekiden_model::resources::buffers::Side;
use libc::{IPPROTO_TCP, SOL_SOCKET, c_int};
use std::io;
use std::os::fd::BorrowedFd;

// include/uapi/linux/sock_diag.h: indices of SO_MEMINFO's answer, and bits of SO_BUF_LOCK
const RECEIVE_USED: usize = 0;
const RECEIVE_BUFFER: usize = 1;
const SEND_BUFFER: usize = 3;
const SEND_USED: usize = 5;
const SEND_LOCK: c_int = 1;
const RECEIVE_LOCK: c_int = 2;

/// A socket's buffer sizes and their contents, bytes (`SO_MEMINFO`, Linux 4.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// `SO_SNDBUF`.
    pub send_buffer: u32,
    /// Written and not yet acknowledged.
    pub send_used: u32,
    /// `SO_RCVBUF`.
    pub receive_buffer: u32,
    /// Received and not yet read.
    pub receive_used: u32,
}

impl Memory {
    /// The size of one of the two.
    pub const fn size(&self, side: Side) -> u32 {
        match side {
            Side::Send => self.send_buffer,
            Side::Receive => self.receive_buffer,
        }
    }

    /// The contents of one of the two.
    pub const fn used(&self, side: Side) -> u32 {
        match side {
            Side::Send => self.send_used,
            Side::Receive => self.receive_used,
        }
    }
}

/// Looks at both buffers, in one system call. Fails when `fd` is not a socket, or the kernel is
/// older than Linux 4.12.
pub fn memory(fd: BorrowedFd<'_>) -> io::Result<Memory> {
    let mut bytes = [0; 16 * size_of::<u32>()];
    let length =
        sockopt::get_bytes(fd, SOL_SOCKET, libc::SO_MEMINFO, &mut bytes).map_err(os_error)?;
    let at = |place: usize| {
        let from = place * size_of::<u32>();
        let found = bytes.get(..length).and_then(|filled| filled.get(from..));
        found.and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_ne_bytes(*word))
    };
    Ok(Memory {
        send_buffer: at(SEND_BUFFER),
        send_used: at(SEND_USED),
        receive_buffer: at(RECEIVE_BUFFER),
        receive_used: at(RECEIVE_USED),
    })
}

/// Sets a buffer to a size that the kernel leaves alone; returns the granted size: at most
/// `net.core.wmem_max` or `rmem_max` doubled without CAP_NET_ADMIN, at least the kernel's minimum
/// (4.5 KiB, 2.25 KiB), rounded up to even. On a live socket, a smaller receive buffer narrows the
/// window as it is used up, and a larger one widens it as data arrives; the advertised window stays
/// valid. Errors: `fd` is not a socket.
pub fn set(fd: BorrowedFd<'_>, side: Side, bytes: u64) -> io::Result<u32> {
    let given = resize(fd, side, bytes)?;
    if side == Side::Receive {
        // Linux (measured on 6.18) moves the window's clamp only with its own tuning, so the window
        // would keep its size; a clamp of the buffer's size is never in the way. Multipath TCP has
        // none.
        let clamp = c_int::try_from(given).unwrap_or(c_int::MAX);
        let _ = sockopt::set_int(fd, IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, clamp);
    }
    Ok(given)
}

fn resize(fd: BorrowedFd<'_>, side: Side, bytes: u64) -> io::Result<u32> {
    let half = c_int::try_from(bytes.div_ceil(2)).unwrap_or(c_int::MAX).min(c_int::MAX / 2);
    let (plain, force) = names(side);
    sockopt::set_int(fd, SOL_SOCKET, force, half)
        .or_else(|_| sockopt::set_int(fd, SOL_SOCKET, plain, half))
        .and_then(|()| size(fd, side))
        .map_err(os_error)
}

/// Returns a buffer to the kernel's auto-tuning (`SO_BUF_LOCK`, Linux 5.14), which only ever
/// enlarges, from `bytes` or its current size; returns its size. Errors: no socket, or the kernel
/// is too old.
pub fn release(fd: BorrowedFd<'_>, side: Side, bytes: Option<u64>) -> io::Result<u32> {
    if let Some(bytes) = bytes {
        set(fd, side, bytes)?;
    }
    let own = match side {
        Side::Send => SEND_LOCK,
        Side::Receive => RECEIVE_LOCK,
    };
    let name = libc::SO_BUF_LOCK;
    sockopt::get_int(fd, SOL_SOCKET, name)
        .and_then(|locks| sockopt::set_int(fd, SOL_SOCKET, name, locks & !own))
        .and_then(|()| size(fd, side))
        .map_err(os_error)
}

/// The system's limits of one side, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A new socket's size (`tcp_wmem`, `tcp_rmem`, the second number).
    pub first: u64,
    /// Auto-tuning's limit (the third).
    pub tuned: u64,
    /// The most that is granted without CAP_NET_ADMIN: `wmem_max` or `rmem_max`, doubled.
    pub unprivileged: u64,
}

impl Limits {
    /// From the kernel's settings; Linux's defaults where they cannot be read.
    pub fn of(side: Side) -> Self {
        let (tuning, most, first, tuned) = match side {
            Side::Send => ("net.ipv4.tcp_wmem", "net.core.wmem_max", 16_384, 4_194_304),
            Side::Receive => ("net.ipv4.tcp_rmem", "net.core.rmem_max", 131_072, 6_291_456),
        };
        let text = sysctl::read(tuning).unwrap_or_default();
        let nth = |n: usize| text.split_whitespace().nth(n).and_then(|text| text.parse().ok());
        Self {
            first: nth(1).unwrap_or(first),
            tuned: nth(2).unwrap_or(tuned),
            unprivileged: sysctl::number(most).unwrap_or(212_992).saturating_mul(2),
        }
    }
}

const fn names(side: Side) -> (c_int, c_int) {
    match side {
        Side::Send => (libc::SO_SNDBUF, libc::SO_SNDBUFFORCE),
        Side::Receive => (libc::SO_RCVBUF, libc::SO_RCVBUFFORCE),
    }
}

fn size(fd: BorrowedFd<'_>, side: Side) -> Result<u32, Errno> {
    sockopt::get_int(fd, SOL_SOCKET, names(side).0).map(|size| u32::try_from(size).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::host::facts::Capabilities;
    use crate::sockets::tcp_info::TcpInfo;
    use crate::testing::pair;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::os::fd::AsFd;

    fn locks(stream: &TcpStream) -> c_int {
        sockopt::get_int(stream.as_fd(), SOL_SOCKET, libc::SO_BUF_LOCK).unwrap()
    }

    #[test]
    fn a_size_that_is_set_is_the_size_there_is() {
        let (client, _server) = pair();
        for side in Side::ALL {
            for bytes in [16_384, 65_536, 40_000] {
                assert_eq!(u64::from(set(client.as_fd(), side, bytes).unwrap()), bytes);
                assert_eq!(u64::from(memory(client.as_fd()).unwrap().size(side)), bytes);
            }
            let least = set(client.as_fd(), side, 2).unwrap();
            assert!((2_000..6_000).contains(&least), "the kernel has a least size: {least}");
        }
        assert_eq!(locks(&client), SEND_LOCK | RECEIVE_LOCK);
    }

    #[test]
    fn each_side_is_given_back_for_itself() {
        let (client, _server) = pair();
        for side in Side::ALL {
            set(client.as_fd(), side, 8_192).unwrap();
        }
        assert_eq!(release(client.as_fd(), Side::Send, Some(16_384)).unwrap(), 16_384);
        assert_eq!(locks(&client), RECEIVE_LOCK);
        assert_eq!(release(client.as_fd(), Side::Receive, None).unwrap(), 8_192);
        assert_eq!(locks(&client), 0);
    }

    #[test]
    fn auto_tuning_resumes_after_a_buffer_is_released() {
        let (mut client, mut server) = pair();
        set(client.as_fd(), Side::Send, 8_192).unwrap();
        release(client.as_fd(), Side::Send, None).unwrap();
        let reader = std::thread::spawn(move || {
            let mut left = 8 << 20;
            let mut bytes = vec![0; 1 << 16];
            while left > 0 {
                left -= server.read(&mut bytes).unwrap();
            }
        });
        client.write_all(&vec![7; 8 << 20]).unwrap();
        reader.join().unwrap();
        assert!(memory(client.as_fd()).unwrap().send_buffer > 8_192);
    }

    #[test]
    fn the_window_of_a_live_socket_follows_its_buffer() {
        let (mut client, mut server) = pair();
        let mut bytes = vec![0; 4_096];
        let mut window = |server: &mut TcpStream, size| {
            set(server.as_fd(), Side::Receive, size).unwrap();
            for _ in 0..2_048 {
                client.write_all(&bytes).unwrap();
                server.read_exact(&mut bytes).unwrap();
            }
            TcpInfo::read(server.as_fd()).unwrap().rcv_wnd
        };
        let narrow = window(&mut server, 16_384);
        let wide = window(&mut server, 4 << 20);
        let again = window(&mut server, 16_384);
        // Linux 6.2 and later report how wide it is
        if let (Some(narrow), Some(wide), Some(again)) = (narrow, wide, again) {
            assert!(narrow < 16_384 && again < 16_384, "{narrow} {wide} {again}");
            assert!(wide > 65_536, "{narrow} {wide} {again}");
        }
    }

    #[test]
    fn queues_are_seen() {
        let (mut client, server) = pair();
        client.set_nonblocking(true).unwrap();
        while client.write(&[0; 65_536]).is_ok() {}
        let (ours, theirs) = (memory(client.as_fd()).unwrap(), memory(server.as_fd()).unwrap());
        assert!(ours.used(Side::Send) > 0 && theirs.used(Side::Receive) > 0, "{ours:?} {theirs:?}");
        assert!(memory(std::fs::File::open("/dev/null").unwrap().as_fd()).is_err());
    }

    #[test]
    fn privilege_raises_beyond_the_limits() {
        let (client, _server) = pair();
        let limits = Limits::of(Side::Send);
        let wanted = limits.unprivileged.max(limits.tuned) * 2;
        let got = u64::from(set(client.as_fd(), Side::Send, wanted).unwrap());
        if Capabilities::of_this_process().net_admin {
            assert_eq!(got, wanted);
        } else {
            assert_eq!(got, limits.unprivileged);
        }
        assert!(limits.first >= 4_096 && limits.tuned >= limits.first);
    }
}
