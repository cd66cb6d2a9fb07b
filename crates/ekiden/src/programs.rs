//! Congestion controls that Ekiden brings along: loaded where a leg asks for them, and for as long as the daemon
//! runs; or once by root, with `ekiden bpf load`, for a daemon that may not.

use crate::cli::BpfCommand;
use crate::exit;
use crate::print::{out, warn as print};
use ekiden_linux::bpf::{self, Control, Group, Loaded, Missing, PINS, Terms};
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
    /// loaded, or has no place for another leg's rate, stays as it is: the kernel refuses it, each connection says so,
    /// and the next of the list is used. Other rates of legs that have one hold from [`agree`] on.
    pub(crate) fn settle(&mut self, settings: &mut Settings) {
        for control in Control::ALL {
            if settings.legs.values().any(|leg| asks(leg, control)) {
                self.provide(control);
            }
        }
        for (name, leg) in &mut settings.legs {
            for loaded in self.loaded.values() {
                if !asks(leg, loaded.control()) {
                    continue;
                }
                if loaded.control() == Control::Hold {
                    leg.socket.rate = group(loaded, name, leg);
                    // with no part of a rate its sockets would send ten packets a round trip
                    if leg.socket.rate.is_none() {
                        continue;
                    }
                }
                let words = leg.socket.congestion.iter_mut();
                for word in words.filter(|word| *word == loaded.control().word()) {
                    loaded.name().clone_into(word);
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

fn group(loaded: &Loaded, name: &str, leg: &Leg) -> Option<Group> {
    let rate = leg.rate?;
    let terms = Terms { line: leg.line, dedicated: leg.line.is_some(), ..Terms::new(rate) };
    let group = loaded.group(name, terms);
    if let Err(error) = &group {
        warn!("leg {name} holds no rate: {error}; it uses the next of its list");
    }
    group.ok()
}

/// Has the rates of `settings` hold, for live connections, too.
pub(crate) fn agree(settings: &Settings) {
    for (name, leg) in &settings.legs {
        if let Some(Err(error)) = leg.socket.rate.as_ref().map(Group::agree) {
            warn!("leg {name} keeps the rate that it had: {error}");
        }
    }
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
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_user_is_found_by_name_and_by_number() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\nekiden:x:990:991::/nowhere:/bin/false\n";
        assert_eq!(find(accounts, "ekiden"), Some((990, 991)));
        assert_eq!(find(accounts, "990"), Some((990, 991)));
        assert_eq!((find(accounts, "x"), find(accounts, "eki")), (None, None));
    }

    /// A leg that holds a rate, and what it has instead.
    fn holding(rate: &str) -> Settings {
        let mut settings = Settings::default();
        let mut leg = Leg { rate: rate.parse().ok(), ..Leg::default() };
        leg.socket.congestion = vec!["hold".into(), "reno".into()];
        settings.legs.insert("client".into(), leg);
        settings
    }

    fn loaded(control: Control) -> Option<Programs> {
        let loaded = Loaded::load(control).map_err(|missing| {
            assert!(std::env::var_os("CI").is_none(), "{missing}");
            println!("SKIPPED: {missing}");
        });
        let mut programs = Programs::new();
        programs.loaded.insert(control, loaded.ok()?);
        Some(programs)
    }

    #[test]
    fn a_leg_for_whose_rate_there_is_no_place_uses_the_next_of_its_list() {
        let Some(mut programs) = loaded(Control::Hold) else { return };
        let terms = Terms::new("1 Mbit/s".parse().unwrap());
        let hold = &programs.loaded[&Control::Hold];
        let name = hold.name().to_owned();
        let all: Vec<_> = (0..64).map(|nth| hold.group(&nth.to_string(), terms)).collect();
        let mut settings = holding("4 Mbit/s");
        programs.settle(&mut settings);
        let socket = &settings.legs["client"].socket;
        assert_eq!(
            (&socket.congestion[..], &socket.rate),
            (&["hold", "reno"].map(String::from)[..], &None)
        );
        drop(all);
        programs.settle(&mut settings);
        let socket = &settings.legs["client"].socket;
        assert_eq!(socket.congestion, [name, "reno".to_owned()]);
        assert!(socket.rate.is_some());
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
