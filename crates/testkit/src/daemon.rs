//! A running daemon.

use crate::{Home, PATIENCE, eventually};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;

/// A daemon of a [`Home`]; killed when it is dropped.
#[derive(Debug)]
pub struct Daemon {
    home: Arc<Home>,
    child: Child,
    /// Where its first listener takes clients.
    pub address: SocketAddr,
}

impl Daemon {
    /// Runs `command` and waits until the daemon answers. Panics with its log if it ends before.
    pub(crate) fn spawn(home: Arc<Home>, mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let address = eventually("the daemon", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the daemon ended, {status}: {}", home.log());
            }
            home.status()?["listen"][0].as_str()?.parse().ok()
        });
        Self { home, child, address }
    }

    /// The daemon's status. Panics with its log if it does not answer.
    pub fn status(&self) -> serde_json::Value {
        self.home.status().unwrap_or_else(|| panic!("no status: {}", self.log()))
    }

    /// `scheme://address`, as a client is given it.
    pub fn proxy(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.address)
    }

    /// The process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// A file of the process under /proc.
    pub fn proc(&self, file: &str) -> String {
        format!("/proc/{}/{file}", self.child.id())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Writes a configuration and waits until it is in effect.
    pub fn reload(&self, config: &str) {
        let before = self.status()["reloads"].as_u64();
        self.configure(config);
        self.signal(Signal::HUP);
        eventually("the reload", || (self.status()["reloads"].as_u64() > before).then_some(()));
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for the daemon's end: its exit code, `None` after a signal.
    pub fn code(&mut self) -> Option<i32> {
        eventually("the daemon's end", || self.child.try_wait().unwrap()).code()
    }

    /// Stops it as an operator does: all it has counted is settled then.
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        assert_eq!(self.code(), Some(0), "{}", self.log());
    }

    /// Kills it with SIGKILL and waits for its end.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Kills it, and starts another in its place.
    pub fn restart(&mut self) {
        self.kill();
        *self = self.home.serve();
    }

    /// Bytes up and down that open a tunnel by [`Self::connect`].
    pub fn opening(to: SocketAddr, fields: &str) -> (usize, usize) {
        let answer = "HTTP/1.1 200 Connection established\r\n\r\n";
        (asked(to, fields).len(), answer.len())
    }

    /// The answer's head to a CONNECT to `to` with these header lines, and the connection.
    pub fn connect(&self, to: SocketAddr, fields: &str) -> (String, TcpStream) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(asked(to, fields).as_bytes()).unwrap();
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
            head.push(byte[0]);
        }
        (String::from_utf8(head).unwrap(), stream)
    }

    /// Processor time so far, in seconds.
    pub fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(self.proc("stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        // utime and stime in ticks of 10 ms (proc(5))
        [11, 12].iter().map(|nth: &usize| fields[*nth].parse::<f64>().unwrap() / 100.0).sum()
    }
}

fn asked(to: SocketAddr, fields: &str) -> String {
    format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{fields}\r\n")
}

impl Deref for Daemon {
    type Target = Home;

    fn deref(&self) -> &Home {
        &self.home
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // it has perhaps ended
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
