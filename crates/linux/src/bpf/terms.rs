//! What a group may send, as the programs read it (`struct agreement` in `bpf/hold.h`).

use ekiden_model::rate_hold::rounds::Agreement;
use ekiden_model::units::Rate;

/// What a group of connections may send together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Bits a second of IP packets, retransmissions among them; at least 64 kbit/s.
    pub rate: Rate,
    /// The line's own rate where that is more: then what losses take is sent in addition, up to this and to a
    /// quarter more than `rate`.
    pub line: Option<Rate>,
    /// Whether the line is the operator's own, so that others' traffic is no reason to give way for long.
    pub dedicated: bool,
}

/// Bytes of `struct agreement`.
pub(super) const SIZE: usize = 40;

impl Terms {
    /// A rate, and everything else as it is by default.
    #[must_use]
    pub const fn new(rate: Rate) -> Self {
        Self { rate, line: None, dedicated: false }
    }

    /// As decided by.
    #[must_use]
    pub fn agreement(&self) -> Agreement {
        let bytes = |rate: Rate| rate.as_bits_per_second() / 8;
        Agreement {
            rate: bytes(self.rate).max(1),
            line: self.line.map_or(0, bytes),
            dedicated: self.dedicated,
            ..Agreement::default()
        }
    }

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
