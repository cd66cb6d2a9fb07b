//! Chromium without a window, with a fresh profile and one page, asked by the DevTools protocol over two pipes.
//!
//! ```no_run
//! use ekiden_testbed::chromium::Chromium;
//! let mut browser = Chromium::start(None, &[])?;
//! browser.ask("Page.navigate", serde_json::json!({ "url": "http://127.0.0.1:8080/" }))?;
//! println!("{}", browser.evaluate("document.title")?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::peers::{PeerError, PeerHost, find};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long it may be silent when it is asked something.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take to end by itself.
const ENDING: Duration = Duration::from_secs(5);
const NAME: &str = "Chromium";
/// Nothing of its own goes over the network, and no page waits for a sandbox or a graphics card.
const FLAGS: &[&str] = &[
    "--remote-debugging-pipe",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--no-pings",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-dev-shm-usage",
];

/// A browser, until dropped.
#[derive(Debug)]
pub struct Chromium {
    child: Child,
    asks: Option<ChildStdin>,
    hears: Receiver<Value>,
    events: VecDeque<Value>,
    next: u64,
    page: Option<String>,
    folder: Arc<TempDir>,
}

fn io_error(error: io::Error) -> PeerError {
    PeerError::Io(NAME.to_owned(), error)
}

/// Where the program is. Errors: it is not installed.
pub fn program() -> Result<PathBuf, PeerError> {
    find("chromium", "chromium")
}

impl Chromium {
    /// Starts it on `place`, or here, with further arguments; its page is blank. It uses no QUIC without `--enable-quic`. Errors: it is not installed, did
    /// not start, or does not answer.
    pub fn start(place: Option<&PeerHost>, arguments: &[String]) -> Result<Self, PeerError> {
        let folder = tempfile::Builder::new().prefix("ekiden-chromium-").tempdir();
        Self::start_in(Arc::new(folder.map_err(io_error)?), place, arguments)
    }

    /// Ends it and starts it anew with its profile: it has no connection, and knows what servers told it. Errors: as
    /// [`start`](Self::start).
    pub fn again(self, place: Option<&PeerHost>, arguments: &[String]) -> Result<Self, PeerError> {
        let folder = Arc::clone(&self.folder);
        drop(self);
        Self::start_in(folder, place, arguments)
    }

    fn start_in(
        folder: Arc<TempDir>,
        place: Option<&PeerHost>,
        arguments: &[String],
    ) -> Result<Self, PeerError> {
        let mut browser = Self::spawn(program()?, folder, place, arguments).map_err(io_error)?;
        browser.attach().map_err(|error| {
            let text = format!("{NAME} does not answer: {error}\n{}", browser.log());
            PeerError::NotListening(text)
        })?;
        Ok(browser)
    }

