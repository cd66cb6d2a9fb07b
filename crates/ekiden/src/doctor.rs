//! `ekiden doctor`: what this machine allows, why it matters, and the command that allows more.
//!
//! Three steps, apart: look ([`Facts`]), judge ([`findings()`], a pure function), print. With a relay
//! named, a few handshakes to it are looked at as well; and if a daemon runs here, what it met on its
//! paths.

mod apply;
mod findings;
mod link;
mod paths;
mod print;
mod relay;
mod routes;
mod tunnel;

pub use apply::Change;
pub use findings::findings;
pub use relay::RelayReport;

use ekiden_linux::facts::Facts;
use ekiden_proxy::status::{Measured, Status};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, IsTerminal, Write};

/// What was asked for on the command line.
#[derive(Debug, Clone, Default)]
pub struct DoctorOptions {
    /// One JSON document instead of text.
    pub json: bool,
    /// Change the settings that findings name.
    pub apply: bool,
    /// Keep what was changed over a restart of the machine.
    pub persist: bool,
    /// A relay to look at, `host:port`.
    pub with: Option<String>,
    /// What measuring a tunnel showed.
    pub tunnel: Option<Measured>,
    /// What a daemon that runs on this machine says of itself.
    pub running: Option<Status>,
}

/// How much a finding matters.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing; nothing need be done.
    Note,
    /// Costs speed on some links.
    Warning,
    /// Something will not work.
    Problem,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        })
    }
}

/// One thing found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// A name that stays, as `send-buffer-limit`.
    pub id: String,
    /// How much it matters.
    pub severity: Severity,
    /// What was found.
    pub what: String,
    /// What it means for a relay.
    pub why: String,
    /// The shell command that mends it, to be run as root; absent when there is nothing to mend, or no
    /// one command that does.
    pub mend: Option<String>,
    /// Settings that mend it, which `--apply` writes.
    pub settings: Vec<Setting>,
}

/// A setting of the kernel and the value it should have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// Its dotted name, as `net.core.wmem_max`.
    pub name: String,
    /// The value.
    pub value: String,
}

/// Everything `ekiden doctor --json` says. Fields are only ever added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorReport {
    /// Version of `ekiden`.
    pub version: String,
    /// Nothing of `warning` or `problem` was found, and the relay, if one was named, answered.
    pub fine: bool,
    /// What was found.
    pub findings: Vec<Finding>,
    /// What `--apply` changed, or could not.
    pub changes: Vec<Change>,
    /// The relay that was named.
    pub relay: Option<RelayReport>,
    /// The tunnel that was named.
    pub tunnel: Option<Measured>,
    /// What was seen of this machine.
    pub facts: Facts,
}

/// Looks, judges, applies if asked, prints to `out`. `Ok(true)`: all fine (exit code 0), `Ok(false)`:
/// something is not (exit code 1).
///
/// # Errors
/// When `out` cannot be written.
pub fn run(options: DoctorOptions, out: &mut dyn Write) -> io::Result<bool> {
    let mut facts = Facts::gather();
    let running = options.running.as_ref();
    let mut found = findings(&facts, running);
    let mut changes = Vec::new();
    if options.apply {
        changes = apply::apply(&found, facts.capabilities.net_admin);
        changes.extend(routes::apply(&found));
    }
    if options.persist && changes.iter().any(apply::is_setting) {
        changes.push(apply::persist(&changes));
    }
    if changes.iter().any(|change| change.refused.is_none()) {
        facts = Facts::gather();
        found = findings(&facts, running);
    }
    let relay = options.with.as_deref().map(relay::look);
    let fine = found.iter().all(|finding| finding.severity <= Severity::Note)
        && relay.as_ref().is_none_or(RelayReport::fine)
        && options.tunnel.as_ref().is_none_or(|tunnel| tunnel.error.is_none());
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let tunnel = options.tunnel;
    let report = DoctorReport { version, fine, findings: found, changes, relay, tunnel, facts };
    if options.json {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        let terminal = io::stdout().is_terminal();
        let style = print::Style {
            colour: terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            columns: terminal
                .then(|| crossterm::terminal::size().map_or(100, |(columns, _)| columns.into())),
        };
        print::text(&report, style, out)?;
    }
    Ok(fine)
}

#[cfg(test)]
#[path = "doctor/tests.rs"]
mod tests;
