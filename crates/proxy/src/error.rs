//! Why a request failed: whose side it was on, and the answer in each client protocol.

use crate::wire::http::BadMessage;
use crate::wire::http::reply::Refusal;
use crate::wire::socks::Reply;
use ekiden_linux::host::sync::locked;
use ekiden_model::units::Span;
use std::io;
use std::sync::Mutex;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The client sent something malformed; the HTTP status tells which error.
    Malformed(u16),
    /// The client, its account or its limits.
    Denied,
    /// Where it wants to go.
    Prohibited,
    /// The client must log in, or its log-in failed.
    LogIn,
    /// Its log-in was not looked at: too many wrong ones came before.
    LogInLater,
    Loop,
    NoName,
    /// No name server answered in time.
    NameTimedOut,
    Refused,
    Unreachable,
    /// There is no tunnel to the peer that the route leads through.
    NoTunnel,
    TimedOut,
    /// An upstream proxy answered that it cannot or will not connect.
    UpstreamRefused,
    /// An upstream proxy rejects the credentials configured for it.
    NotAdmitted,
    /// The destination's answer is not HTTP.
    BadAnswer,
    /// The destination or an upstream closed the connection before it answered.
    Closed,
    Exhausted,
    /// The client's connection broke before there was an answer.
    ClientGone,
}

impl FailureKind {
    /// One word for programs.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::Denied => "denied",
            Self::Prohibited => "prohibited",
            Self::LogIn | Self::LogInLater => "log_in",
            Self::Loop => "loop",
            Self::NoName => "no_name",
            Self::NameTimedOut => "name_timeout",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::NoTunnel => "no_tunnel",
            Self::TimedOut => "timeout",
            Self::UpstreamRefused => "upstream_refused",
            Self::NotAdmitted => "not_admitted",
            Self::BadAnswer => "bad_answer",
            Self::Closed => "closed",
            Self::Exhausted => "exhausted",
            Self::ClientGone => "client_gone",
        }
    }
}

/// A failure, with its text for the client and the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) text: String,
    /// When the client may try again, where that is known.
    pub(crate) retry_after: Option<Span>,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), retry_after: None }
    }

    /// A request that this relay has passed on before.
    pub(crate) fn came_around() -> Self {
        let text =
            "this request has passed this relay before; a chain of proxies leads back to itself";
        Self::new(FailureKind::Loop, text)
    }

    /// Nobody waits for the answer any more.
    pub(crate) fn client_gone(error: &io::Error) -> Self {
        Self::new(FailureKind::ClientGone, format!("the client's connection broke: {error}"))
    }

    /// A budget of memory has nothing left, for now.
    pub(crate) fn without_memory(text: impl Into<String>) -> Self {
        Self::new(FailureKind::Exhausted, text).retry_after(Span::from_secs(1))
    }

    pub(crate) fn retry_after(self, span: Span) -> Self {
        Self { retry_after: Some(span), ..self }
    }

    /// The answer to an HTTP client.
    pub(crate) fn response(&self, name: &str, head_only: bool) -> Vec<u8> {
        let mut refusal = Refusal::new(self.status(), &self.text);
        match self.kind {
            FailureKind::Prohibited => refusal.error = "destination_ip_prohibited",
            // RFC 9209 §2.3.4: the next hop is known to be down
            FailureKind::NoTunnel => refusal.error = "destination_unavailable",
            FailureKind::NoName => refusal.error = "dns_error",
            FailureKind::NameTimedOut => refusal.error = "dns_timeout",
            _ => {}
        }
        refusal.retry_after = self.retry_after;
        refusal.response(name, head_only)
    }

    /// A system call that failed while doing `what`.
    pub(crate) fn io(what: &str, error: &io::Error) -> Self {
        use io::ErrorKind as E;
        let kind = match error.kind() {
            E::ConnectionRefused => FailureKind::Refused,
            E::TimedOut => FailureKind::TimedOut,
            E::ConnectionReset | E::BrokenPipe | E::UnexpectedEof | E::ConnectionAborted => {
                FailureKind::Closed
            }
            E::AddrNotAvailable | E::OutOfMemory => FailureKind::Exhausted,
            _ if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                FailureKind::Exhausted
            }
            _ => FailureKind::Unreachable,
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

    pub(crate) const fn status(&self) -> u16 {
        match self.kind {
            FailureKind::Malformed(status) => status,
            FailureKind::Denied | FailureKind::Prohibited => 403,
            FailureKind::LogIn => 407,
            FailureKind::LogInLater => 429,
            FailureKind::Loop => 508,
            FailureKind::NoName
            | FailureKind::Refused
            | FailureKind::Unreachable
            | FailureKind::UpstreamRefused
            | FailureKind::NotAdmitted
            | FailureKind::BadAnswer
            | FailureKind::Closed
            | FailureKind::ClientGone => 502,
            FailureKind::TimedOut | FailureKind::NameTimedOut => 504,
            FailureKind::Exhausted | FailureKind::NoTunnel => 503,
        }
    }

    pub(crate) const fn socks(&self) -> Reply {
        match self.kind {
            FailureKind::Malformed(_)
            | FailureKind::BadAnswer
            | FailureKind::Closed
            | FailureKind::ClientGone
            | FailureKind::Exhausted
            | FailureKind::UpstreamRefused
            | FailureKind::NotAdmitted => Reply::GeneralFailure,
            FailureKind::Denied
            | FailureKind::Prohibited
            | FailureKind::LogIn
            | FailureKind::LogInLater
            | FailureKind::Loop => Reply::NotAllowed,
            FailureKind::NoName | FailureKind::NameTimedOut => Reply::HostUnreachable,
            FailureKind::Refused => Reply::ConnectionRefused,
            FailureKind::Unreachable | FailureKind::NoTunnel => Reply::NetworkUnreachable,
            FailureKind::TimedOut => Reply::TtlExpired,
        }
    }

    /// Whether the client or the configuration caused it, and not the network.
    pub(crate) const fn is_refusal(&self) -> bool {
        matches!(
            self.kind,
            FailureKind::Malformed(_)
                | FailureKind::Denied
                | FailureKind::Prohibited
                | FailureKind::LogIn
                | FailureKind::LogInLater
                | FailureKind::Loop
        )
    }
}

impl From<BadMessage> for Failure {
    fn from(bad: BadMessage) -> Self {
        let failure = Self::new(FailureKind::Malformed(bad.status), bad.what);
        match bad.status {
            // for want of memory
            503 => failure.retry_after(Span::from_secs(1)),
            _ => failure,
        }
    }
}

/// A failure that is known only later: a peer's report on a flow that was used before the peer answered.
#[derive(Debug, Default)]
pub(crate) struct LateFailure(Mutex<Option<(Failure, bool)>>);

impl LateFailure {
    /// `refused`: the peer did not reach the destination. Otherwise the flow broke later.
    pub(crate) fn set(&self, failure: Failure, refused: bool) {
        *locked(&self.0) = Some((failure, refused));
    }

    /// Why the peer refused the flow, if it did.
    pub(crate) fn refusal(&self) -> Option<Failure> {
        locked(&self.0).as_ref().filter(|(_, refused)| *refused).map(|(failure, _)| failure.clone())
    }

    /// Why the flow broke, where the peer reported it.
    pub(crate) fn failure(&self) -> Option<Failure> {
        locked(&self.0).as_ref().map(|(failure, _)| failure.clone())
    }
}
