//! Why a request could not be carried out: whose side it was on, and what a client of each protocol
//! is told.

use crate::access::Denied;
use crate::http::BadMessage;
use crate::socks::Reply;
use std::io;

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The client sent something malformed; the HTTP status says what.
    Malformed(u16),
    /// A rule, or a special address.
    Denied,
    /// The client has to log in, or did and was wrong.
    LogIn,
    /// The request has been here before.
    Loop,
    /// The name does not resolve.
    NoName,
    /// Nothing listens there.
    Refused,
    /// No way there.
    Unreachable,
    /// No answer in time.
    TimedOut,
    /// An upstream proxy answered that it cannot or will not.
    UpstreamRefused,
    /// An upstream proxy does not accept the credentials configured for it, whatever the destination.
    NotAdmitted,
    /// The destination's answer is not HTTP.
    BadAnswer,
    /// The destination or an upstream closed the connection before it answered.
    Closed,
    /// Out of descriptors, memory or ports here.
    Exhausted,
}

/// A failure, with the words for the client and for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// A failed system call while doing `what`.
    pub(crate) fn io(what: &str, error: &io::Error) -> Self {
        use io::ErrorKind as E;
        let kind = match error.kind() {
            E::ConnectionRefused => Kind::Refused,
            E::TimedOut => Kind::TimedOut,
            E::ConnectionReset | E::BrokenPipe | E::UnexpectedEof | E::ConnectionAborted => {
                Kind::Closed
            }
            E::AddrNotAvailable | E::OutOfMemory => Kind::Exhausted,
            _ if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                Kind::Exhausted
            }
            _ => Kind::Unreachable,
        };
        let hint = match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => {
                "; the relay's operator can raise its descriptor limit"
            }
            Some(libc::EADDRNOTAVAIL) => {
                "; the relay has no free port, or not the source address its leg asks for"
            }
            _ => "",
        };
        Self::new(kind, format!("{what}: {error}{hint}"))
    }

    /// The HTTP status.
    pub(crate) const fn status(&self) -> u16 {
        match self.kind {
            Kind::Malformed(status) => status,
            Kind::Denied => 403,
            Kind::LogIn => 407,
            Kind::Loop => 508,
            Kind::NoName
            | Kind::Refused
            | Kind::Unreachable
            | Kind::UpstreamRefused
            | Kind::NotAdmitted
            | Kind::BadAnswer
            | Kind::Closed => 502,
            Kind::TimedOut => 504,
            Kind::Exhausted => 503,
        }
    }

    /// The SOCKS5 reply.
    pub(crate) const fn socks(&self) -> Reply {
        match self.kind {
            Kind::Malformed(_)
            | Kind::BadAnswer
            | Kind::Closed
            | Kind::Exhausted
            | Kind::UpstreamRefused
            | Kind::NotAdmitted => Reply::GeneralFailure,
            Kind::Denied | Kind::LogIn | Kind::Loop => Reply::NotAllowed,
            Kind::NoName => Reply::HostUnreachable,
            Kind::Refused => Reply::ConnectionRefused,
            Kind::Unreachable => Reply::NetworkUnreachable,
            Kind::TimedOut => Reply::TtlExpired,
        }
    }

    /// Whether it was the client's or the configuration's doing, and not a failure to get through.
    pub(crate) const fn is_refusal(&self) -> bool {
        matches!(self.kind, Kind::Malformed(_) | Kind::Denied | Kind::LogIn | Kind::Loop)
    }
}

impl From<Denied> for Failure {
    fn from(denied: Denied) -> Self {
        Self::new(Kind::Denied, denied.to_string())
    }
}

impl From<BadMessage> for Failure {
    fn from(bad: BadMessage) -> Self {
        Self::new(Kind::Malformed(bad.status), bad.what)
    }
}
