//! `ekiden doctor`: what this machine allows, why it matters, and the command that allows more.
//!
//! Three steps, apart: look ([`Facts`]), judge ([`findings()`], a pure function), print. With a relay
//! named, a few handshakes to it are looked at as well; and if a daemon runs here, what it met on its
//! paths.

use super::client::{self, AskError};
use crate::print::warn;
use crate::setup::clock;
use crate::{cli, exit};

mod accounts;
mod apply;
mod certificate;
mod dns;
mod findings;
pub(crate) mod gateway;
mod link;
mod paths;
mod print;
mod proxy;
mod routes;
mod tunnel;

use apply::Change;
use findings::findings;
use proxy::ProxyReport;

use ekiden_admin::Doctor;
use ekiden_linux::host::facts::Facts;
use ekiden_linux::links::divert::DivertPlan;
use ekiden_proxy::Handle;
use ekiden_proxy::observe::status::{Measured, Status};
use ekiden_proxy::settings::Tls;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

/// What was asked for on the command line.
#[derive(Debug, Clone, Default)]
pub(crate) struct DoctorOptions {
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
    /// Why there is nothing that it says.
    pub unasked: Option<AskError>,
    /// The files that the configuration names, where none is ordered.
    pub tls: Tls,
    /// The gateway that the configuration asks for.
    pub gateway: Option<DivertPlan>,
    /// Where the configuration has clients ask for names.
    pub dns: Vec<SocketAddr>,
}

/// How much a finding matters.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
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
pub(crate) struct Finding {
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
pub(crate) struct Setting {
    /// Its dotted name, as `net.core.wmem_max`.
    pub name: String,
    /// The value.
    pub value: String,
}

/// Everything `ekiden doctor --json` says. Fields are only ever added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DoctorReport {
    /// Version of `ekiden`.
    pub version: String,
    /// Nothing of `warning` or `problem` was found, and the relay, if one was named, answered.
    pub fine: bool,
    /// What was found.
    pub findings: Vec<Finding>,
    /// What `--apply` changed, or could not.
    pub changes: Vec<Change>,
    /// The relay that was named.
    pub relay: Option<ProxyReport>,
    /// The tunnel that was named.
    pub tunnel: Option<Measured>,
    /// What was seen of this machine.
    pub facts: Facts,
}

/// `ekiden doctor`. Returns the exit code.
pub(crate) fn command(args: cli::Doctor) -> u8 {
    let fine = options(args).and_then(|options| Ok(run(options, &mut io::stdout().lock())?));
    match fine {
        Ok(true) => exit::FINE,
        Ok(false) => exit::NOT_FINE,
        Err(error) => {
            let broken = error.downcast_ref::<io::Error>().map(io::Error::kind);
            if broken == Some(io::ErrorKind::BrokenPipe) {
                return exit::FINE;
            }
            warn(&format!("ekiden doctor: {error}\n"));
            exit::NOT_FINE
        }
    }
}

/// The options, with what a running daemon says. An address has a port, a peer does not.
fn options(args: cli::Doctor) -> Result<DoctorOptions, Box<dyn std::error::Error>> {
    let cli::Doctor { with, apply, persist, socket, json } = args;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (running, unasked) = match runtime.block_on(client::status(socket.as_deref())) {
        Ok((status, _)) => (Some(status), None),
        Err(error) if socket.is_some() => return Err(error.into()),
        Err(error) => (None, Some(error)),
    };
    let (with, peer) = match with {
        Some(name) if !name.contains(':') => (None, Some(name)),
        with => (with, None),
    };
    let mut tunnel = None;
    if let Some(peer) = peer {
        if io::stderr().is_terminal() {
            warn(&format!("measuring the tunnel to peer \"{peer}\", about 10 s …\n"));
        }
        let measured = runtime.block_on(client::measure(socket.as_deref(), &peer))?;
        tunnel =
            Some(measured.ok_or("the daemon cannot measure tunnels; is its version the same?")?);
    }
    // one that cannot be used is `check`'s
    let settings = super::usable(None).map(|loaded| loaded.reading.settings);
    let gateway = settings.as_ref().ok().and_then(super::kernel::gateway::plan_to_judge);
    let dns = settings.as_ref().map_or_else(|_| Vec::new(), |s| s.dns.listen.clone());
    let tls = settings.ok().filter(|settings| !settings.acme.is_on()).map(|settings| settings.tls);
    let tls = tls.unwrap_or_default();
    Ok(DoctorOptions { json, apply, persist, with, tunnel, running, unasked, tls, gateway, dns })
}

