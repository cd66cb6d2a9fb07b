//! The send limit of a group, as the programs read it (`struct agreement` in `bpf/hold.h`).

use ekiden_model::control::rate_hold::rounds::Agreement;
use ekiden_model::units::Rate;

/// The shared send limit of a group of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Bits a second of IP packets, retransmissions among them; at least 64 kbit/s.
    pub rate: Rate,
    /// The line's own rate, where higher: retransmissions go on top of the rate, up to this and 5/4
    /// `rate`.
    pub line: Option<Rate>,
    /// Whether the line is the operator's own, so that others' traffic is no reason to give way for long.
    pub dedicated: bool,
}

/// The state of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupState {
    /// Sockets that have sent as its members and are not closed.
    pub members: u64,
    /// The weights of those that have more to send.
    pub weights: u64,
    /// The send rate of the others, bits a second.
    pub light: u64,
    /// The rate of all together now, bits a second; 0 before anything was sent.
    pub rate: u64,
    /// Bytes delivered so far, with their headers.
    pub delivered: u64,
    /// The path's own losses as far as known, parts of a million.
    pub losses: u32,
    /// How often the rate was lowered because data did not arrive or was queued too long.
    pub reactions: u32,
    /// How often that was taken back.
    pub undone: u32,
}

/// Bytes of `struct agreement`.
#[cfg(feature = "bpf")]
pub(super) const SIZE: usize = 40;

impl Terms {
    /// A rate, and everything else as it is by default.
    pub const fn new(rate: Rate) -> Self {
        Self { rate, line: None, dedicated: false }
    }

    /// As decided by.
    pub fn agreement(&self) -> Agreement {
        let bytes = |rate: Rate| rate.as_bits_per_second() / 8;
        Agreement {
            rate: bytes(self.rate).max(1),
            line: self.line.map_or(0, bytes),
            dedicated: self.dedicated,
            ..Agreement::default()
        }
    }

    #[cfg(feature = "bpf")]
    /// As the programs read it, written by `owner`.
    pub(super) fn bytes(&self, owner: u64) -> [u8; SIZE] {
        let agreement = self.agreement();
        let mut bytes = [0; SIZE];
        let long = [agreement.rate.to_ne_bytes(), agreement.line.to_ne_bytes()].concat();
        let dedicated = u32::from(agreement.dedicated);
        let short = [agreement.queue, agreement.gain, agreement.nominal, dedicated];
        bytes[..16].copy_from_slice(&long);
        bytes[16..32].copy_from_slice(&short.map(u32::to_ne_bytes).concat());
        bytes[32..].copy_from_slice(&owner.to_ne_bytes());
        bytes
    }
}
