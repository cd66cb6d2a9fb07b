//! Sending in batches (`sendmmsg`), past the device's queueing discipline.

use super::{bind, index_of, open, set};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Frames that one call hands to the kernel at most.
pub const BATCH: usize = 64;

/// A device's outgoing packets.
#[derive(Debug)]
pub struct Sender {
    socket: OwnedFd,
}

impl Sender {
    /// Sends by `device`, of the calling thread's network namespace.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_NET_RAW; `NotFound` when there is no such device.
    pub fn open(device: &str) -> io::Result<Self> {
        let index = index_of(device)?;
        let socket = open()?;
        let one: libc::c_int = 1;
        set(&socket, libc::PACKET_VNET_HDR, &one)?;
        set(&socket, libc::PACKET_QDISC_BYPASS, &one)?;
        // protocol 0: this socket receives nothing
        bind(&socket, index, 0)?;
        Ok(Self { socket })
    }

    /// Sends the first frames, at most [`BATCH`], each with its offload header in front, and says how
    /// many the kernel took.
    ///
    /// # Errors
    /// What `sendmmsg(2)` says of the first frame; the frames after it were not tried.
    pub fn send<'a>(&self, frames: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        // SAFETY: all-zero bytes are valid for both plain structures.
        let mut vectors: [libc::iovec; BATCH] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        let mut count = 0;
        for (frame, (vector, message)) in frames.zip(vectors.iter_mut().zip(&mut messages)) {
            vector.iov_base = frame.as_ptr().cast_mut().cast();
            vector.iov_len = frame.len();
            message.msg_hdr.msg_iov = std::ptr::from_mut(vector);
            message.msg_hdr.msg_iovlen = 1;
            count += 1;
        }
        if count == 0 {
            return Ok(0);
        }
        // SAFETY: the first `count` messages point to vectors of this frame and those to slices that
        // outlive the call; sending only reads them.
        let sent =
            unsafe { libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), count, 0) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}
