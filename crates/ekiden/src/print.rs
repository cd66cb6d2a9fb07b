//! Writing to standard output and standard error without falling over a reader that went away.

use crate::exit;
use std::io::{ErrorKind, Write as _};

/// Writes to standard output; a closed pipe (`| head`) is no error. Returns the exit code.
pub(crate) fn out(text: &str) -> u8 {
    let mut to = std::io::stdout().lock();
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        Ok(()) => exit::FINE,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => exit::FINE,
        Err(error) => {
            warn(&format!("standard output cannot be written: {error}\n"));
            exit::NOT_FINE
        }
    }
}

/// Writes to standard error, as far as somebody listens there.
pub(crate) fn warn(text: &str) {
    // nobody is left to be told of a failure
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
