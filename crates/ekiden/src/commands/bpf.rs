//! `ekiden bpf`: pins Ekiden's congestion controls in the kernel, as root, for a daemon without privileges.

use crate::cli::BpfCommand;
use crate::exit;
use crate::print::out;
use ekiden_linux::bpf::{self, Control, Missing, PINS};
use rustix::process::geteuid;
use std::path::Path;
use std::process::Command;

/// `ekiden bpf …`. Returns the exit code.
pub(crate) fn run(command: &BpfCommand) -> u8 {
    let done = match command {
        BpfCommand::Load { user } => load(user.as_deref()),
        BpfCommand::Unload => unload(),
    };
    super::finished("bpf", done)
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
}
