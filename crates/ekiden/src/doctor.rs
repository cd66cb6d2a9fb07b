//! A stand-in until `ekiden doctor` is here.

use std::io::{self, Write};

/// What is asked of the doctor.
#[derive(Debug, Clone, Default)]
pub struct DoctorOptions {
    /// Print one JSON document.
    pub json: bool,
    /// Do what mends the findings.
    pub apply: bool,
    /// Measure to this relay too.
    pub with: Option<String>,
}

/// Says what this machine allows; whether all is fine.
///
/// # Errors
/// When `out` cannot be written.
pub fn run(_options: DoctorOptions, out: &mut dyn Write) -> io::Result<bool> {
    writeln!(out, "not in this build yet")?;
    Ok(false)
}
