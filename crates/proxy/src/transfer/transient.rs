//! Errors that pass.

use std::io;

/// Whether to retry the call, now or when the stream is ready.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
