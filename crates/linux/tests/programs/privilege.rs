//! Loaded by root, chosen by a user without privilege, through pins or a running daemon.

use crate::pair::{Pair, is_available, options, rate};
use ekiden_linux::bpf::{self, Control, Loaded, Missing, Terms};
use ekiden_linux::sockets::key::Key;
use ekiden_linux::sockets::outcome::Stage;
use ekiden_linux::sockets::socket::congestion;
use ekiden_testkit::wait_for;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread::{self, sleep};
use std::time::Duration;
use std::{env, fs};

const NOBODY: u32 = 65_534;

/// What this program does as a child: loads and stays, or tries without privilege.
pub(crate) fn inside(arguments: &[String]) -> ExitCode {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["stay"] => {
            let loaded = Loaded::load(Control::Hold).unwrap();
            println!("{}", loaded.name());
            sleep(Duration::from_secs(60));
        }
        ["choose", name] => {
            assert_eq!(Loaded::load(Control::Hold).unwrap_err(), Missing::Privilege);
            let (socket, outcomes) =
                options(name, None).new_stream_socket(false, Stage::Connecting).unwrap();
            assert!(!outcomes.any_refused(), "{:?}", outcomes.in_words(&options(name, None)));
            assert_eq!(congestion(socket.as_fd()).unwrap(), name);
        }
        ["pinned", pins] => {
            let loaded = Loaded::open(Control::Hold, Path::new(pins)).unwrap().unwrap();
            assert!(loaded.is_pinned());
            let group = loaded.group("leg", Terms::new(rate("2 Mbit/s"))).unwrap();
            let pair = Pair::new(&options(loaded.name(), Some(&group)));
            pair.fill();
            wait_for("a member", || group.seen().unwrap().members == 1);
            let other = Loaded::open(Control::Hold, Path::new(pins)).unwrap().unwrap();
            // both are used by this process; the first is not given away
            let second = other.group("leg", Terms::new(rate("1 Mbit/s"))).unwrap();
            assert_ne!(second, group);
            assert_eq!(second.seen().unwrap().members, 0);
        }
        ["hidden", pins] => {
            let hidden = Loaded::open(Control::Hold, Path::new(pins)).unwrap_err();
            assert!(matches!(hidden, Missing::Hidden(_)), "{hidden}");
            let judged = bpf::pinned(Path::new(pins));
            assert_eq!(judged, Control::ALL.map(|control| (control, Err(hidden.clone()))));
        }
        _ => panic!("{words:?}"),
    }
    ExitCode::SUCCESS
}

fn as_nobody(program: &Path, arguments: &[&str]) {
    let output = Command::new(program)
        .arg("--trial")
        .args(arguments)
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn without_privilege_it_is_chosen_and_not_loaded(program: &Path) {
    let loaded = Loaded::load(Control::Hold).unwrap();
    as_nobody(program, &["choose", loaded.name()]);
}

/// A BPF file system of our own.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: PathBuf) -> Option<Self> {
        fs::create_dir(&at).unwrap();
        let done =
            Command::new("mount").args(["-t", "bpf", "-o", "mode=0700", "bpf"]).arg(&at).status();
        done.is_ok_and(|status| status.success()).then_some(Self(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

pub(crate) fn pinned_for_a_user_without_privilege(program: &Path) {
    let pins = program.parent().unwrap().join("pins");
    assert!(Loaded::open(Control::Hold, &pins).unwrap().is_none());
    let pin = || bpf::pin(Control::Hold, &pins, Some((NOBODY, NOBODY)));
    let (name, before) = match pin() {
        Err(Missing::Place(why)) if env::var_os("CI").is_none() => {
            return println!("SKIPPED: no BPF file system can be mounted: {why}");
        }
        pinned => pinned.unwrap(),
    };
    assert!(is_available(&name) && !before);
    // of two at once one finds what the other did
    let both =
        thread::scope(|scope| [scope.spawn(pin), scope.spawn(pin)].map(|t| t.join().unwrap()));
    assert_eq!(both, [Ok((name.clone(), true)), Ok((name.clone(), true))]);
    assert_eq!(bpf::pinned(&pins), [(Control::Hold, Ok(name.clone()))]);
    as_nobody(program, &["pinned", pins.to_str().unwrap()]);
    let opened = Loaded::open(Control::Hold, &pins).unwrap().unwrap();
    let group = opened.group("leg", Terms::new(rate("8 Mbit/s"))).unwrap();
    let mut asked = options(&name, Some(&group));
    asked.congestion.push("reno".into());
    let chosen = || {
        let (socket, outcomes) = asked.new_stream_socket(false, Stage::Connecting).unwrap();
        (congestion(socket.as_fd()).unwrap(), outcomes.refused(Key::Rate))
    };
    assert!(opened.is_current() && group.is_current());
    assert_eq!(chosen(), (name.clone(), false));
    assert_eq!(bpf::unpin(&pins).unwrap(), [Control::Hold]);
    assert!(!pins.exists() && !opened.is_current());
    wait_for("its end", || !is_available(&name));
    // put there anew it is another one, whatever its name: it knows nothing of the groups from before
    assert_eq!(bpf::pin(Control::Hold, &pins, None), Ok((name.clone(), false)));
    assert!(!opened.is_current() && !group.is_current());
    assert_eq!(chosen(), ("reno".into(), true));
    // and what another release has left gives way
    let release = pins.join("hold-release");
    fs::remove_file(&release).unwrap();
    std::os::unix::fs::symlink("another", &release).unwrap();
    let opened = Loaded::open(Control::Hold, &pins).unwrap().unwrap();
    assert_eq!(bpf::pin(Control::Hold, &pins, None).map(|(_, before)| before), Ok(false));
    assert!(!opened.is_current());
    assert_eq!(bpf::unpin(&pins).unwrap(), [Control::Hold]);
    assert_eq!(bpf::unpin(&pins).unwrap(), []);
}

pub(crate) fn permission_denied_is_not_reported_as_missing(program: &Path) {
    // as systemd mounts /sys/fs/bpf
    let Some(mounted) = Mounted::new(program.parent().unwrap().join("bpf")) else {
        assert!(env::var_os("CI").is_none(), "no BPF file system can be mounted");
        println!("SKIPPED: no BPF file system can be mounted");
        return;
    };
    let pins = mounted.0.join("ekiden");
    bpf::pin(Control::Hold, &pins, Some((NOBODY, NOBODY))).unwrap();
    as_nobody(program, &["hidden", pins.to_str().unwrap()]);
    assert_eq!(bpf::unpin(&pins).unwrap(), [Control::Hold]);
    assert!(!pins.exists() && mounted.0.exists());
}
