//! The unit, and how the program finds the folders that systemd made for it.

use super::{is_there, root, run};
use crate::daemons::home;
use ekiden_testkit::wait_for;
use std::fs;
use std::process::Command;

fn unit() -> String {
    fs::read_to_string(root().join("packaging/ekiden.service")).unwrap()
}

/// The unit with the tests' program in place of the installed one.
fn unit_here(folder: &std::path::Path) -> std::path::PathBuf {
    let path = folder.join("ekiden.service");
    let program = env!("CARGO_BIN_EXE_ekiden");
    fs::write(&path, unit().replace("/usr/bin/ekiden", program)).unwrap();
    path
}

#[test]
fn systemd_accepts_the_unit() {
    if !is_there("systemd-analyze") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = unit_here(folder.path());
    run(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path));
    let security = ["security", "--no-pager", "--offline=true", "--threshold=30"];
    run(Command::new("systemd-analyze").args(security).arg(&path));
}

#[test]
fn the_service_is_started_again_until_its_address_is_there() {
    let unit = unit();
    let (head, service) = unit.split_once("[Service]").unwrap();
    assert!(head.lines().any(|line| line == "StartLimitIntervalSec=0"), "{head}");
    for line in ["Restart=on-failure", "RestartSec=2"] {
        assert!(service.lines().any(|has| has == line), "{service}");
    }
}

#[test]
fn a_stop_leaves_the_daemon_s_children_to_the_daemon() {
    let unit = unit();
    let (_, service) = unit.split_once("[Service]").unwrap();
    assert!(service.lines().any(|line| line == "KillMode=mixed"), "{service}");
}

#[test]
fn there_is_one_unit_in_the_repository() {
    let listed = run(Command::new("git").args(["grep", "-l", "^ExecStart="]).current_dir(root()));
    assert_eq!(listed, "packaging/ekiden.service\n");
}

#[test]
fn the_packaged_configuration_means_the_defaults() {
    let path = root().join("packaging/config.toml");
    let checked = run(Command::new(env!("CARGO_BIN_EXE_ekiden")).arg("check").arg(&path));
    assert!(checked.ends_with("config.toml: no problems\n"), "{checked}");
    let shown = |args: &[&str]| {
        let shown =
            run(Command::new(env!("CARGO_BIN_EXE_ekiden")).args(["config", "show"]).args(args));
        shown.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(shown(&["--config", path.to_str().unwrap()]), shown(&["--defaults"]));
    // its example without the comment signs
    let text = fs::read_to_string(&path).unwrap();
    let example = text.lines().filter_map(|line| line.strip_prefix('#'));
    let example: String =
        example.filter(|line| !line.starts_with(' ')).map(|line| format!("{line}\n")).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    fs::write(&path, &example).unwrap();
    assert!(example.contains("[[rule]]"), "{example}");
    run(Command::new(env!("CARGO_BIN_EXE_ekiden")).arg("check").arg(&path));
}

#[test]
fn the_control_socket_is_in_the_folder_that_systemd_made() {
    let home = home("[management]\nlisten = \"off\"\n");
    let made = home.path().join("made-by-systemd");
    fs::create_dir(&made).unwrap();
    let mut command = home.command(&["serve", "--listen", "127.0.0.1:0"]);
    let mut daemon = command.env("RUNTIME_DIRECTORY", &made).spawn().unwrap();
    let socket = made.join("ekiden.sock");
    wait_for("the control socket", || socket.exists());
    let mut status = home.command(&["status", "--json"]);
    let status = run(status.env("RUNTIME_DIRECTORY", &made));
    assert!(status.contains("127.0.0.1:"), "{status}");
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}
