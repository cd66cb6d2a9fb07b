//! Receiving through a ring (`PACKET_RX_RING`, TPACKET_V2): the kernel puts each packet and its
//! time into shared memory, without a system call, whatever `net.core.rmem_max` says.

use super::{OFFLOAD, bind, index_of, open, set};
use crate::sockets::sockopt::done;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// What a frame of the ring holds in front of the packet, generously.
const OVERHEAD: usize = 128;
/// Frames never cross blocks; the kernel allocates blocks as physically contiguous memory.
const BLOCK: usize = 256 * 1024;

/// A packet in the ring.
#[derive(Debug)]
pub struct Received<'a> {
    /// When it came: nanoseconds since 1970 (`CLOCK_REALTIME`).
    pub at: u64,
    /// The offload header and then the Ethernet frame.
    pub bytes: &'a [u8],
    /// The frame was longer than the ring's frames, and its end is missing.
    pub cut: bool,
}

/// A device's incoming packets.
#[derive(Debug)]
pub struct Receiver {
    socket: OwnedFd,
    ring: NonNull<u8>,
    layout: Layout,
    /// The frame that the kernel fills next, or has filled.
    next: usize,
}

/// Frames lie block by block; what is left at a block's end is not used.
#[derive(Debug, Clone, Copy)]
struct Layout {
    frame: usize,
    per_block: usize,
    block: usize,
    blocks: usize,
}

impl Layout {
    fn new(largest: usize, room: usize) -> Self {
        let frame = (largest + OVERHEAD).next_multiple_of(libc::TPACKET_ALIGNMENT);
        let per_block = (BLOCK / frame).max(1);
        let block = (per_block * frame).next_multiple_of(4096).max(BLOCK);
        Self { frame, per_block, block, blocks: room.div_ceil(block).max(2) }
    }

    const fn frames(self) -> usize {
        self.per_block * self.blocks
    }

    const fn bytes(self) -> usize {
        self.block * self.blocks
    }

    const fn offset(self, frame: usize) -> usize {
        (frame / self.per_block) * self.block + (frame % self.per_block) * self.frame
    }
}

// SAFETY: the mapping belongs to this value alone, and no part of it is tied to a thread.
unsafe impl Send for Receiver {}

impl Receiver {
    /// Receives all that comes in by `device`, of the calling thread's network namespace: frames of
    /// up to `largest` bytes, about `room` bytes of them. Errors: `PermissionDenied` without
    /// CAP_NET_RAW; `NotFound` for the device; out of memory.
    pub fn open(device: &str, largest: usize, room: usize) -> io::Result<Self> {
        let index = index_of(device)?;
        let socket = open()?;
        let one: libc::c_int = 1;
        set(&socket, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as libc::c_int))?;
        set(&socket, libc::PACKET_VNET_HDR, &one)?;
        set(&socket, libc::PACKET_IGNORE_OUTGOING, &one)?;
        let layout = Layout::new(largest, room);
        let request = libc::tpacket_req {
            tp_block_size: layout.block as u32,
            tp_block_nr: layout.blocks as u32,
            tp_frame_size: layout.frame as u32,
            tp_frame_nr: layout.frames() as u32,
        };
        set(&socket, libc::PACKET_RX_RING, &request)?;
        // SAFETY: a new mapping of the socket's ring, at an address the kernel chooses.
        let ring = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                layout.bytes(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if ring == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(ring) = NonNull::new(ring.cast()) else {
            return Err(io::Error::from(io::ErrorKind::OutOfMemory));
        };
        let this = Self { socket, ring, layout, next: 0 };
        bind(&this.socket, index, libc::ETH_P_ALL as u16)?;
        Ok(this)
    }

    /// Hands over packets that have come, in order, at most `most`, and says how many there were.
    pub fn receive(&mut self, most: usize, mut take: impl FnMut(Received<'_>)) -> usize {
        for count in 0..most {
            let frame = self.frame_at(self.next);
            // SAFETY: `frame` points to a header within the mapping, which the kernel and this thread
            // use in turns as the status says; the status itself is read and written atomically, and
            // it is aligned, as frames are multiples of 16.
            let status = unsafe { &*frame.cast::<AtomicU32>().as_ptr() };
            if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                return count;
            }
            // SAFETY: the status says that the frame is ours until we give it back.
            let header = unsafe { frame.cast::<libc::tpacket2_hdr>().as_ref() };
            let start = usize::from(header.tp_mac).saturating_sub(OFFLOAD);
            let room = self.layout.frame - start.min(self.layout.frame);
            let length = (header.tp_snaplen as usize + OFFLOAD).min(room);
            let received = Received {
                at: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
                // SAFETY: `start + length` is within the frame, the frame is ours until the status is
                // written back below, and the borrow ends before that.
                bytes: unsafe { std::slice::from_raw_parts(frame.add(start).as_ptr(), length) },
                cut: header.tp_snaplen < header.tp_len || length < OFFLOAD,
            };
            take(received);
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % self.layout.frames();
        }
        most
    }

    /// Whether a packet waits.
    pub fn is_ready(&self) -> bool {
        // SAFETY: as in `receive`.
        let status = unsafe { &*self.frame_at(self.next).cast::<AtomicU32>().as_ptr() };
        status.load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Packets that found the ring full since this was asked last. Errors: those of
    /// `getsockopt(2)`.
    pub fn dropped(&self) -> io::Result<u64> {
        let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes into `stats`, which is that long.
        done(unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                std::ptr::from_mut(&mut stats).cast(),
                &raw mut length,
            )
        })?;
        Ok(stats.tp_drops.into())
    }

    fn frame_at(&self, n: usize) -> NonNull<u8> {
        // SAFETY: `n` is below `frames()`, so the offset is within the mapping.
        unsafe { self.ring.add(self.layout.offset(n)) }
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrowed from it outlives this value.
        unsafe { libc::munmap(self.ring.as_ptr().cast(), self.layout.bytes()) };
    }
}
