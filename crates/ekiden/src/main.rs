//! The `ekiden` command; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    ekiden::run()
}
