//! Bytes that wait to be sent in many flows, and how many more each may add.
//!
//! A flow may add until it holds as much as is free (dynamic thresholds with α = 1; Choudhury and Hahne, IEEE/ACM
//! ToN 6(2), 1998), at most [`MOST`]. Few flows have that much each; flows whose peer takes nothing share the memory.
//! [`LEAST`] each flow may always hold, so a writer whose queue is empty never waits for other flows. Whoever waits has
//! something queued, and is woken by its own bytes being sent.
//!
//! What is `free` to a flow is what its owner may add: see [`holdings`].

pub mod holdings;
#[cfg(test)]
mod laws;

/// Bytes of a flow that may wait; more would only delay the last ones.
pub const MOST: u64 = 256 * 1024;
/// Memory that a flow may fill whatever others hold: some packets, so that it goes on.
pub const LEAST: u64 = 4 * 1024;
/// Memory of a piece beside its bytes.
pub const PIECE: u64 = 64;

/// A flow's bytes that wait, and the pieces that they were written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendQueue {
    /// Bytes.
    pub bytes: u64,
    /// Pieces, none of them empty.
    pub pieces: u64,
}

impl SendQueue {
    /// Memory that it takes, bytes.
    pub const fn memory(self) -> u64 {
        self.bytes.saturating_add(self.pieces.saturating_mul(PIECE))
    }

    /// What counts of that in the memory that flows share. [`LEAST`] of each does not, so that many flows of one owner
    /// take nothing from others.
    pub const fn shared(self) -> u64 {
        self.memory().saturating_sub(LEAST)
    }

    /// Bytes to write now, in one piece, where so many bytes are `free` to its owner.
    pub const fn room(self, free: u64) -> u64 {
        let more = self.more(free).saturating_sub(PIECE);
        let most = MOST.saturating_sub(self.bytes);
        if more < most { more } else { most }
    }

    /// Whether a packet is taken, where so many bytes are `free` to its owner. It cannot be cut, so one goes whatever its length where none waits.
    pub const fn takes_packet(self, length: u64, free: u64) -> bool {
        self.pieces == 0 || length.saturating_add(PIECE) <= self.more(free)
    }

    /// Whether so much room is worth a write: a quarter of what may wait. Room grows by a packet at a time.
    pub const fn is_worthwhile(self, room: u64) -> bool {
        room > 0 && room >= self.bytes.saturating_add(room) / 4
    }

    /// Whether it has no room worth a write because others hold the memory, or its owner has its part of it. So much is
    /// `free` to the owner.
    pub const fn is_short(self, free: u64) -> bool {
        let alone = self.room(u64::MAX);
        self.is_worthwhile(alone) && !self.is_worthwhile(self.room(free))
    }

    /// Whether a writer is woken that found no room worth a write: half of what may wait has been sent. That much is
    /// always worth a write.
    pub const fn wakes(self, room: u64) -> bool {
        room >= self.bytes
    }

    /// Memory that may be added: what is added of the shared memory is no longer free.
    const fn more(self, free: u64) -> u64 {
        let own = LEAST.saturating_sub(self.memory());
        own.saturating_add(free.saturating_sub(self.shared()) / 2)
    }
}
