//! The daemon with live connections: reload, stop, a lack of descriptors, the access log.
#![allow(clippy::unwrap_used)] // a test may fail loudly

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const EKIDEN: &str = env!("CARGO_BIN_EXE_ekiden");
const OPEN: &str = "[access]\nallow_destinations = [\"127.0.0.0/8\"]\n";

struct Daemon {
    child: Child,
    dir: tempfile::TempDir,
}

/// Asks until there is an answer; how long that takes is no matter of the test.
fn eventually<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "it never came to be");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Daemon {
    fn start(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = config.replace("DIR", &dir.path().display().to_string());
        fs::write(dir.path().join("c.toml"), config).unwrap();
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let child = Command::new(EKIDEN)
            .args(["serve", "--listen", "127.0.0.1:0", "--config"])
            .arg(dir.path().join("c.toml"))
            .env("XDG_RUNTIME_DIR", dir.path())
            .env("STATE_DIRECTORY", dir.path().join("state"))
            .env_remove("EKIDEN_LOG")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let daemon = Self { child, dir };
        eventually(|| daemon.status());
        daemon
    }

    fn status(&self) -> Option<serde_json::Value> {
        let mut command = Command::new(EKIDEN);
        command.args(["status", "--json"]).env("XDG_RUNTIME_DIR", self.dir.path());
        serde_json::from_slice(&command.output().unwrap().stdout).ok()
    }

    fn address(&self) -> SocketAddr {
        self.status().unwrap()["listen"][0].as_str().unwrap().parse().unwrap()
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn reload(&self, config: &str) {
        let before = self.status().unwrap()["reloads"].as_u64();
        let config = config.replace("DIR", &self.dir.path().display().to_string());
        fs::write(self.path("c.toml"), config).unwrap();
        self.signal(Signal::HUP);
        eventually(|| (self.status()?["reloads"].as_u64() > before).then_some(()));
    }

    fn code(&mut self) -> Option<i32> {
        eventually(|| self.child.try_wait().unwrap()).code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends back what it is sent.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut writer = stream.try_clone().unwrap();
                let _ = std::io::copy(&mut stream, &mut writer);
                let _ = writer.shutdown(std::net::Shutdown::Write);
            });
        }
    });
    address
}

fn connect(relay: SocketAddr, to: SocketAddr, more: &str) -> TcpStream {
    try_connect(relay, to, more).unwrap_or_else(|head| panic!("{head}"))
}

/// Or the head of the refusal.
fn try_connect(relay: SocketAddr, to: SocketAddr, more: &str) -> Result<TcpStream, String> {
    let mut stream = TcpStream::connect(relay).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{more}\r\n").unwrap();
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
        head.push(byte[0]);
    }
    if head.starts_with(b"HTTP/1.1 200") {
        return Ok(stream);
    }
    Err(String::from_utf8_lossy(&head).into_owned())
}

fn echoes(stream: &mut TcpStream) -> bool {
    let mut back = [0; 2];
    stream.write_all(b"hi").is_ok() && stream.read_exact(&mut back).is_ok() && back == *b"hi"
}