    fn spawn(
        program: PathBuf,
        folder: Arc<TempDir>,
        place: Option<&PeerHost>,
        arguments: &[String],
    ) -> io::Result<Self> {
        let mut command = Command::new("sh");
        // it reads from 3 and writes to 4
        command
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null"])
            .arg(program)
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .args(arguments)
            .args(if arguments.iter().any(|flag| flag == "--enable-quic") {
                None
            } else {
                Some("--disable-quic")
            })
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(folder.path().join("chromium.log"))?);
        if let Some(place) = place {
            (place.prepare)(&mut command);
        }
        let mut child = command.spawn()?;
        let (sender, hears) = channel();
        let (asks, answers) = (child.stdin.take(), child.stdout.take());
        let browser =
            Self { child, asks, hears, events: VecDeque::new(), next: 0, page: None, folder };
        let answers = answers.ok_or_else(|| io::Error::other("it has no output"))?;
        thread::Builder::new().spawn(move || hear(answers, &sender))?;
        Ok(browser)
    }

    fn attach(&mut self) -> io::Result<()> {
        let target = self.ask("Target.createTarget", json!({ "url": "about:blank" }))?;
        let wanted = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.ask("Target.attachToTarget", wanted)?;
        self.page = session["sessionId"].as_str().map(str::to_owned);
        Ok(())
    }

    /// Calls a method of its page and does not wait; the number that its answer has as `id`. Errors: it ended.
    pub fn send(&mut self, method: &str, parameters: Value) -> io::Result<u64> {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": parameters });
        if let Some(page) = &self.page {
            message["sessionId"] = json!(page);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        let ended = || io::Error::new(ErrorKind::BrokenPipe, "Chromium is being ended");
        self.asks.as_mut().ok_or_else(ended)?.write_all(&bytes)?;
        Ok(self.next)
    }

    /// Calls a method of its page; the result. What else it says meanwhile is kept for [`hear`](Self::hear). Errors:
    /// it refused, ended, or was silent for a minute.
    pub fn ask(&mut self, method: &str, parameters: Value) -> io::Result<Value> {
        let id = self.send(method, parameters)?;
        loop {
            let mut heard = self.wait()?;
            if heard["id"] != id {
                self.events.push_back(heard);
            } else if heard["error"].is_null() {
                return Ok(heard["result"].take());
            } else {
                return Err(io::Error::other(format!("{method}: {}", heard["error"])));
            }
        }
    }

    /// The next event, or answer to [`send`](Self::send). Errors: it ended, or was silent for a minute.
    pub fn hear(&mut self) -> io::Result<Value> {
        self.events.pop_front().map_or_else(|| self.wait(), Ok)
    }

    fn wait(&mut self) -> io::Result<Value> {
        self.hears.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                let text = format!("Chromium was silent for {} s", PATIENCE.as_secs());
                io::Error::new(ErrorKind::TimedOut, text)
            }
            RecvTimeoutError::Disconnected => {
                io::Error::new(ErrorKind::UnexpectedEof, "Chromium ended")
            }
        })
    }

    /// The value of an expression of JavaScript on its page. Errors: as [`ask`](Self::ask); also an exception.
    pub fn evaluate(&mut self, expression: &str) -> io::Result<Value> {
        let wanted = json!({ "expression": expression, "returnByValue": true });
        let mut said = self.ask("Runtime.evaluate", wanted)?;
        match &said["exceptionDetails"] {
            Value::Null => Ok(said["result"]["value"].take()),
            why => Err(io::Error::other(format!("on the page: {why}"))),
        }
    }

    /// What it complained of.
    pub fn log(&self) -> String {
        let text = fs::read(self.folder.path().join("chromium.log")).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        self.page = None;
        let _gone = self.send("Browser.close", json!({}));
        self.asks = None;
        if let Some(id) = Pid::from_raw(self.child.id() as i32) {
            // not waited for yet, so that its group keeps its number
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            let begin = Instant::now();
            while matches!(waitid(WaitId::Pid(id), look), Ok(None)) && begin.elapsed() < ENDING {
                thread::sleep(Duration::from_millis(20));
            }
            let _gone = kill_process_group(id, Signal::KILL);
        }
        let _status = self.child.wait();
    }
}

/// Messages, each ended by a zero, until the other end closes or nobody listens.
fn hear(mut answers: impl Read, sender: &Sender<Value>) {
    let (mut held, mut piece) = (Vec::new(), vec![0; 1 << 16]);
    while let Ok(count @ 1..) = answers.read(&mut piece) {
        held.extend_from_slice(piece.get(..count).unwrap_or_default());
        while let Some(end) = held.iter().position(|byte| *byte == 0) {
            let rest = held.split_off(end + 1);
            let message = std::mem::replace(&mut held, rest);
            let Ok(message) = serde_json::from_slice(message.get(..end).unwrap_or_default()) else {
                return;
            };
            if sender.send(message).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_split_at_zeros_wherever_they_come_apart() {
        let (sender, hears) = channel();
        let text: &[u8] = b"{\"id\":1}\0{\"id\":2}\0{\"i";
        hear(text.chain(&b"d\":3}\0{\"cut"[..]), &sender);
        drop(sender);
        let ids: Vec<u64> = hears.iter().filter_map(|message| message["id"].as_u64()).collect();
        assert_eq!(ids, [1, 2, 3]);
    }
}