/// The finding about a daemon that says nothing.
const DAEMON: &str = "daemon";

/// What a daemon that says nothing means. Where systemd does not run the service, none need run.
fn unasked(error: &AskError) -> Option<Finding> {
    let why = "its certificates, accounts, gateway, names and paths are not looked at";
    let told = |severity, what| findings::finding(DAEMON, severity, what, why);
    Some(match error {
        AskError::NoDaemon(..) => return None,
        AskError::NoService(_) => told(Severity::Problem, "the service does not answer".to_owned())
            .run(client::SEE_SERVICE),
        AskError::Denied(path) => {
            let what = format!("the daemon was not asked: {} is another user's", path.display());
            told(Severity::Warning, what).run("sudo ekiden doctor")
        }
        AskError::Slow(..) => told(Severity::Problem, error.to_string()),
        AskError::Answer(..) => told(Severity::Warning, error.to_string()),
    })
}

/// Judges these facts and what a running daemon says; what matters most first.
fn look(options: &DoctorOptions, facts: &Facts) -> Vec<Finding> {
    let running = options.running.as_ref();
    let mut found: Vec<_> = options.unasked.as_ref().and_then(unasked).into_iter().collect();
    found.extend(findings(facts, running));
    if let Some(why) = clock::behind() {
        let means = "certificates, quotas and invitations depend on the time";
        found.insert(0, findings::finding("clock", Severity::Problem, why, means));
    }
    certificate::in_files(&options.tls, SystemTime::now(), &mut found);
    if let Some(plan) = &options.gateway {
        gateway::gateway(plan, running, &mut found);
    }
    dns::dns(&options.dns, running, &mut found);
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found
}

/// Looks, judges, applies if asked, prints to `out`. `Ok(true)`: all fine (exit code 0), `Ok(false)`:
/// something is not (exit code 1).
/// Errors: when `out` cannot be written.
pub(crate) fn run(options: DoctorOptions, out: &mut dyn Write) -> io::Result<bool> {
    let mut facts = Facts::gather();
    let mut found = look(&options, &facts);
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
        found = look(&options, &facts);
    }
    let relay = options.with.as_deref().map(proxy::look);
    let fine = found.iter().all(|finding| finding.severity <= Severity::Note)
        && relay.as_ref().is_none_or(ProxyReport::fine)
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
            columns: terminal.then(|| crate::print::columns().unwrap_or(100)),
            sudo: !rustix::process::geteuid().is_root(),
        };
        print::text(&report, style, out)?;
    }
    Ok(fine)
}

/// The doctor of a running daemon, for the operator's page: without a relay to measure, and without changes.
pub(crate) fn of_daemon(handle: &Handle) -> Doctor {
    let handle = handle.clone();
    Doctor(Arc::new(move |status| {
        let settings = handle.settings();
        let tls = if settings.acme.is_on() { Tls::default() } else { settings.tls.clone() };
        let options = DoctorOptions {
            running: Some(status.clone()),
            tls,
            gateway: super::kernel::gateway::plan_to_judge(&settings),
            dns: settings.dns.listen.clone(),
            ..DoctorOptions::default()
        };
        serde_json::json!({ "findings": look(&options, &Facts::gather()) })
    }))
}

#[cfg(test)]
mod tests;
