//! Whole packets from and to a network device: packet sockets, received through a ring of shared
//! memory and sent in batches.
//!
//! Ten bytes of `struct virtio_net_hdr` precede each frame ([`OFFLOAD`]): the checksum and
//! segmentation that the sender left to its device. Handed on unchanged, neither is ever computed.

mod receiver;
mod sender;

pub use receiver::{Received, Receiver};
pub use sender::{BATCH, Sender};

use crate::sockets::sockopt::done;
use socket2::{Domain, Socket, Type};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Length of the offload header in front of each frame.
pub const OFFLOAD: usize = 10;

/// `virtio_net_hdr.gso_size`, bytes of payload in each segment of a super-packet; 0 for a plain packet.
pub fn segment_size(offload: &[u8; OFFLOAD]) -> u16 {
    // byte 1 is gso_type, 4..6 gso_size
    if offload[1] == 0 { 0 } else { u16::from_ne_bytes([offload[4], offload[5]]) }
}

/// `virtio_net_hdr.csum_start`: where a super-packet's TCP or UDP header begins, after Ethernet's.
/// (`hdr_len` is but a hint.)
pub fn transport_start(offload: &[u8; OFFLOAD]) -> u16 {
    u16::from_ne_bytes([offload[6], offload[7]])
}

/// Whether a super-packet is TCP's: `virtio_net_hdr.gso_type`, without its bit for ECN.
pub fn is_tcp(offload: &[u8; OFFLOAD]) -> bool {
    const TCP_V4: u8 = 1;
    const TCP_V6: u8 = 4;
    matches!(offload[1] & 0x7f, TCP_V4 | TCP_V6)
}

fn index_of(device: &str) -> io::Result<u32> {
    let name = CString::new(device).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: `name` is a string that ends in NUL and lives through the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// A packet socket that receives nothing until it is bound to a protocol.
fn open() -> io::Result<OwnedFd> {
    Ok(Socket::new(Domain::PACKET, Type::RAW.nonblocking(), None)?.into())
}

fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of `value`, which is that long and outlives the call.
    done(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            std::ptr::from_ref(value).cast(),
            length,
        )
    })
}

fn bind(socket: &OwnedFd, device: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = device.cast_signed();
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of `address`, which is that long and outlives the call.
    done(unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), length) })
}
