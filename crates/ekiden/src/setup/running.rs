//! A daemon that runs already: whether it takes over what was written, and how one is started.

use super::place::{self, Place};
use crate::commands::client::{self, AskError, Reloaded};
use crate::commands::kernel::bpf;
use crate::daemon::reload::NEEDS_RESTART;
use ekiden_config::{Overrides, Problem};
use ekiden_proxy::observe::status::Status;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::runtime::Runtime;

/// The daemon that answers on this user's control socket, or on the service's.
pub(crate) fn status(runtime: &Runtime) -> Option<Status> {
    runtime.block_on(client::status(None)).ok().map(|(status, _)| status)
}

/// What became of a running daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    /// In words.
    pub(crate) said: String,
    /// It keeps the old configuration, and a restart would not help.
    pub(crate) refused: bool,
}

impl Told {
    fn fine(said: impl Into<String>) -> Self {
        Self { said: said.into(), refused: false }
    }

    fn refused(said: impl Into<String>) -> Self {
        Self { said: said.into(), refused: true }
    }
}

/// Has a running daemon take a configuration over; `None` where none runs.
pub(crate) fn reload(runtime: &Runtime, place: &Place) -> Option<Told> {
    let restart = format!("restart it: {}", restart(place));
    // the service has no right to load them, and its reload by the socket does not do what the unit's does
    let unpinned = place.service.and_then(|owner| bpf::pin_named(&place.config, owner).err());
    let Reloaded { file, errors, warnings } = match runtime.block_on(client::reload(None)) {
        Ok(Some(reloaded)) => reloaded,
        Ok(None) => {
            return Some(Told::fine(format!(
                "the running daemon is of another version; {restart}"
            )));
        }
        Err(AskError::NoDaemon(..) | AskError::NoService(_)) => return None,
        Err(AskError::Denied(_)) => {
            let config = place.config.display();
            return Some(Told::fine(format!(
                "a daemon of another user runs; if it uses {config}, {restart}"
            )));
        }
        Err(error) => return Some(Told::refused(format!("{error}; {restart}"))),
    };
    let config = place.config.display();
    let same = file.as_deref().map(Path::new).is_some_and(|file| is_same(file, &place.config));
    if !same {
        let file = file.unwrap_or_else(|| "no configuration file".to_owned());
        let said = format!("the running daemon uses {file}; start one with {config}");
        return Some(Told::fine(said));
    }
    let asks = |line: &String| line.contains(NEEDS_RESTART);
    if !errors.is_empty() && errors.iter().all(asks) {
        return Some(Told::fine(format!("{}; {restart}", errors.join("; "))));
    }
    if !errors.is_empty() {
        return Some(Told::refused(format!(
            "the running daemon refuses {config} and keeps the old configuration: {}",
            errors.join("; ")
        )));
    }
    // those of the file were shown before it was written
    let loaded = ekiden_config::load(Some(&place.config), &Overrides::default());
    let shown: Vec<String> = loaded.reading.problems.iter().map(Problem::line).collect();
    let mut but: Vec<String> = warnings.into_iter().filter(|line| !shown.contains(line)).collect();
    let needs = but.iter().any(asks);
    but.extend(unpinned);
    if but.is_empty() {
        return Some(Told::fine("the running daemon took it over"));
    }
    let then = if needs { format!("; {restart}") } else { String::new() };
    Some(Told::fine(format!("the running daemon took it over, but {}{then}", but.join("; "))))
}

/// Restarts the service, and says that it did.
pub(crate) fn restart_service() -> Told {
    let ran = Command::new("systemctl").args(["restart", "ekiden"]).stdin(Stdio::null()).output();
    let why = match ran {
        Ok(output) if output.status.success() => return Told::fine("the service was restarted"),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Told::refused(format!(
        "`systemctl restart ekiden` failed: {}; journalctl -u ekiden -n 20 says more",
        crate::print::clean(&why)
    ))
}

/// Whether this is the configuration of a service that the service manager runs now.
pub(crate) fn is_service(runtime: &Runtime, place: &Place) -> bool {
    by_systemd(place) && status(runtime).is_some()
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(one) == real(other)
}

/// Waits until the tunnel to a peer is up, for 5 s at most.
pub(crate) fn tunnel_is_up(runtime: &Runtime, peer: &str) -> bool {
    (0..25).any(|_| {
        std::thread::sleep(Duration::from_millis(200));
        status(runtime).is_some_and(|status| {
            status.tunnels.iter().any(|tunnel| tunnel.peer == peer && tunnel.up)
        })
    })
}

fn by_systemd(place: &Place) -> bool {
    place.service.is_some() && place::by_systemd()
}

/// The command that starts a daemon with this configuration.
pub(crate) fn start(place: &Place, is_default: bool) -> String {
    if by_systemd(place) {
        "sudo systemctl enable --now ekiden".to_owned()
    } else if is_default {
        "ekiden serve".to_owned()
    } else {
        format!("ekiden serve --config {}", place.config.display())
    }
}

fn restart(place: &Place) -> &'static str {
    if by_systemd(place) { "sudo systemctl restart ekiden" } else { "stop it, then `ekiden serve`" }
}
