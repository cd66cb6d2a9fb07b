//! `ekiden bpf`: pins Ekiden's congestion controls in the kernel, as root, for a daemon without privileges.

use crate::cli::BpfCommand;
use crate::exit;
use crate::print::out;
use ekiden_linux::bpf::{self, Control, Missing, PINS};
use rustix::process::geteuid;
use std::error::Error;
use std::path::Path;
use std::process::Command;

/// `ekiden bpf …`. Returns the exit code.
pub(crate) fn run(command: &BpfCommand) -> u8 {
    let done = match command {
        BpfCommand::Load { user, if_named, config } => {
            let controls =
                if *if_named { named(config.as_deref()) } else { Ok(Control::ALL.into()) };
            controls.and_then(|controls| load(user.as_deref(), &controls))
        }
        BpfCommand::Unload => unload(),
    };
    crate::commands::finished("bpf", done)
}

/// The controls that legs of the configuration name.
fn named(config: Option<&Path>) -> Result<Vec<Control>, Box<dyn Error>> {
    let loaded = crate::commands::usable(config)?;
    let legs = &loaded.reading.settings.legs;
    let names = |control: &Control| {
        legs.values().any(|leg| leg.socket.congestion.iter().any(|word| word == control.word()))
    };
    Ok(Control::ALL.into_iter().filter(names).collect())
}

fn load(user: Option<&str>, controls: &[Control]) -> Result<u8, Box<dyn Error>> {
    let owner = user.map(account).transpose()?;
    let mut code = exit::FINE;
    for line in pin(owner, controls)? {
        code = out(&line);
    }
    Ok(code)
}

/// Pins what the legs of a configuration name, for a service of this user and group, as its unit does before each start
/// and reload. Errors: in words.
pub(crate) fn pin_named(config: &Path, owner: (u32, u32)) -> Result<(), String> {
    let controls = named(Some(config)).map_err(|error| error.to_string())?;
    pin(Some(owner), &controls).map(drop)
}

/// Pins these. Returns a line for each.
fn pin(owner: Option<(u32, u32)>, controls: &[Control]) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    for &control in controls {
        let (name, before) =
            bpf::pin(control, Path::new(PINS), owner).map_err(|missing| match missing {
                Missing::Privilege => "loading takes root: sudo ekiden bpf load".to_owned(),
                other => format!("{control} is not loaded: {other}"),
            })?;
        let how = if before { "is there already" } else { "loaded and pinned" };
        lines.push(format!("{control}: {name} {how}, below {PINS}\n"));
    }
    Ok(lines)
}

fn unload() -> Result<u8, Box<dyn Error>> {
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
    fn only_controls_that_a_leg_names_are_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        for (text, controls) in [
            ("# the defaults\n", &[][..]),
            ("[leg.direct]\ncongestion = [\"bbr\", \"westwood\"]\n", &[Control::Westwood]),
            (
                "[leg.client]\ncongestion = [\"hold\"]\nrate = \"4 Mbit/s\"\n\
                 [leg.direct]\ncongestion = [\"westwood\"]\n",
                &Control::ALL,
            ),
        ] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(named(Some(&file)).unwrap(), controls, "{text}");
        }
        std::fs::write(&file, "nonsense = 1\n").unwrap();
        assert!(named(Some(&file)).unwrap_err().to_string().contains("nonsense"));
    }

    #[test]
    fn a_user_is_found_by_name_and_by_number() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\nekiden:x:990:991::/nowhere:/bin/false\n";
        assert_eq!(find(accounts, "ekiden"), Some((990, 991)));
        assert_eq!(find(accounts, "990"), Some((990, 991)));
        assert_eq!((find(accounts, "x"), find(accounts, "eki")), (None, None));
    }
}
