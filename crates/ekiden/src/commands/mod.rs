//! The commands: each asks a daemon, changes a file or measures, prints, and returns an exit code.

pub(crate) mod account;
pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod init;
pub(crate) mod kernel;
#[cfg(feature = "lab")]
pub(crate) mod lab;
pub(crate) mod machine;
pub(crate) mod man;
pub(crate) mod management;
pub(crate) mod peer;
pub(crate) mod status;
#[cfg(feature = "tui")]
pub(crate) mod top;

use crate::daemon::start::admin_config;
use crate::exit;
use crate::print::warn;
use crate::setup::place::check_service;
use ekiden_admin::ChangeByCommand;
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

/// As [`usable`], for a relay whose state this user may change.
fn own(file: Option<&Path>) -> Result<Loaded, String> {
    check_service(file)?;
    usable(file)
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

/// Puts a change by a command into the audit log, in the state folder of `[accounts]`, where the daemon
/// puts those by the API. The change stands if that fails; a warning says so.
fn record_change<T, E: Display>(
    config: Option<&Path>,
    (command, object): (&str, &str),
    result: &Result<T, E>,
    what: &str,
) {
    // where the configuration cannot be used nothing has changed
    let Ok(loaded) = own(config) else { return };
    let Ok(folder) = admin_config(&loaded).folder else { return };
    let user = rustix::process::getuid().as_raw();
    let user = match std::env::var("SUDO_USER") {
        Ok(name) => format!("uid {user}, sudo by {name}"),
        Err(_) => format!("uid {user}"),
    };
    let why = result.as_ref().err().map(ToString::to_string);
    let result = why.as_deref().map_or(Ok(what), Err);
    let change = ChangeByCommand { user: &user, command, object, result };
    if let Err(error) = ekiden_admin::record_command(&folder, &change) {
        let folder = folder.display();
        warn(&format!("{command}: not in the audit log in {folder}: {error}\n"));
    }
}

#[cfg(test)]
pub(crate) fn sample() -> ekiden_proxy::observe::status::Status {
    serde_json::from_str(include_str!("../../tests/status.json")).unwrap()
}
