//! What may be taken of what runs out: socket buffers, places, the pool of idle connections, the cache.

use ekiden_model::buffers::{Excess, Scheme};
use ekiden_model::units::{Bytes, Share, Span};
use std::path::PathBuf;

/// Socket buffers. All sizes are as the kernel counts them (`rb` and `tb` of `ss -tm`), packet headers
/// included: twice the payload they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffers {
    /// What the send and receive buffers of all connections together may have. Default `None`: the
    /// kernel tunes each, bounded by `tcp_mem`, which it does well while memory is not scarce.
    pub budget: Option<Bytes>,
    /// What is managed, as in the study's schemes 1 to 4. Default [`Scheme::Shrinking`].
    pub scheme: Scheme,
    /// How what is left is divided among those who need more than their fair share. Default in
    /// proportion to need.
    pub excess: Excess,
    /// What a buffer has before its need is known, and every buffer in scheme 1. Default 32 KiB.
    pub initial: Bytes,
    /// No buffer is smaller than so many segments, except idle ones. Default 2.
    pub floor: u16,
    /// No buffer is made larger. Default 64 MiB, enough for 200 Mbit/s over 600 ms and some.
    pub ceiling: Bytes,
    /// Between two divisions. Default 1 s.
    pub tick: Span,
}

/// When newcomers are more than there is room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pressure {
    /// Above this share of descriptors, socket memory, own memory or ports, resources are low: idle
    /// connections are closed. Default 95 %.
    pub high: Share,
    /// Until no more than this share is in use. Default 90 %.
    pub low: Share,
    /// The most newcomers that wait for room; more are refused at once. Default 1,024.
    pub waiting: u32,
    /// How long one waits before it is refused. Default 10 s.
    pub patience: Span,
    /// A CONNECT or SOCKS tunnel on which nothing moved for so long counts as idle and may be closed to
    /// make room. Default `None`: tunnels are never closed for others.
    pub silent_tunnel: Option<Span>,
}

/// Connections to origin servers and HTTP proxies that are kept for the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// The most that are kept. Default 1,024.
    pub connections: u32,
    /// Of those, to one destination by one way. Default 16.
    pub per_destination: u32,
    /// How long one is kept. Default 15 s, well below the patience of common servers.
    pub idle: Span,
}

/// The HTTP cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// What is kept in memory, heads and bookkeeping included. Default `None`: no cache.
    pub memory: Option<Bytes>,
    /// What is kept on disk beside. Default `None`: nothing.
    pub disk: Option<Bytes>,
    /// Where. A folder of its own.
    pub directory: Option<PathBuf>,
    /// The largest body that is kept. Default 4 MiB.
    pub largest: Bytes,
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
        }
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self { connections: 1_024, per_destination: 16, idle: Span::from_secs(15) }
    }
}
