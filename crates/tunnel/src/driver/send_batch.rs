//! Datagrams that leave together: those of one size, way and mark are handed to the kernel as one.

use super::{Shared, carrier, locked};
use crate::core::OutgoingDatagram;
use ekiden_linux::host::clock;
use ekiden_linux::sockets::datagram;
use ekiden_model::units::Time;
use rustix::io::Errno;
use std::io;
use std::net::UdpSocket;
use std::ops::Range;
use std::os::fd::AsFd;

/// Datagrams at most, and their bytes (the kernel's limits are 64 or 128, and 64 KiB with heads).
const MOST: usize = 64;
const BYTES: usize = 60_000;
/// The largest datagram there is.
const LARGEST: usize = 65_536;

pub(super) struct SendBatch {
    bytes: Vec<u8>,
    made: Vec<OutgoingDatagram>,
    scratch: Vec<u8>,
    /// For each lane, and the one on the socket now.
    dscp: [u8; 2],
    marked: Option<u8>,
    /// A device on the way out cannot take several as one.
    singly: bool,
}

impl SendBatch {
    pub(super) fn new(dscp: [u8; 2]) -> Self {
        let scratch = Vec::with_capacity(LARGEST);
        let (bytes, made) = (Vec::with_capacity(LARGEST), Vec::with_capacity(MOST));
        Self { bytes, made, scratch, dscp, marked: None, singly: false }
    }

    pub(super) fn is_full(&self) -> bool {
        self.made.len() >= MOST
    }

    pub(super) fn take(
        &mut self,
        make: impl FnOnce(&mut Vec<u8>) -> Option<OutgoingDatagram>,
    ) -> bool {
        let Some(out) = make(&mut self.scratch) else { return false };
        self.bytes.extend_from_slice(&self.scratch[..out.size]);
        self.made.push(out);
        true
    }

    /// Hands all datagrams to the kernel; records how late the first is after `planned`. One that
    /// the kernel refuses is lost, as on any link; one too large shows as a lost probe.
    pub(super) fn flush(&mut self, shared: &Shared, socket: &UdpSocket, planned: Time) {
        if self.made.is_empty() {
            return;
        }
        let now = clock::now();
        if planned != Time::NEVER && now >= planned {
            locked(&shared.late).add(now.since(planned));
        }
        let (mut nth, mut at) = (0, 0);
        while let Some(first) = self.made.get(nth).copied() {
            let (count, length) = self.alike(nth);
            if carrier::is_carrier(first.to) {
                carrier::send(shared, first.to, &self.bytes[at..at + length], first.size);
            } else {
                self.send(socket, (first, count), at..at + length);
            }
            let again = self.made[nth + count..].iter().any(|out| out.tunnel == first.tunnel);
            if let Some(tunnel) = first.tunnel.filter(|_| !again) {
                let now = clock::now();
                locked(&shared.core).left(now, tunnel);
            }
            (nth, at) = (nth + count, at + length);
        }
        self.made.clear();
        self.bytes.clear();
    }

    /// Hands so many datagrams of one kind to the kernel.
    fn send(
        &mut self,
        socket: &UdpSocket,
        (first, count): (OutgoingDatagram, usize),
        range: Range<usize>,
    ) {
        self.mark(socket, first);
        let bytes = &self.bytes[range];
        let ends = (first.from, first.to);
        let as_one = (count > 1).then(|| datagram::send_segments(socket, ends, bytes, first.size));
        if let Some(Err(error)) = &as_one {
            self.singly |= is_for_good(error);
        }
        if !matches!(as_one, Some(Ok(()))) {
            let parts = bytes.chunks(first.size.max(1));
            parts.for_each(|one| drop(datagram::send(socket, ends, one)));
        }
    }

    /// How many from the nth on may go as one, and their bytes: all as long as the first, and the last no longer.
    fn alike(&self, nth: usize) -> (usize, usize) {
        let first = self.made[nth];
        let (mut count, mut length) = (1, first.size);
        for out in &self.made[nth + 1..] {
            let same = (out.to, out.from, out.mark, out.tunnel)
                == (first.to, first.from, first.mark, first.tunnel)
                && out.size <= first.size;
            if self.singly || !same || length % first.size.max(1) != 0 || length + out.size > BYTES
            {
                break;
            }
            (count, length) = (count + 1, length + out.size);
        }
        (count, length)
    }

    fn mark(&mut self, socket: &UdpSocket, out: OutgoingDatagram) {
        let dscp = out.mark.map_or(0, |lane| self.dscp[usize::from(lane.min(1))]);
        if self.marked != Some(dscp) {
            // refused by some sandboxes; then it goes unmarked
            let _ = datagram::set_dscp(socket.as_fd(), out.to.is_ipv6(), dscp);
            self.marked = Some(dscp);
        }
    }
}

/// Whether a device on the way out cannot take several as one; a lack of room or route does not
/// count.
fn is_for_good(error: &io::Error) -> bool {
    let never = [Errno::IO, Errno::OPNOTSUPP, Errno::NOPROTOOPT];
    Errno::from_io_error(error).is_some_and(|errno| never.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_that_is_gone_for_a_moment_is_no_reason_to_send_one_by_one() {
        let says = |errno: Errno| is_for_good(&io::Error::from(errno));
        assert!(says(Errno::IO) && says(Errno::OPNOTSUPP));
        assert!(!says(Errno::NETUNREACH) && !says(Errno::PERM) && !says(Errno::AGAIN));
    }
}
