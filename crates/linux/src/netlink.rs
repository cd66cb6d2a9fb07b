//! Devices, addresses, neighbours and routes of one network namespace, by rtnetlink: one request at
//! a time, each waited for.

mod links;
mod message;
mod routes;

pub use links::{End, LinkStatistics, PATIENCE};
pub use routes::{Route, RouteMetrics};

use crate::netns::Netns;
use crate::sockopt;
use libc::{c_int, c_void};
use message::{Request, messages, word};
use std::cell::Cell;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

// include/uapi/linux/netlink.h
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;
/// As the kernel fills a dump's datagrams: iproute2 takes the same.
const LARGEST: usize = 32_768;

/// A conversation with the kernel about one namespace's network.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: Cell<u32>,
}

/// What the kernel refused, on which device, and in what words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    what: String,
    errno: i32,
    said: Option<String>,
}

impl Failure {
    fn new(what: &str, errno: i32) -> Self {
        Self { what: what.to_owned(), errno, said: None }
    }

    /// The error number, as `EEXIST`.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.errno
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = io::Error::from_raw_os_error(self.errno);
        write!(f, "the kernel refused {}: {error}", self.what)?;
        match &self.said {
            Some(said) => write!(f, ": {said}"),
            None if self.errno == libc::EPERM => {
                write!(f, "; it takes CAP_NET_ADMIN in that network namespace")
            }
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

impl Netlink {
    /// Opens one that speaks of `netns`, from wherever it is used.
    ///
    /// # Errors
    /// When the namespace may not be entered, or no descriptor is left.
    pub fn open(netns: &Netns) -> io::Result<Self> {
        netns.run(Self::here)?
    }

    /// Opens one that speaks of the calling thread's namespace.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn here() -> io::Result<Self> {
        // SAFETY: plain integers.
        let socket = unsafe {
            libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE)
        };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and nothing else knows it.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        // a kernel without them (before 4.12) says less, no more
        for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
            let _ = sockopt::set_int(socket.as_fd(), libc::SOL_NETLINK, option, 1);
        }
        Ok(Self { socket, sequence: Cell::new(0) })
    }

    /// Asks for a change.
    fn change(&self, what: &str, request: &mut Request) -> Result<(), Failure> {
        self.ask(what, request, |_, _| {})
    }

    /// Sends a request, hands each message of the answer to `each`, and waits for the end of it.
    fn ask(
        &self,
        what: &str,
        request: &mut Request,
        mut each: impl FnMut(u16, &[u8]),
    ) -> Result<(), Failure> {
        let sequence = self.sequence.get().wrapping_add(1);
        self.sequence.set(sequence);
        self.send(request.bytes(sequence)).map_err(|errno| Failure::new(what, errno))?;
        let mut datagram = vec![0; LARGEST];
        loop {
            let length = self.receive(&mut datagram).map_err(|errno| Failure::new(what, errno))?;
            for message in messages(datagram.get(..length).unwrap_or(&datagram)) {
                if message.sequence != sequence {
                    continue; // left over from a request that ended early
                }
                match c_int::from(message.kind) {
                    libc::NLMSG_ERROR | libc::NLMSG_DONE => {
                        return outcome(what, message.flags, message.body);
                    }
                    _ => each(message.kind, message.body),
                }
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<(), i32> {
        let pointer = bytes.as_ptr().cast::<c_void>();
        // SAFETY: the pointer and length describe `bytes`, which the kernel reads.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), pointer, bytes.len(), 0) };
        if sent < 0 { Err(sockopt::errno()) } else { Ok(()) }
    }

    fn receive(&self, into: &mut [u8]) -> Result<usize, i32> {
        loop {
            let pointer = into.as_mut_ptr().cast::<c_void>();
            // SAFETY: the pointer and length describe `into`, which the kernel writes.
            let got = unsafe { libc::recv(self.socket.as_raw_fd(), pointer, into.len(), 0) };
            match usize::try_from(got) {
                Ok(got) => return Ok(got),
                Err(_) if sockopt::errno() == libc::EINTR => {}
                Err(_) => return Err(sockopt::errno()),
            }
        }
    }
}

/// The end of an answer: a negative errno, the request's header, and perhaps words.
fn outcome(what: &str, flags: u16, body: &[u8]) -> Result<(), Failure> {
    let errno = word(body, 0).map_or(libc::EBADMSG, |word| -(word as i32));
    if errno <= 0 {
        return Ok(()); // the end of a dump may carry a count
    }
    let mut failure = Failure::new(what, errno);
    if flags & NLM_F_ACK_TLVS != 0 {
        let echoed = if flags & NLM_F_CAPPED == 0 {
            word(body, 4).unwrap_or(0) as usize
        } else {
            message::HEADER
        };
        let words = body.get(4 + echoed.next_multiple_of(4)..).unwrap_or_default();
        failure.said = message::attribute(words, NLMSGERR_ATTR_MSG).map(message::text);
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_named() {
        let failure = Netlink::here().unwrap().link_statistics("nosuchdevice0").unwrap_err();
        assert_eq!(failure.errno(), libc::ENODEV);
        assert!(failure.to_string().contains("nosuchdevice0"), "{failure}");
    }

    #[test]
    fn the_loopback_device_has_statistics() {
        let here = Netlink::here().unwrap();
        let before = here.link_statistics("lo").unwrap();
        assert!(before.rx_packets == before.tx_packets, "{before:?}");
    }
}
