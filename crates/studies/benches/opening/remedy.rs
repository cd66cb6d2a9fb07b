//! The remedies, and what asks a relay for them.

/// A name, and the keys of the relay's leg.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remedy {
    pub(crate) name: &'static str,
    pub(crate) keys: &'static str,
}

/// Each alone, none, and all.
pub(crate) const REMEDIES: [Remedy; 5] = [
    Remedy { name: "kernel", keys: "initial_rto = \"kernel\"\n" },
    Remedy { name: "initial RTO", keys: "initial_rto = \"cached\"\n" },
    Remedy {
        name: "own time-out",
        keys: "initial_rto = \"kernel\"\nestablish_timeout = \"5 s\"\n",
    },
    Remedy { name: "second SYN", keys: "initial_rto = \"kernel\"\nsecond_syn = true\n" },
    Remedy {
        name: "all three",
        keys: "initial_rto = \"cached\"\nestablish_timeout = \"5 s\"\nsecond_syn = true\n",
    },
];

/// Where a relay's openings go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// All to one destination.
    One,
    /// To many in turn.
    Many,
}

impl Load {
    pub(crate) const ALL: [Self; 2] = [Self::One, Self::Many];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::One => "one destination",
            Self::Many => "many destinations",
        }
    }
}
