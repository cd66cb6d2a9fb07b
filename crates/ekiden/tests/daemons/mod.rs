//! Daemons as their operators set them up, and what they say.
#![allow(dead_code)] // each test program uses some of it

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const EKIDEN: &str = env!("CARGO_BIN_EXE_ekiden");

/// A daemon in a directory of its own.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    pub(crate) dir: tempfile::TempDir,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn eventually<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "it never came to be");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn directory(config: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let config = config.replace("DIR", &dir.path().display().to_string());
    fs::write(dir.path().join("c.toml"), config).unwrap();
    dir
}

/// A command that ends by itself, with the directory's configuration.
pub(crate) fn ask(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(EKIDEN);
    command.args(args).env("XDG_RUNTIME_DIR", dir).env_remove("EKIDEN_LOG");
    if args[0] == "relay" {
        command.arg("--config").arg(dir.join("c.toml"));
    }
    command.output().unwrap()
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Daemon {
    pub(crate) fn start(dir: tempfile::TempDir) -> Self {
        let daemon = Self { child: serve(dir.path()), dir };
        eventually(|| daemon.status());
        daemon
    }

    /// Another one in its place, after it has ended.
    pub(crate) fn again(&mut self) {
        self.child = serve(self.dir.path());
        eventually(|| self.status());
    }

    pub(crate) fn status(&self) -> Option<serde_json::Value> {
        serde_json::from_slice(&ask(self.dir.path(), &["status", "--json"]).stdout).ok()
    }

    pub(crate) fn proxy(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.status().unwrap()["listen"][0].as_str().unwrap())
    }

    pub(crate) fn tunnel_is_up(&self) -> bool {
        let status = self.status().unwrap();
        status["tunnels"].as_array().unwrap().iter().any(|tunnel| tunnel["up"] == true)
    }
}

fn serve(dir: &Path) -> Child {
    let log = fs::OpenOptions::new().create(true).append(true).open(dir.join("log")).unwrap();
    Command::new(EKIDEN)
        .args(["serve", "--listen", "127.0.0.1:0", "--config"])
        .arg(dir.join("c.toml"))
        .env("XDG_RUNTIME_DIR", dir)
        .env("STATE_DIRECTORY", dir.join("state"))
        .env_remove("EKIDEN_LOG")
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// The far daemon's directory and the near one's, joined.
pub(crate) fn pair(rates: [&str; 2]) -> [tempfile::TempDir; 2] {
    pair_by(rates, |port| port)
}

/// The same, where the near one is told another port.
pub(crate) fn pair_by(rates: [&str; 2], told: impl FnOnce(u16) -> u16) -> [tempfile::TempDir; 2] {
    let port = free();
    let access = "[access]\nallow_destinations = [\"127.0.0.0/8\"]\n";
    let far = directory(&format!(
        "{access}[tunnel]\nlisten = [\"127.0.0.1:{port}\"]\nstate = \"DIR/state\"\n"
    ));
    let near = directory(&format!(
        "{access}[tunnel]\nstate = \"DIR/state\"\n[upstream.far]\nurl = \"tunnel://far\"\n[[route]]\nthrough = [\"far\"]\n"
    ));
    let address = format!("127.0.0.1:{}", told(port));
    let invite = ["relay", "invite", "--name", "near", "--address", &address];
    let invited =
        ask(far.path(), &[&invite[..], &["--send", rates[0], "--receive", rates[1]]].concat());
    let token = said(&invited).trim().to_owned();
    assert!(token.starts_with("ekiden1-"), "{invited:?}");
    let joined = ask(near.path(), &["relay", "join", &token, "--name", "far"]);
    assert!(said(&joined).contains("url = \"tunnel://far\""), "{joined:?}");
    [far, near]
}

/// A port that is free now, for UDP and TCP.
fn free() -> u16 {
    loop {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
