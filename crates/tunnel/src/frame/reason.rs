//! Why a flow was refused or ended, as a number on the wire (`docs/book/src/design/protocol.md`, "Reasons").

use std::fmt;

/// Why a flow did not open, or ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// A rule of the far relay, or a special address.
    Denied,
    /// The request has been at that relay before.
    Loop,
    /// The name does not resolve there.
    NoName,
    /// Nothing listens there.
    Refused,
    /// No way there.
    Unreachable,
    /// No answer in time.
    TimedOut,
    /// A proxy further on answered that it cannot or will not.
    UpstreamRefused,
    /// A proxy further on does not accept the far relay's credentials.
    NotAdmitted,
    /// The answer does not speak the expected protocol.
    BadAnswer,
    /// The far end closed or reset the connection.
    Closed,
    /// The far relay is out of descriptors, memory or ports.
    Exhausted,
    /// The tunnel itself was lost.
    TunnelLost,
    /// Its bytes were not read, or hardly, for so long that others needed the memory.
    Stalled,
    /// A number this version does not know.
    Other(u64),
}

const KNOWN: [(u64, Reason, &str); 13] = [
    (1, Reason::Denied, "not allowed there"),
    (2, Reason::Loop, "a loop"),
    (3, Reason::NoName, "the name does not resolve"),
    (4, Reason::Refused, "connection refused"),
    (5, Reason::Unreachable, "no way there"),
    (6, Reason::TimedOut, "no answer in time"),
    (7, Reason::UpstreamRefused, "an upstream proxy refused"),
    (8, Reason::NotAdmitted, "an upstream proxy does not accept the credentials"),
    (9, Reason::BadAnswer, "an answer that cannot be read"),
    (10, Reason::Closed, "the connection was reset"),
    (11, Reason::Exhausted, "out of descriptors, memory or ports"),
    (12, Reason::TunnelLost, "the tunnel was lost"),
    (13, Reason::Stalled, "bytes not taken for too long"),
];

impl Reason {
    /// As on the wire.
    pub fn code(self) -> u64 {
        match self {
            Self::Other(code) => code,
            _ => KNOWN.iter().find(|(_, reason, _)| *reason == self).map_or(0, |(code, ..)| *code),
        }
    }

    /// From the wire.
    pub fn from_code(code: u64) -> Self {
        KNOWN
            .iter()
            .find(|(known, ..)| *known == code)
            .map_or(Self::Other(code), |(_, reason, _)| *reason)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match KNOWN.iter().find(|(_, reason, _)| reason == self) {
            Some((_, _, words)) => f.write_str(words),
            None => write!(f, "reason {}, which this version does not know", self.code()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back() {
        for code in 0..40 {
            assert_eq!(Reason::from_code(code).code(), code);
        }
        assert_eq!(Reason::from_code(4), Reason::Refused);
        assert!(Reason::Other(77).to_string().contains("77"));
    }
}
