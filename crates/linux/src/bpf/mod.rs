//! Congestion controls inside the kernel's TCP, as BPF programs: rate holding and Westwood+.
//!
//! ```text
//! Loaded::open(control, pins)     programs that a privileged process pinned, or
//! Loaded::load(control)           registered as long as this lives, and as long as sockets use it
//!   .name()                       for TCP_CONGESTION
//!   .group(key, terms)            one rate for many sockets, freed with its last reference
//!     .agree()                    other terms for the same key
//!     .join(socket, weight)       before or after it connects; it leaves when it closes
//!     .seen()
//! ```
//! The programs in `crates/linux/bpf/` are compiled beforehand (decision 12); libbpf fits them to
//! the running kernel. A descriptor holds a registration (BPF_F_LINK, Linux 6.4): when the process
//! ends its name is free, and sockets that use the programs keep them until they close. Where
//! another relay has the name, a number is appended.

#[cfg(feature = "bpf")]
mod group;
#[cfg(feature = "bpf")]
mod loaded;
mod missing;
#[cfg(feature = "bpf")]
mod owner;
#[cfg(feature = "bpf")]
mod pins;
mod terms;
#[cfg(not(feature = "bpf"))]
mod without;

#[cfg(feature = "bpf")]
pub use group::Group;
#[cfg(feature = "bpf")]
pub use loaded::Loaded;
pub use missing::{Missing, Needs};
#[cfg(feature = "bpf")]
pub use pins::{pin, pinned, unpin};
pub use terms::{GroupState, Terms};
#[cfg(not(feature = "bpf"))]
pub use without::{Group, Loaded, pin, pinned, unpin};

use std::fmt;

/// The folder of the pins, a BPF file system of its own: systemd closes /sys/fs/bpf to all but
/// root, and /run/ekiden belongs to the service.
pub const PINS: &str = "/run/ekiden-bpf";

/// The controls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Control {
    /// Holds a rate that was agreed to, across losses that are no congestion (algorithms/satellite E.4).
    Hold,
    /// Westwood+ (algorithms/split-connections C.8).
    Westwood,
}

/// As many as could carry a number of one digit.
const NAMES: u8 = 9;

impl Control {
    /// All.
    pub const ALL: [Self; 2] = [Self::Hold, Self::Westwood];

    /// The word for it in a leg's `congestion`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Westwood => "westwood",
        }
    }

    /// The one that `word` names.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|control| control.word() == word)
    }

    /// The one that the kernel calls `name`.
    pub fn called(name: &str) -> Option<Self> {
        let has = |control: &Self| (1..=NAMES).any(|nth| control.name(nth) == name);
        Self::ALL.into_iter().find(has)
    }

    /// Whether the kernel's `name` is one that is given here.
    pub(crate) fn is_ours(name: &str) -> bool {
        name.starts_with("ekiden_")
    }

    /// The kernel's name for it unless taken; also its name in the object.
    const fn first_name(self) -> &'static str {
        match self {
            Self::Hold => "ekiden_hold",
            Self::Westwood => "ekiden_westwood",
        }
    }

    /// The `nth` name, of 15 bytes at most (TCP_CA_NAME_MAX).
    fn name(self, nth: u8) -> String {
        match (self.first_name(), nth) {
            (first, 0 | 1) => first.to_owned(),
            (first, nth) => format!("{}{nth}", &first[..first.len().min(14)]),
        }
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_differ() {
        for control in Control::ALL {
            let names: std::collections::BTreeSet<_> =
                (1..=NAMES).map(|nth| control.name(nth)).collect();
            assert_eq!(names.len(), usize::from(NAMES));
            assert!(names.iter().all(|name| name.len() <= 15 && name.starts_with("ekiden_")));
            assert_eq!(Control::named(control.word()), Some(control));
            assert!(names.iter().all(|name| Control::called(name) == Some(control)));
        }
        assert_eq!((Control::named("bbr"), Control::called("bbr")), (None, None));
    }
}
