//! Ekiden's own congestion controls: the daemon loads them while it runs, if a leg asks for them. Root can pin them with
//! `ekiden bpf load` for a daemon without privileges.

use ekiden_linux::bpf::{Control, Group, Loaded, PINS, Terms};
use ekiden_proxy::settings::{Leg, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use tracing::{info, warn};

/// The loaded controls, and those that cannot be loaded.
#[derive(Debug)]
pub(crate) struct Programs {
    pins: PathBuf,
    loaded: BTreeMap<Control, Loaded>,
    /// Reported as missing already.
    reported: BTreeSet<Control>,
}

impl Programs {
    pub(crate) fn new() -> Self {
        Self { pins: PINS.into(), loaded: BTreeMap::new(), reported: BTreeSet::new() }
    }

    /// Loads what legs ask for, and puts the kernel's names for it in place of the configuration's. What cannot be
    /// loaded, or has no place for another leg's rate, stays as it is: the kernel refuses it, each connection says so,
    /// and the next of the list is used. Other rates of legs that have one hold from [`agree`] on.
    /// Returns what is missing, in words.
    pub(crate) fn settle(&mut self, settings: &mut Settings) -> Vec<String> {
        let mut lacks = Vec::new();
        for control in Control::ALL {
            if settings.legs.values().any(|leg| asks(leg, control)) {
                lacks.extend(self.provide(control).err());
            }
        }
        for (name, leg) in &mut settings.legs {
            for loaded in self.loaded.values() {
                if !asks(leg, loaded.control()) {
                    continue;
                }
                if loaded.control() == Control::Hold {
                    let group = group(loaded, name, leg);
                    // with no part of a rate its sockets would send ten packets a round trip
                    let Some(group) = group.map_err(|why| lacks.push(why)).ok().flatten() else {
                        leg.socket.rate = None;
                        continue;
                    };
                    leg.socket.rate = Some(group);
                }
                let words = leg.socket.congestion.iter_mut();
                for word in words.filter(|word| *word == loaded.control().word()) {
                    loaded.name().clone_into(word);
                }
            }
        }
        lacks
    }

    fn provide(&mut self, control: Control) -> Result<(), String> {
        match self.loaded.get(&control).map(Loaded::is_current) {
            Some(true) => return Ok(()),
            Some(false) => {
                info!("congestion control {control}: the pinned program is gone");
                self.loaded.remove(&control);
            }
            None => {}
        }
        let pinned = Loaded::open(control, &self.pins);
        let loaded = match pinned {
            Ok(Some(loaded)) => Ok(loaded),
            Ok(None) => Loaded::load(control),
            // with privileges, load it instead
            Err(closed) => Loaded::load(control).map_err(|_| closed),
        };
        match loaded {
            Ok(loaded) => {
                let how =
                    if loaded.is_pinned() { "pinned" } else { "loaded until this process ends" };
                info!("congestion control {control}: {} in the kernel, {how}", loaded.name());
                self.reported.remove(&control);
                self.loaded.insert(control, loaded);
                Ok(())
            }
            Err(missing) => {
                let why = format!(
                    "no congestion control {control}: {missing}; legs use the next of their list"
                );
                if self.reported.insert(control) {
                    warn!("{why}");
                }
                Err(why)
            }
        }
    }
}

fn asks(leg: &Leg, control: Control) -> bool {
    leg.socket.congestion.iter().any(|word| word == control.word())
}

fn group(loaded: &Loaded, name: &str, leg: &Leg) -> Result<Option<Group>, String> {
    let Some(rate) = leg.rate else { return Ok(None) };
    let terms = Terms { line: leg.line, dedicated: leg.line.is_some(), ..Terms::new(rate) };
    loaded.group(name, terms).map(Some).map_err(|error| {
        let why =
            format!("leg {name} cannot hold a rate: {error}; it uses the next control of its list");
        warn!("{why}");
        why
    })
}

/// Has the rates of `settings` hold, for live connections, too.
pub(crate) fn agree(settings: &Settings) {
    for (name, leg) in &settings.legs {
        if let Some(Err(error)) = leg.socket.rate.as_ref().map(Group::agree) {
            warn!("leg {name} keeps its old rate: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

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
    fn a_leg_without_a_rate_slot_uses_the_next_of_its_list() {
        let Some(mut programs) = loaded(Control::Hold) else { return };
        let terms = Terms::new("1 Mbit/s".parse().unwrap());
        let hold = &programs.loaded[&Control::Hold];
        let name = hold.name().to_owned();
        let all: Vec<_> = (0..64).map(|nth| hold.group(&nth.to_string(), terms)).collect();
        let mut settings = holding("4 Mbit/s");
        let lacks = programs.settle(&mut settings);
        assert!(lacks[0].starts_with("leg client cannot hold a rate: "), "{lacks:?}");
        let socket = &settings.legs["client"].socket;
        assert_eq!(
            (&socket.congestion[..], &socket.rate),
            (&["hold", "reno"].map(String::from)[..], &None)
        );
        drop(all);
        assert!(programs.settle(&mut settings).is_empty());
        let socket = &settings.legs["client"].socket;
        assert_eq!(socket.congestion, [name, "reno".to_owned()]);
        assert!(socket.rate.is_some());
    }

    #[test]
    fn other_legs_are_unchanged() {
        let mut settings = Settings::default();
        let before = settings.clone();
        let mut programs = Programs::new();
        assert!(programs.settle(&mut settings).is_empty());
        assert_eq!(settings.legs, before.legs);
        assert!(programs.loaded.is_empty() && programs.reported.is_empty());
    }
}
