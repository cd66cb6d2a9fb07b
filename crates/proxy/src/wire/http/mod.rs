//! HTTP/1.1 messages (RFC 9110, RFC 9112): strict heads, unambiguous bodies.

pub mod body;
pub mod capsule;
pub mod chunked;
pub mod fields;
pub mod form;
pub mod h2;
pub mod head;
pub mod pac;
pub mod reply;
pub mod target;
pub mod udp_path;

/// Why a message was refused; the text goes to its sender.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct BadMessage {
    /// The status for the refusal of a request.
    pub status: u16,
    /// What is wrong.
    pub what: &'static str,
}

impl BadMessage {
    /// 400 Bad Request.
    pub const fn bad(what: &'static str) -> Self {
        Self { status: 400, what }
    }
}
