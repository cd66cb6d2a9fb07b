//! A stand-in until `ekiden doctor` is here.

use crate::cli::Doctor;

/// Says what this machine allows. Returns the exit code.
#[must_use]
pub fn run(_args: &Doctor) -> u8 {
    eprintln!("ekiden doctor: not in this build yet");
    crate::exit::NOT_FINE
}
