//! Limits on scarce resources: socket buffers, connections, the pool of idle connections, the cache.

use ekiden_model::resources::buffers::{Excess, Scheme};
use ekiden_model::units::{Bytes, Share, Span};
use std::path::PathBuf;

/// Socket buffers. Sizes are the kernel's (`rb` and `tb` of `ss -tm`): twice the payload they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffers {
    /// The budget for all buffers together. Default `None`: the kernel tunes each within `tcp_mem`,
    /// which works well while memory is not scarce.
    pub budget: Option<Bytes>,
    /// The management scheme, 1 to 4 of the buffer study. Default [`Scheme::Shrinking`].
    pub scheme: Scheme,
    /// How the rest is divided among buffers that need more than their fair share. Default by need.
    pub excess: Excess,
    /// The size of a buffer before its need is known, and of every buffer in scheme 1. Default 32 KiB.
    pub initial: Bytes,
    /// The smallest buffer in segments, except for idle connections. Default 2.
    pub floor: u16,
    /// The largest buffer. Default 64 MiB, more than 200 Mbit/s over 600 ms need.
    pub ceiling: Bytes,
    /// Between two divisions. Default 1 s.
    pub tick: Span,
}

/// Overload: more clients than there is room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pressure {
    /// Above this share of descriptors, socket or own memory, or ports, idle connections are
    /// closed. Default 95 %.
    pub high: Share,
    /// Idle connections are closed until usage falls to this share. Default 90 %.
    pub low: Share,
    /// The most clients that wait for room; more are rejected at once. Default 1,024.
    pub waiting: u32,
    /// How long a client waits before it is rejected. Default 10 s.
    pub patience: Span,
    /// A CONNECT or SOCKS tunnel silent for this long may be closed to make room. Default `None`:
    /// never.
    pub silent_tunnel: Option<Span>,
    /// The share of the connections that is kept for accounts where there are some: for connections
    /// that have logged in, and newcomers of addresses that did. The same of UDP associations, for
    /// those of accounts and peers. Default 25 %.
    pub accounts: Share,
}

/// Idle connections to origin servers and HTTP proxies, kept for the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// The most connections. Default 1,024.
    pub connections: u32,
    /// The most connections to one destination over one route. Default 16.
    pub per_destination: u32,
    /// How long a connection is kept. Default 15 s, well below the keep-alive time of common servers.
    pub idle: Span,
}

/// The HTTP cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// Memory for responses, heads and bookkeeping included, and for the disk's buffers. Default `None`: no cache.
    pub memory: Option<Bytes>,
    /// Disk space for responses. Default `None`: no disk.
    pub disk: Option<Bytes>,
    /// The cache's own folder.
    pub directory: Option<PathBuf>,
    /// The largest body to cache. Default 4 MiB.
    pub largest: Bytes,
}

/// The smallest block of the disk, in bytes.
const LEAST_BLOCK: u64 = 4 << 20;
/// What a block has beside the largest body, in bytes.
const BESIDE_BODY: u64 = 1 << 20;
/// Blocks consist of pages of so many bytes.
const PAGE: u64 = 4096;
/// Two buffers are written in turn, and as much may wait for them.
const BUFFERS: u64 = 3;

impl Cache {
    /// A block of the disk: it holds at least one response, and is evicted as a whole.
    pub fn block(&self) -> Bytes {
        let bytes = self.largest.as_u64().saturating_add(BESIDE_BODY).max(LEAST_BLOCK);
        Bytes::new(bytes.next_multiple_of(PAGE))
    }

    /// What may wait to be written to the disk, and the size of each of the two buffers for it.
    pub fn waiting(&self) -> Bytes {
        let (memory, block) = (self.memory.unwrap_or_default().as_u64(), self.block().as_u64());
        Bytes::new((memory / 16).clamp(block, block.saturating_mul(8)))
    }

    /// The part of `memory` that the disk's buffers take; none without a disk.
    pub fn buffers(&self) -> Bytes {
        match self.disk {
            Some(_) => Bytes::new(self.waiting().as_u64().saturating_mul(BUFFERS)),
            None => Bytes::ZERO,
        }
    }

    /// The least `memory` that leaves room for the largest body beside the disk's buffers.
    pub fn least_memory(&self) -> Bytes {
        let least = Self { memory: Some(Bytes::ZERO), ..self.clone() };
        Bytes::new(least.buffers().as_u64().saturating_add(self.largest.as_u64()))
    }

    /// The memory of one read of the disk: of the largest response as it is stored, and as it is used.
    pub fn read_size(&self) -> Bytes {
        Bytes::new(self.largest.as_u64().saturating_add(64 << 10).saturating_mul(2))
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self { memory: None, disk: None, directory: None, largest: Bytes::mib(4) }
    }
}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            budget: None,
            scheme: Scheme::Shrinking,
            excess: Excess::Proportional,
            initial: Bytes::kib(32),
            floor: 2,
            ceiling: Bytes::mib(64),
            tick: Span::from_secs(1),
        }
    }
}

impl Default for Pressure {
    fn default() -> Self {
        let percent = |n| Share::from_percent(n).unwrap_or(Share::ALL);
        Self {
            high: percent(95),
            low: percent(90),
            waiting: 1_024,
            patience: Span::from_secs(10),
            silent_tunnel: None,
            accounts: percent(25),
        }
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self { connections: 1_024, per_destination: 16, idle: Span::from_secs(15) }
    }
}
