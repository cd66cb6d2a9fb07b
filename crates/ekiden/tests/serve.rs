//! The daemon as a process: readiness, status over its socket, reload, and the ways it ends.
#![allow(clippy::unwrap_used)] // a test may fail loudly

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const EKIDEN: &str = env!("CARGO_BIN_EXE_ekiden");

/// A daemon in a directory of its own, ended when the test is.
struct Daemon {
    child: Child,
    dir: tempfile::TempDir,
    notices: UnixDatagram,
}

fn command(dir: &Path) -> Command {
    let mut command = Command::new(EKIDEN);
    command.env("XDG_CONFIG_HOME", dir).env("XDG_RUNTIME_DIR", dir).env_remove("EKIDEN_LOG");
    command.env("STATE_DIRECTORY", dir.join("state"));
    command.stdout(Stdio::piped());
    command
}

impl Daemon {
    fn start(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("ekiden")).unwrap();
        fs::write(dir.path().join("ekiden/config.toml"), config).unwrap();
        let notices = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        notices.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let child = command(dir.path())
            .args(["serve", "--listen", "127.0.0.1:0"])
            .env("NOTIFY_SOCKET", dir.path().join("notify"))
            .stderr(log)
            .spawn()
            .unwrap();
        let daemon = Self { child, dir, notices };
        daemon.noticed("READY=1");
        daemon
    }

    /// Waits until systemd would have been told.
    fn noticed(&self, what: &str) {
        let mut buffer = [0; 512];
        loop {
            let length = match self.notices.recv(&mut buffer) {
                Ok(length) => length,
                Err(error) => panic!("no {what}: {error}\n{}", self.log()),
            };
            if String::from_utf8_lossy(&buffer[..length]).contains(what) {
                return;
            }
        }
    }

    fn configure(&self, config: &str) {
        fs::write(self.dir.path().join("ekiden/config.toml"), config).unwrap();
        self.signal(Signal::HUP);
        self.noticed("RELOADING=1");
        self.noticed("READY=1");
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("ekiden.sock")
    }

    fn ask(&self, args: &[&str]) -> Output {
        command(self.dir.path()).args(args).output().unwrap()
    }

    fn status(&self) -> serde_json::Value {
        let output = self.ask(&["status", "--json"]);
        assert!(output.status.success(), "{}", self.log());
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    fn code(&mut self) -> Option<i32> {
        let end = Instant::now() + Duration::from_secs(20);
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("it does not end\n{}", self.log());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // it has usually ended
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn says_what_it_decided_answers_and_stops() {
    let mut daemon = Daemon::start("[timeouts]\nstop = \"1 s\"\n");
    let status = daemon.status();
    assert!(status["name"].as_str().unwrap().starts_with("ekiden-"));
    let schema = include_str!("../../../docs/schema/status.json");
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    jsonschema::validator_for(&schema).unwrap().validate(&status).unwrap();
    let human = daemon.ask(&["status"]);
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
    assert_eq!(daemon.code(), Some(0));
    assert!(!daemon.socket().exists());
    // by name: without one, a service of this machine might answer
    let socket = daemon.socket().display().to_string();
    assert_eq!(daemon.ask(&["status", "--socket", &socket]).status.code(), Some(1));
}

#[test]
fn a_cache_folder_is_one_daemon_s() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("cache");
    let config = format!(
        "[cache]\nmemory = \"8 MiB\"\ndisk = \"64 MiB\"\ndirectory = \"{}\"\n",
        folder.display()
    );
    let daemon = Daemon::start(&config);
    let line = format!(
        "HTTP cache: 8 MiB of memory and 64 MiB on disk in {}; bodies up to 4 MiB",
        folder.display()
    );
    assert!(daemon.log().contains(&line), "{}", daemon.log());
    // the same once more, and something else: the folder stays this one's
    daemon.configure(&format!("name = \"two\"\n{config}"));
    assert_eq!(daemon.status()["name"], "two");
    let other = tempfile::tempdir().unwrap();
    fs::create_dir(other.path().join("ekiden")).unwrap();
    fs::write(other.path().join("ekiden/config.toml"), &config).unwrap();
    let second = command(other.path())
        .args(["serve", "--listen", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(73), "{log}");
    let why = format!("process {} has its cache in {}", daemon.child.id(), folder.display());
    assert!(log.contains(&why) && log.contains("another cache.directory"), "{log}");
    // without a word of it where there is none
    assert!(!Daemon::start("").log().contains("cache"));
}

#[test]
fn a_reload_with_mistakes_changes_nothing() {
    let daemon = Daemon::start("name = \"one\"\n");
    daemon.configure("name = \"two\"\ncolour = 1\n[dns]\ncache = 0\n");
    let status = daemon.status();
    assert_eq!((status["name"].as_str(), status["reloads"].as_u64()), (Some("one"), Some(0)));
    let log = daemon.log();
    for part in ["config.toml:2:1: unknown key `colour`", "config.toml:4:9", "the old one holds"] {
        assert!(log.contains(part), "{part}\n{log}");
    }
    daemon.configure("name = \"two\"\n");
    let status = daemon.status();
    assert_eq!((status["name"].as_str(), status["reloads"].as_u64()), (Some("two"), Some(1)));
}

#[test]
fn a_second_daemon_on_the_socket_is_refused() {
    let daemon = Daemon::start("");
    let second = daemon.ask(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(second.status.code(), Some(73));
    assert!(String::from_utf8_lossy(&second.stderr).contains("another ekiden answers on it"));
    let taken = daemon.status()["listen"][0].as_str().unwrap().to_owned();
    let other = daemon.dir.path().join("other.sock").display().to_string();
    let third = daemon.ask(&["serve", "--listen", &taken, "--socket", &other]);
    assert_eq!(third.status.code(), Some(69), "{third:?}");
    assert!(!Path::new(&other).exists());
}

#[test]
fn an_access_log_that_cannot_be_written_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.toml");
    fs::write(&file, "[log]\naccess = \"/nonexistent/a.log\"\n").unwrap();
    let mut command = command(dir.path());
    let output = command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&file).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(73));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("/nonexistent/a.log cannot be written")
    );
}
