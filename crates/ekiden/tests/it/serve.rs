//! The daemon as a process: readiness, status over its socket, reload, and the ways it ends.

use crate::daemons::home;
use ekiden_testkit::{Daemon, PATIENCE};
use rustix::process::Signal;
use std::ops::Deref;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// A daemon that notifies its service manager.
struct Notifying {
    daemon: Daemon,
    notices: UnixDatagram,
}

impl Notifying {
    fn start(config: &str) -> Self {
        let home = home(config);
        let socket = home.path().join("notify");
        let notices = UnixDatagram::bind(&socket).unwrap();
        notices.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = home.command(&["serve", "--listen", "127.0.0.1:0"]);
        command.env("NOTIFY_SOCKET", socket);
        let this = Self { daemon: home.serve_by(command), notices };
        this.noticed("READY=1");
        this
    }

    /// Waits for a notice to the service manager.
    fn noticed(&self, notice: &str) {
        let mut buffer = [0; 512];
        loop {
            let length = match self.notices.recv(&mut buffer) {
                Ok(length) => length,
                Err(error) => panic!("no {notice}: {error}\n{}", self.log()),
            };
            if String::from_utf8_lossy(&buffer[..length]).contains(notice) {
                return;
            }
        }
    }

    /// Reloads with this configuration, which may be refused.
    fn reload(&self, config: &str) {
        self.configure(config);
        self.signal(Signal::HUP);
        self.noticed("RELOADING=1");
        self.noticed("READY=1");
    }
}

impl Deref for Notifying {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

#[test]
fn logs_its_decisions_answers_and_stops() {
    let mut daemon = Notifying::start("[timeouts]\nstop = \"1 s\"\n");
    let status = daemon.status();
    assert!(status["name"].as_str().unwrap().starts_with("ekiden-"));
    let schema = include_str!("../../../../docs/book/src/reference/schema/status.json");
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    jsonschema::validator_for(&schema).unwrap().validate(&status).unwrap();
    let human = daemon.run(&["status"]);
    assert!(String::from_utf8_lossy(&human.stdout).contains("no connections"));
    let log = daemon.log();
    for part in [
        "listening on 127.0.0.1:",
        "configuration ",
        "socket buffers",
        "descriptor limit",
        "budgets",
    ] {
        assert!(log.contains(part), "{part}\n{log}");
    }
    daemon.signal(Signal::TERM);
    daemon.noticed("STOPPING=1");
    assert_eq!(daemon.daemon.code(), Some(0));
    let socket = daemon.path().join("ekiden.sock");
    assert!(!socket.exists());
    // by name: without one, a service of this machine might answer
    let socket = socket.display().to_string();
    assert_eq!(daemon.run(&["status", "--socket", &socket]).status.code(), Some(1));
}

#[test]
fn a_cache_folder_belongs_to_one_daemon() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("cache");
    let config = format!(
        "[cache]\nmemory = \"32 MiB\"\ndisk = \"64 MiB\"\ndirectory = \"{}\"\n",
        folder.display()
    );
    let daemon = Notifying::start(&config);
    let line = format!(
        "HTTP cache: 32 MiB of memory and 64 MiB on disk in {}; bodies up to 4 MiB",
        folder.display()
    );
    assert!(daemon.log().contains(&line), "{}", daemon.log());
    // the same once more, and something else: the folder stays this one's
    daemon.reload(&format!("name = \"two\"\n{config}"));
    assert_eq!(daemon.status()["name"], "two");
    let second = home(&config).run(&["serve", "--listen", "127.0.0.1:0"]);
    let log = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(73), "{log}");
    let why = format!("process {} uses {} as its cache", daemon.pid(), folder.display());
    assert!(log.contains(&why) && log.contains("another cache.directory"), "{log}");
    // without a word of it where there is none
    assert!(!Notifying::start("").log().contains("cache"));
}

#[test]
fn a_reload_with_mistakes_changes_nothing() {
    let daemon = Notifying::start("name = \"one\"\n");
    daemon.reload("name = \"two\"\ncolour = 1\n[dns]\ncache = 0\n");
    let status = daemon.status();
    assert_eq!((status["name"].as_str(), status["reloads"].as_u64()), (Some("one"), Some(0)));
    let log = daemon.log();
    for part in
        ["config.toml:2:1: unknown key `colour`", "config.toml:4:9", "the old one stays in effect"]
    {
        assert!(log.contains(part), "{part}\n{log}");
    }
    let refused = status["refused_reload"]["errors"].to_string();
    assert!(refused.contains("unknown key `colour`"), "{status}");
    let human = daemon.run(&["status"]);
    assert!(String::from_utf8_lossy(&human.stdout).contains("was refused"), "{human:?}");
    daemon.reload("name = \"two\"\n");
    let status = daemon.status();
    assert!(status["refused_reload"].is_null(), "{status}");
    assert_eq!((status["name"].as_str(), status["reloads"].as_u64()), (Some("two"), Some(1)));
}

#[test]
fn a_second_daemon_on_the_socket_is_refused() {
    let daemon = Notifying::start("");
    let second = daemon.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(second.status.code(), Some(73));
    assert!(String::from_utf8_lossy(&second.stderr).contains("another ekiden answers on it"));
    let taken = daemon.status()["listen"][0].as_str().unwrap().to_owned();
    let other = daemon.path().join("other.sock").display().to_string();
    let third = daemon.run(&["serve", "--listen", &taken, "--socket", &other]);
    assert_eq!(third.status.code(), Some(69), "{third:?}");
    let log = String::from_utf8_lossy(&third.stderr);
    let why = format!("--listen asks for it, and it is taken by ekiden, process {}", daemon.pid());
    assert!(log.contains(&why), "{log}");
    assert!(!Path::new(&other).exists());
}

#[test]
fn a_relay_with_accounts_ends_where_their_use_cannot_be_written() {
    let home = home("[accounts]\nenabled = true\nstate = \"DIR/state\"\n");
    // permissions keep nobody out who is root
    std::fs::create_dir_all(home.path().join("state/usage.lock")).unwrap();
    let output = home.run(&["serve", "--listen", "127.0.0.1:0"]);
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(73), "{log}");
    assert!(log.contains("the usage journal") && log.contains("cannot be used"), "{log}");
}

#[test]
fn reports_an_access_log_that_cannot_be_written() {
    let home = home("[log]\naccess = \"/nonexistent/a.log\"\n");
    let output = home.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(73));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("/nonexistent/a.log cannot be written")
    );
}
