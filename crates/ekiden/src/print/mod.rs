//! Printing: standard output and standard error, tables, figures.

mod figures;
mod table;

pub(crate) use ekiden_config::printable as clean;
pub(crate) use figures::{count, percent, rate, rtt, seconds, size, traffic};
pub(crate) use table::{cut, dash, table, wrap};

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

/// Writes to standard error.
pub(crate) fn warn(text: &str) {
    // a failure here cannot be reported
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// The width of the terminal, in characters.
pub(crate) fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then(|| usize::from(size.ws_col))
}