#[test]
fn a_reload_leaves_transfers_alone_and_a_live_status_holds_to_the_schema() {
    let daemon = Daemon::start(OPEN);
    let (relay, to) = (daemon.address(), echo());
    let mut stream = connect(relay, to, "");
    assert!(echoes(&mut stream));
    daemon.reload(&format!("name = \"other\"\n{OPEN}"));
    assert!(echoes(&mut stream));
    // access is closed to newcomers now
    daemon.reload("name = \"third\"\n");
    assert!(echoes(&mut stream));
    let mut refused = TcpStream::connect(relay).unwrap();
    write!(refused, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    let mut text = String::new();
    refused.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 403"), "{text}");
    let status = daemon.status().unwrap();
    assert_eq!(status["connections"][0]["legs"].as_array().unwrap().len(), 2);
    let schema = include_str!("../../../docs/schema/status.json");
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    jsonschema::validator_for(&schema).unwrap().validate(&status).unwrap();
}

#[test]
fn a_stop_waits_for_transfers_closes_idle_ones_and_takes_nobody_new() {
    let mut daemon = Daemon::start(OPEN);
    let (relay, to) = (daemon.address(), echo());
    let mut busy = connect(relay, to, "");
    let mut silent = TcpStream::connect(relay).unwrap();
    eventually(|| (daemon.status()?["connections"].as_array()?.len() == 2).then_some(()));
    daemon.signal(Signal::TERM);
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    eventually(|| TcpStream::connect(relay).is_err().then_some(()));
    assert!(echoes(&mut busy), "it may finish");
    drop(busy);
    assert_eq!(daemon.code(), Some(0));
    assert!(daemon.log().contains("2 connections ended by themselves"), "{}", daemon.log());
}

#[test]
fn what_does_not_end_is_cut_at_the_limit_or_by_a_second_signal() {
    let mut daemon = Daemon::start(&format!("{OPEN}[timeouts]\nstop = \"200 ms\"\n"));
    let mut stream = connect(daemon.address(), echo(), "");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.code(), Some(0));
    assert!(stream.read(&mut [0]).is_err(), "its end would be taken for the stream's");
    assert!(daemon.log().contains("0 connections ended by themselves, 1 were cut"));
    let mut daemon = Daemon::start(OPEN);
    let mut stream = connect(daemon.address(), echo(), "");
    daemon.signal(Signal::TERM);
    eventually(|| daemon.log().contains("a second signal ends at once").then_some(()));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.code(), Some(0));
    assert!(stream.read(&mut [0]).is_err(), "its end would be taken for the stream's");
    assert!(daemon.log().contains("second signal: 1 connections were cut"), "{}", daemon.log());
}

#[test]
fn out_of_descriptors_it_says_so_once_and_recovers() {
    let daemon = Daemon::start(OPEN);
    let (relay, to) = (daemon.address(), echo());
    let open = fs::read_dir(format!("/proc/{}/fd", daemon.child.id())).unwrap().count() as u64;
    let before = prlimit(
        Some(daemon.pid()),
        Resource::Nofile,
        Rlimit { current: Some(open + 4), maximum: Some(4096) },
    )
    .unwrap();
    assert!(before.current.is_none_or(|limit| limit > open));
    let waiting: Vec<_> = (0..16).map(|_| TcpStream::connect(relay).unwrap()).collect();
    eventually(|| daemon.log().contains("cannot accept connections").then_some(()));
    drop(waiting);
    // those in the listener's queue are taken in and seen to be gone first, and have descriptors until then
    let mut stream = eventually(|| try_connect(relay, to, "").ok());
    assert!(echoes(&mut stream));
    assert_eq!(daemon.log().matches("cannot accept connections").count(), 1, "{}", daemon.log());
}

#[test]
fn the_access_log_is_json_without_credentials_and_reopened() {
    let config = format!("{OPEN}[log]\naccess = \"DIR/access.log\"\n");
    let daemon = Daemon::start(&config);
    let (relay, to) = (daemon.address(), echo());
    let lines = |name: &str| fs::read_to_string(daemon.path(name)).unwrap_or_default();
    let secret = "Proxy-Authorization: Basic c2VjcmV0OnBhc3N3b3Jk\r\n";
    drop(connect(relay, to, secret));
    eventually(|| lines("access.log").ends_with('\n').then_some(()));
    fs::rename(daemon.path("access.log"), daemon.path("old.log")).unwrap();
    daemon.reload(&config);
    drop(connect(relay, to, secret));
    let new = eventually(|| Some(lines("access.log")).filter(|text| text.ends_with('\n')));
    assert_eq!(lines("old.log").lines().count(), 1);
    let record: serde_json::Value = serde_json::from_str(&new).unwrap();
    let mut keys: Vec<_> = record.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(
        keys.join(" "),
        "bytes_down bytes_up client connection method protocol result seconds status target through time"
    );
    assert_eq!(
        (record["target"].as_str(), record["status"].as_u64()),
        (Some(&*to.to_string()), Some(200))
    );
    for text in [new, lines("old.log"), daemon.log()] {
        assert!(!text.contains("c2VjcmV0") && !text.contains("secret"), "{text}");
    }
}

#[test]
fn beyond_loopback_only_with_a_rule() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("c.toml"), "").unwrap();
    let mut command = Command::new(EKIDEN);
    command.args(["serve", "--listen", "0.0.0.0:0", "--config"]).arg(dir.path().join("c.toml"));
    let output = command.env("XDG_RUNTIME_DIR", dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("rule"), "{text}");
}
