//! The commands: each asks a daemon, changes a file or measures, prints, and returns an exit code.

pub(crate) mod account;
pub(crate) mod bpf;
pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod explain;
#[cfg(feature = "lab")]
pub(crate) mod lab;
#[cfg(feature = "lab")]
pub(crate) mod link;
pub(crate) mod man;
pub(crate) mod peer;
pub(crate) mod status;
pub(crate) mod token;
#[cfg(feature = "tui")]
pub(crate) mod top;

use crate::exit;
use crate::print::warn;
use ekiden_config::{Loaded, Overrides};
use std::fmt::Display;
use std::path::Path;
use tokio::runtime::{Builder, Runtime};

/// The configuration, if it is usable; its problems otherwise.
fn usable(file: Option<&Path>) -> Result<Loaded, String> {
    let loaded = ekiden_config::load(file, &Overrides::default());
    if loaded.reading.is_usable() {
        Ok(loaded)
    } else {
        Err(ekiden_config::render_all(&loaded.reading.problems))
    }
}

/// Runs a command with a runtime. An error is printed with the command's name.
fn with_runtime<E: Display>(command: &str, run: impl FnOnce(&Runtime) -> Result<u8, E>) -> u8 {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            warn(&format!("ekiden {command}: {error}\n"));
            return exit::SYSTEM;
        }
    };
    finished(command, run(&runtime))
}

/// The exit code of a command. An error is printed with the command's name.
fn finished<E: Display>(command: &str, done: Result<u8, E>) -> u8 {
    done.unwrap_or_else(|error| {
        warn(&format!("ekiden {command}: {error}\n"));
        exit::NOT_FINE
    })
}

#[cfg(test)]
pub(crate) fn sample() -> ekiden_proxy::observe::status::Status {
    serde_json::from_str(include_str!("../../tests/status.json")).unwrap()
}
