//! HTTP/1.1 as a proxy needs it (RFC 9110, RFC 9112): heads read strictly, bodies framed without
//! doubt, everything else passed on as it came.
//!
//! The tokens of a head are read by `httparse`; what may not be read two ways is decided here. Why
//! not a whole HTTP library: `docs/decisions/0002-http.md`.

pub mod body;
mod cached;
pub mod chunked;
pub(crate) mod exchange;
pub mod fields;
pub(crate) mod forward;
pub mod head;
pub(crate) mod origin;
pub mod reply;
mod rewrite;
pub mod target;
mod transfer;

/// Why a message was refused. The text goes to whoever sent it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct BadMessage {
    /// The status to refuse a request with.
    pub status: u16,
    /// What is wrong, in words.
    pub what: &'static str,
}

impl BadMessage {
    /// 400 Bad Request.
    #[must_use]
    pub const fn bad(what: &'static str) -> Self {
        Self { status: 400, what }
    }
}
