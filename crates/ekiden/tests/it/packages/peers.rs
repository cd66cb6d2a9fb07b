//! What `scripts/peers.sh` leaves of the daemons that come with the packages it installs.

use super::{root, text};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

/// Stand-ins for what the script asks of the machine: nothing is installed, and a package enables a unit. Then the script
/// gets a signal.
const PROGRAMS: [(&str, &str); 5] = [
    ("id", "echo 1000"),
    ("dpkg-query", "exit 1"),
    // whatever writes to the machine is left out
    ("sudo", "case $1 in env | apt-get | systemctl) exec \"$@\" ;; tee) cat >/dev/null ;; esac"),
    (
        "apt-get",
        "echo \"APT $*\"; [ \"$1\" != update ] || exit 0\n\
         touch \"$(dirname \"$0\")/installed\"; kill -\"$SIGNAL\" $PPID",
    ),
    (
        "systemctl",
        "if [ \"$1\" != list-unit-files ]; then echo \"SYSTEMCTL $*\"; exit; fi\n\
         echo 'ssh.service enabled enabled'\n\
         [ ! -e \"$(dirname \"$0\")/installed\" ] || echo 'nginx.service enabled enabled'",
    ),
];

/// `peers.sh --demo` in a mount namespace of its own, on a machine that systemd runs or not, and the code that it ends
/// with; `None`, said aloud, without the right to that. `signal`: "0" is none.
fn demo(has_systemd: bool, signal: &str) -> Option<(String, Option<i32>)> {
    let folder = tempfile::tempdir().unwrap();
    for (name, does) in PROGRAMS {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{does}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let made = if has_systemd { "mkdir -p /run/systemd/system" } else { ":" };
    let machine = format!(
        "mount -t tmpfs tmpfs /run && {made} && echo READY && PATH=\"$1:$PATH\" && exec env --default-signal sh \"$0\" --demo"
    );
    let ran = Command::new("unshare")
        .args(["--mount", "sh", "-c", &machine])
        .args([root().join("scripts/peers.sh"), folder.path().to_owned()])
        .env("SIGNAL", signal)
        .output()
        .unwrap();
    let said = text(&ran);
    if !said.contains("READY") {
        assert!(std::env::var_os("CI").is_none(), "{said}");
        println!("SKIPPED: a mount namespace takes root: {said}");
        return None;
    }
    Some((said, ran.status.code()))
}

#[test]
fn daemons_that_come_with_packages_do_not_start_with_the_machine() {
    let Some((said, code)) = demo(true, "0") else { return };
    assert_eq!(code, Some(0), "{said}");
    let asked: Vec<_> = said.lines().filter(|line| line.starts_with("SYSTEMCTL")).collect();
    // the one that was there before stays
    assert_eq!(asked, ["SYSTEMCTL disable --quiet --now nginx.service"], "{said}");
    assert!(said.contains("peers: systemctl disable --now nginx.service"), "{said}");
}

#[test]
fn an_installation_that_is_interrupted_is_tidied_up() {
    for (signal, ends_with) in [("INT", 130), ("TERM", 143), ("HUP", 143)] {
        let Some((said, code)) = demo(true, signal) else { return };
        assert_eq!(code, Some(ends_with), "{said}");
        assert!(said.contains("SYSTEMCTL disable --quiet --now nginx.service"), "{said}");
    }
}

#[test]
fn the_demo_installs_two_programs_and_asks_no_systemd_that_is_not_there() {
    let Some((said, code)) = demo(false, "0") else { return };
    assert_eq!(code, Some(0), "{said}");
    let install = "APT install -qy --no-install-recommends curl nginx";
    assert!(said.lines().any(|line| line == install), "{said}");
    assert!(!said.contains("SYSTEMCTL"), "{said}");
}
