//! Sending in batches (`sendmmsg`), past the device's queueing discipline.

use super::{bind, index_of, open, set};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Frames that one call hands to the kernel at most.
pub const BATCH: usize = 64;

/// Bytes of packets on their way to the other end; beyond `net.core.wmem_max` the kernel gives less.
const ROOM: usize = 4 << 20;

/// A device's outgoing packets.
#[derive(Debug)]
pub struct Sender {
    socket: OwnedFd,
}

impl Sender {
    /// Sends by `device`, of the calling thread's network namespace. Errors: `PermissionDenied`
    /// without CAP_NET_RAW; `NotFound` when there is no such device.
    pub fn open(device: &str) -> io::Result<Self> {
        let index = index_of(device)?;
        let socket = open()?;
        let one: libc::c_int = 1;
        set(&socket, libc::PACKET_VNET_HDR, &one)?;
        set(&socket, libc::PACKET_QDISC_BYPASS, &one)?;
        // room for some dozens of super-packets that the other end has not taken yet
        let socket2 = socket2::SockRef::from(&socket);
        socket2.set_send_buffer_size(ROOM)?;
        // protocol 0: this socket receives nothing
        bind(&socket, index, 0)?;
        Ok(Self { socket })
    }

    /// Sends the first frames, each from at most [`BATCH`] parts, with its offload header in front;
    /// how many the kernel took. A frame of more parts is not sent. Errors: those of `sendmmsg(2)`
    /// for the first frame; later ones were not tried.
    pub fn send<'a, F>(&self, frames: impl Iterator<Item = F>) -> io::Result<usize>
    where
        F: Iterator<Item = &'a [u8]>,
    {
        // SAFETY: all-zero bytes are valid for both plain structures.
        let mut vectors: [libc::iovec; BATCH] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        let mut count = 0;
        let mut rest = &mut vectors[..];
        'frames: for (frame, message) in frames.zip(&mut messages) {
            let mut parts = 0;
            for part in frame {
                let Some(vector) = rest.get_mut(parts) else { break 'frames };
                vector.iov_base = part.as_ptr().cast_mut().cast();
                vector.iov_len = part.len();
                parts += 1;
            }
            let (own, others) = rest.split_at_mut(parts);
            rest = others;
            message.msg_hdr.msg_iov = own.as_mut_ptr();
            // an int in musl
            message.msg_hdr.msg_iovlen = parts as _;
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        // SAFETY: the first `count` messages point to vectors of this function and those to slices
        // that outlive the call; sending only reads them.
        let sent =
            unsafe { libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), count, 0) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}
