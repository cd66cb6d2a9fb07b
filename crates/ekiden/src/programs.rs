//! Congestion controls that Ekiden brings along: loaded where a leg asks for them, and for as long as the daemon
//! runs; or once by root, with `ekiden bpf load`, for a daemon that may not.

use crate::cli::BpfCommand;
use crate::exit;
use crate::print::{out, warn as print};
use ekiden_linux::bpf::{self, Control, Loaded, Missing, PINS, Terms};
use ekiden_proxy::settings::{Leg, Settings};
use rustix::process::geteuid;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use tracing::{info, warn};

/// What is loaded, and what cannot be.
#[derive(Debug)]
pub(crate) struct Programs {
    pins: PathBuf,
    loaded: BTreeMap<Control, Loaded>,
    /// Told already that these are not there.
    told: BTreeSet<Control>,
}

impl Programs {
    pub(crate) fn new() -> Self {
        Self { pins: PINS.into(), loaded: BTreeMap::new(), told: BTreeSet::new() }
    }

    /// Loads what legs ask for, and puts the kernel's names for it in place of the configuration's. What cannot be
    /// loaded stays as it is: the kernel refuses it, each connection says so, and the next of the list is used.
    pub(crate) fn settle(&mut self, settings: &mut Settings) {
        for control in Control::ALL {
            if settings.legs.values().any(|leg| asks(leg, control)) {
                self.provide(control);
            }
        }
        for (name, leg) in &mut settings.legs {
            for loaded in self.loaded.values() {
                let words = leg.socket.congestion.iter_mut();
                for word in words.filter(|word| *word == loaded.control().word()) {
                    loaded.name().clone_into(word);
                    leg.socket.rate = match leg.rate.filter(|_| loaded.control() == Control::Hold) {
                        Some(rate) => group(
                            loaded,
                            name,
                            Terms {
                                line: leg.line,
                                dedicated: leg.line.is_some(),
                                ..Terms::new(rate)
                            },
                        ),
                        None => leg.socket.rate.take(),
                    };
                }
            }
        }
    }

    fn provide(&mut self, control: Control) {
        match self.loaded.get(&control).map(Loaded::is_current) {
            Some(true) => return,
            Some(false) => {
                info!("congestion control {control}: what was pinned is gone");
                self.loaded.remove(&control);
            }
            None => {}
        }
        let pinned = Loaded::open(control, &self.pins);
        let loaded = match pinned {
            Ok(Some(loaded)) => Ok(loaded),
            Ok(None) => Loaded::load(control),
            // whoever may load needs nobody's leave
            Err(closed) => Loaded::load(control).map_err(|_| closed),
        };
        match loaded {
            Ok(loaded) => {
                let how =
                    if loaded.is_pinned() { "pinned" } else { "loaded until this process ends" };
                info!("congestion control {control}: {} in the kernel, {how}", loaded.name());
                self.told.remove(&control);
                self.loaded.insert(control, loaded);
            }
            Err(missing) if self.told.insert(control) => warn!(
                "no congestion control {control}: {missing}; legs that ask for it use the next of their list"
            ),
            Err(_) => {}
        }
    }
}

fn asks(leg: &Leg, control: Control) -> bool {
    leg.socket.congestion.iter().any(|word| word == control.word())
}

fn group(loaded: &Loaded, leg: &str, terms: Terms) -> Option<bpf::Group> {
    let group = loaded.group(leg, terms);
    if let Err(error) = &group {
        warn!("leg {leg} holds no rate: {error}");
    }
    group.ok()
}

/// `ekiden bpf …`. Returns the exit code.
#[must_use]
pub(crate) fn run(command: &BpfCommand) -> u8 {
    let done = match command {
        BpfCommand::Load { user } => load(user.as_deref()),
        BpfCommand::Unload => unload(),
    };
    done.unwrap_or_else(|error| {
        print(&format!("ekiden bpf: {error}\n"));
        exit::NOT_FINE
    })
}

fn load(user: Option<&str>) -> Result<u8, Box<dyn std::error::Error>> {
    let pins = Path::new(PINS);
    let owner = user.map(account).transpose()?;
    let mut code = exit::FINE;
    for control in Control::ALL {
        let (name, before) = bpf::pin(control, pins, owner).map_err(|missing| match missing {
            Missing::Privilege => "loading takes root: sudo ekiden bpf load".to_owned(),
            other => other.to_string(),
        })?;
        let how = if before { "is there already" } else { "loaded and pinned" };
        code = out(&format!("{control}: {name} {how}, below {PINS}\n"));
    }
    Ok(code)
}

fn unload() -> Result<u8, Box<dyn std::error::Error>> {
    if !geteuid().is_root() {
        return Err("removing takes root: sudo ekiden bpf unload".into());
    }
    let gone = bpf::unpin(Path::new(PINS)).map_err(|error| format!("{PINS}: {error}"))?;
    if gone.is_empty() {
        return Ok(out("nothing was loaded by `ekiden bpf load`\n"));
    }
    let words: Vec<&str> = gone.iter().map(|control| control.word()).collect();
    Ok(out(&format!(
        "{} removed; connections that use it keep it until they end\n",
        words.join(", ")
    )))
}

/// Number and group of a user, by name or number. Asked of the system and not of a file: a service's user may be
/// one that systemd made up.
fn account(user: &str) -> Result<(u32, u32), String> {
    let asked = Command::new("getent").args(["passwd", "--", user]).output();
    let accounts = asked.map_err(|error| format!("getent, which knows users: {error}"))?.stdout;
    find(&String::from_utf8_lossy(&accounts), user)
        .ok_or_else(|| format!("there is no user {user}"))
}

fn find(accounts: &str, user: &str) -> Option<(u32, u32)> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number, group) = (fields.next()?, fields.nth(1)?, fields.next()?);
        (name == user || number == user).then_some(())?;
        Some((number.parse().ok()?, group.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_and_by_number() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\nekiden:x:990:991::/nowhere:/bin/false\n";
        assert_eq!(find(accounts, "ekiden"), Some((990, 991)));
        assert_eq!(find(accounts, "990"), Some((990, 991)));
        assert_eq!((find(accounts, "x"), find(accounts, "eki")), (None, None));
    }

    #[test]
    fn legs_that_ask_for_nothing_of_ours_are_left_alone() {
        let mut settings = Settings::default();
        let before = settings.clone();
        let mut programs = Programs::new();
        programs.settle(&mut settings);
        assert_eq!(settings.legs, before.legs);
        assert!(programs.loaded.is_empty() && programs.told.is_empty());
    }
}
