//! TCP without wires: a sender and a receiver of one direction of a byte stream, and the handshake
//! before it.
//!
//! ```text
//!   application            network                      network           application
//!  on_write(bytes) ─► Sender ─ poll() ─► segment … ─► Receiver::on_segment ─► bytes in order
//!                     Sender::on_ack ◄─ … acknowledgement ◄─ poll()
//! ```
//! Report an event with its time, call `poll(now)` until `None`, come back at `deadline()` with
//! `on_deadline(now)`. A stream is offsets from 0 in 64 bits, without contents. [`Repair`] selects
//! loss detection, [`crate::control::congestion`] the window, [`crate::network::rto`] the time-out;
//! [`preset`] combines them as certain programs did.
//!
//! Missing: urgent data, simultaneous open, FIN (streams end by being delivered), Eifel detection,
//! adaptation of RACK's reordering window to DSACKs and its restraint after a timeout (RFC 8985
//! §6.3: here all outstanding data counts as lost then).

mod handshake;
pub mod preset;
mod prr;
mod ranges;
mod receiver;
mod sender;

mod dupack;
mod sack_pipe;
mod scoreboard;
#[cfg(test)]
mod tests;

pub use handshake::{Attempt, Handshake, HandshakeConfig};
pub use ranges::Ranges;
pub use receiver::{Acknowledging, Received, Receiver, ReceiverConfig, ReceiverSnapshot};
pub use sender::{
    Counters, Decrease, Offload, Pacing, Sampling, Sender, SenderConfig, SenderSnapshot,
};

use crate::units::Time;

/// A range of stream offsets, `start` included, `end` not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Block {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Block {
    /// How many bytes.
    pub const fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether it holds none.
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }
}

/// Blocks that fit beside a timestamp; without one a fourth would (RFC 2018).
pub const MOST_BLOCKS: usize = 3;

/// Up to [`MOST_BLOCKS`], the newest first (RFC 2018); one below the cumulative ack is a duplicate
/// (RFC 2883).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Blocks {
    blocks: [Block; MOST_BLOCKS],
    count: u8,
}

impl Blocks {
    /// Adds one, if there is room.
    pub fn push(&mut self, block: Block) {
        if let Some(slot) = self.blocks.get_mut(usize::from(self.count)) {
            *slot = block;
            self.count += 1;
        }
    }

    /// Those there are.
    pub fn as_slice(&self) -> &[Block] {
        self.blocks.get(..usize::from(self.count)).unwrap_or_default()
    }
}

/// Why a segment is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reason {
    /// For the first time.
    #[default]
    New,
    /// Duplicate acknowledgements indicate a loss (RFC 5681 §3.2).
    Fast,
    /// A partial acknowledgement indicates it (RFC 6582).
    Partial,
    /// Selective acknowledgements indicate it (RFC 6675, RFC 8985).
    Selective,
    /// The retransmission timer fired (RFC 6298), or the sender goes back after that.
    Timeout,
    /// A probe of the tail, before the timer fires (RFC 8985 §7).
    Probe,
}

/// A segment to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// First byte.
    pub start: u64,
    /// Payload bytes, at least 1.
    pub len: u32,
    /// Why.
    pub reason: Reason,
    /// The window was reduced because of a congestion mark (RFC 3168: CWR).
    pub reduced: bool,
}

impl Segment {
    /// One past its last byte.
    pub const fn end(&self) -> u64 {
        self.start + self.len as u64
    }
}

/// A segment that arrived in return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Acknowledgement {
    /// All below this has arrived.
    pub ack: u64,
    /// How much the receiver takes beyond `ack`, in bytes.
    pub window: u64,
    /// Selective acknowledgements.
    pub blocks: Blocks,
    /// The timestamp of the segment that this answers, where both sides use them (RFC 7323 §4.3).
    pub echo: Option<Time>,
    /// A congestion mark was seen and not answered yet (RFC 3168: ECE).
    pub marked: bool,
}

/// Loss detection and the choice of segments to retransmit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// By counting duplicate acknowledgements.
    Counting(Counting),
    /// By selective acknowledgements.
    Selective(Selective),
    /// By selective acknowledgements, what is in flight being counted (Fall and Floyd 1996: "sack1").
    Piping,
}

/// Loss recovery without selective acknowledgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counting {
    /// Which of the family.
    pub variant: Variant,
    /// Send a new segment for each of the first two duplicates (RFC 3042).
    pub limited_transmit: bool,
    /// After recovery, duplicates of older data start no other (RFC 6582 §3.2 step 2: "careful";
    /// ns-2: `bugFix_`) …
    pub careful: bool,
    /// … unless the last ack moved by at most four segments and the window is above one (RFC 6582
    /// §4.1).
    pub ack_heuristic: bool,
    /// A partial acknowledgement deflates the window by what it acknowledges (RFC 6582 step 3), or
    /// wholly.
    pub partial_deflation: bool,
    /// Only the first partial acknowledgement restarts the timer (RFC 6582 §4: "impatient").
    pub impatient: bool,
    /// At the end of recovery the window is at most what is outstanding (RFC 6582 step 3, first choice).
    pub exit_to_flight: bool,
    /// At most so many segments for one duplicate acknowledgement.
    pub burst: Option<u32>,
    /// Detect spurious timeouts (RFC 5682).
    pub f_rto: bool,
}

/// Members of the family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// A loss is followed by slow start.
    Tahoe,
    /// Fast recovery ends with the first new acknowledgement.
    Reno,
    /// … with the acknowledgement of all that was sent before it began.
    NewReno,
}

/// Loss recovery with selective acknowledgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selective {
    /// Judge by time (RFC 8985) instead of by counting what was sent later (RFC 6675).
    pub rack: bool,
    /// Probe the tail (RFC 8985 §7).
    pub tail_probe: bool,
    /// Reduce in proportion to what is delivered (RFC 6937), not at once.
    pub proportional: bool,
    /// Send a new segment for each of the first two duplicates (RFC 3042).
    pub limited_transmit: bool,
    /// Detect spurious timeouts (RFC 5682, with what selective acknowledgements say).
    pub f_rto: bool,
}

/// Duplicates that mean a loss (RFC 5681).
pub(crate) const DUPLICATES: u32 = 3;
