//! A folder with all that a relay of households needs, its commands, and the daemon that runs in it.
#![allow(dead_code)] // each test program uses its part
#![allow(clippy::unwrap_used)] // a test that cannot go on panics

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A folder with a configuration and all that ekiden keeps.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("ekiden")).unwrap();
        let place = Self(folder);
        place.configure("[accounts]\nenabled = true\n");
        place
    }

    pub(crate) fn configure(&self, text: &str) {
        fs::write(self.path().join("ekiden/config.toml"), text).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        // another build of it, for benches that stand two beside each other
        let other = std::env::var_os("EKIDEN_BIN");
        let mut command =
            Command::new(other.unwrap_or_else(|| env!("CARGO_BIN_EXE_ekiden").into()));
        let folder = self.path();
        command.env("XDG_CONFIG_HOME", folder).env("XDG_RUNTIME_DIR", folder);
        // the one that counts for root, too
        command.env("STATE_DIRECTORY", folder.join("state")).env_remove("EKIDEN_LOG");
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn user(&self, args: &[&str], input: &str) -> Output {
        let mut child = self.command(&[&["user"], args].concat()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// What it printed, having been fine.
    pub(crate) fn did(&self, args: &[&str], input: &str) -> String {
        let output = self.user(args, input);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What it complained of.
    pub(crate) fn did_not(&self, args: &[&str], input: &str) -> String {
        let output = self.user(args, input);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    pub(crate) fn serve(&self) -> Daemon {
        let log = fs::File::create(self.path().join("log")).unwrap();
        let args = ["serve", "--listen", "127.0.0.1:0", "--allow-destination", "127.0.0.0/8"];
        let child = self.command(&args).stderr(log).spawn().unwrap();
        let mut daemon = Daemon { child, address: ([127, 0, 0, 1], 0).into() };
        wait_for("the daemon", || {
            let asked = self.command(&["status", "--json"]).output().unwrap();
            let status: serde_json::Value =
                serde_json::from_slice(&asked.stdout).unwrap_or_default();
            let listen = status["listen"][0].as_str().and_then(|text| text.parse().ok());
            daemon.address = listen.unwrap_or(daemon.address);
            listen.is_some()
        });
        daemon
    }
}

pub(crate) struct Daemon {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
}

impl Daemon {
    /// The answer to a CONNECT to `to` with these fields, and the connection.
    pub(crate) fn connect(&self, to: SocketAddr, fields: &str) -> (String, TcpStream) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{fields}\r\n").unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        (String::from_utf8(head).unwrap(), stream)
    }

    /// Seconds of a core that it took so far.
    pub(crate) fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        // utime and stime in ticks of 10 ms (proc(5))
        [11, 12].iter().map(|nth: &usize| fields[*nth].parse::<f64>().unwrap() / 100.0).sum()
    }

    /// Stops it as an operator does: all it has counted is settled then.
    pub(crate) fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // it has perhaps ended
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !happened() {
        assert!(Instant::now() < until, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// «anna» with «right password».
pub(crate) const ANNA: &str = "Proxy-Authorization: Basic YW5uYTpyaWdodCBwYXNzd29yZA==\r\n";
