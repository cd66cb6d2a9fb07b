//! HTTP/1.1 as a proxy needs it (RFC 9110, RFC 9112): strict heads, unambiguous bodies, the rest
//! forwarded unchanged.
//!
//! `httparse` reads tokens; this code rejects ambiguous messages. `docs/book/src/design/decisions/0002-http.md`
//! says why it is no whole HTTP library.

mod cached;
mod connect_udp;
pub(crate) mod exchange;
pub(crate) mod forward;
mod interim;
mod outcome;
mod own;
mod pac;
mod page;
pub(crate) mod plan;
mod read_head;
mod response;
mod rewrite;
mod transfer;
