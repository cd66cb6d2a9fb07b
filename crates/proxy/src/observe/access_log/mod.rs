//! The access log: a JSON line for each request and tunnel, written at its end. It never holds
//! credentials: no `Authorization`, no user info, no query string.

mod queue;

use crate::settings::AccessLog as Setting;
use ekiden_linux::host::state_files;
use queue::{Queue, Sink};
use serde::Serialize;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

/// Which end broke off a request or a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CutBy {
    Client,
    /// Or an upstream proxy.
    Destination,
    /// A limit of this relay or of the account, an operator, or a stop.
    Relay,
}

#[derive(Debug, Serialize)]
pub(crate) struct Record<'a> {
    pub(crate) time: String,
    pub(crate) connection: u64,
    pub(crate) client: SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) account: Option<&'a str>,
    pub(crate) protocol: &'static str,
    pub(crate) method: Option<&'a str>,
    /// `host:port`, or the URL without its query.
    pub(crate) target: Option<&'a str>,
    /// Names of the upstream proxies.
    pub(crate) through: &'a [String],
    /// HTTP status to the client; for SOCKS the reply code.
    pub(crate) status: Option<u16>,
    pub(crate) bytes_up: u64,
    pub(crate) bytes_down: u64,
    pub(crate) seconds: f64,
    /// Absent where the transfer is whole, or the request failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cut_by: Option<CutBy>,
    /// How it ended, or why it failed.
    pub(crate) result: &'a str,
}

/// Connections share it, so that records after a reopen go to the new file.
#[derive(Debug)]
pub(crate) struct AccessLog {
    off: AtomicBool,
    queue: Arc<Queue>,
}

impl AccessLog {
    /// Fails when the file cannot be opened for appending, or there is no thread.
    pub(crate) fn open(setting: &Setting) -> io::Result<Self> {
        let this = Self { off: AtomicBool::new(true), queue: Arc::default() };
        let sink = this.prepare(setting)?;
        this.replace(sink);
        Ok(this)
    }

    /// Opens what is to take the place of the present sink. Fails as [`AccessLog::open`] does.
    pub(crate) fn prepare(&self, setting: &Setting) -> io::Result<Sink> {
        let sink = match setting {
            Setting::Off => return Ok(Sink::Off),
            Setting::Stderr => Sink::Stderr,
            Setting::File(path) => Sink::File(state_files::append_log(path)?),
        };
        self.queue.start()?;
        Ok(sink)
    }

    /// Records go there from now on; those of before still go where they were to go.
    pub(crate) fn replace(&self, sink: Sink) {
        let off = matches!(sink, Sink::Off);
        self.queue.replace(sink);
        self.off.store(off, Relaxed);
    }

    pub(crate) fn is_off(&self) -> bool {
        self.off.load(Relaxed)
    }

    /// Hands a line over, and waits for nothing.
    pub(crate) fn write(&self, record: &Record<'_>) {
        let Ok(mut line) = serde_json::to_string(record) else { return };
        line.push('\n');
        self.queue.push(line);
    }

    pub(crate) fn pending_lines(&self) -> PendingLines {
        PendingLines(Arc::clone(&self.queue))
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.queue.end();
    }
}

/// Lines of the access log on their way to it; also after the relay has ended.
#[derive(Debug, Clone)]
pub struct PendingLines(Arc<Queue>);

impl PendingLines {
    /// Blocks until the lines of before are written, `patience` at most. Returns whether they are; the relay's log
    /// tells how many are left out.
    pub fn wait(&self, patience: Duration) -> bool {
        self.0.wait(patience)
    }
}

pub(crate) fn timestamp() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, OFlags, fcntl_setfl, mkfifoat};
    use std::fs::{File, OpenOptions};
    use std::io::Read as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    use std::path::Path;
    use std::thread::{self, JoinHandle};

    /// Keeps a failing test from hanging.
    const LONG: Duration = Duration::from_secs(60);

    /// A log into a pipe, and the pipe's other end.
    fn into_pipe(folder: &Path) -> (AccessLog, File) {
        let path = folder.join("pipe");
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        // does not wait for who writes
        let end = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
        (AccessLog::open(&Setting::File(path)).unwrap(), end.unwrap())
    }

    /// All that comes until nobody writes any more.
    fn read(mut end: File) -> JoinHandle<String> {
        fcntl_setfl(&end, OFlags::empty()).unwrap();
        thread::spawn(move || {
            let mut text = String::new();
            end.read_to_string(&mut text).unwrap();
            text
        })
    }

    /// Writes lines of more than a kilobyte.
    fn write(log: &AccessLog, lines: u64) {
        let target = "x".repeat(1024);
        for connection in 0..lines {
            log.write(&Record {
                time: timestamp(),
                connection,
                client: ([192, 0, 2, 1], 1).into(),
                account: None,
                protocol: "http",
                method: None,
                target: Some(&target),
                through: &[],
                status: None,
                bytes_up: 0,
                bytes_down: 0,
                seconds: 0.0,
                cut_by: None,
                result: "closed",
            });
        }
    }

    #[test]
    fn a_pipe_that_nobody_reads_holds_nobody_up_and_lines_without_room_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let (log, end) = into_pipe(folder.path());
        // more than the queue and the pipe hold
        let due = 2 * queue::WAITING as u64 / 1024;
        write(&log, due);
        let left_out = log.queue.left_out();
        assert!(left_out > 0);
        let pending = log.pending_lines();
        assert!(!pending.wait(Duration::ZERO));
        let reading = read(end);
        assert!(pending.wait(LONG));
        drop(log);
        let text = reading.join().unwrap();
        assert_eq!(text.lines().count() as u64 + left_out, due);
        assert!(text.lines().all(|line| line.starts_with('{') && line.ends_with('}')));
    }

    #[test]
    fn lines_after_a_reload_come_behind_those_that_still_wait() {
        let folder = tempfile::tempdir().unwrap();
        let (log, end) = into_pipe(folder.path());
        // more than the pipe holds, and less than the queue does
        write(&log, 200);
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        for path in [&first, &second] {
            log.replace(log.prepare(&Setting::File(path.clone())).unwrap());
        }
        write(&log, 2);
        log.replace(Sink::Off);
        assert!(log.is_off());
        assert_eq!(std::fs::read_to_string(&second).unwrap(), "");
        let reading = read(end);
        assert!(log.pending_lines().wait(LONG));
        assert_eq!(reading.join().unwrap().lines().count(), 200);
        let lines = |path| std::fs::read_to_string(path).unwrap().lines().count();
        assert_eq!((lines(&first), lines(&second)), (0, 2));
        assert_eq!(log.queue.left_out(), 0);
    }

    #[test]
    fn a_line_that_cannot_be_written_is_counted() {
        let log = AccessLog::open(&Setting::File("/dev/full".into())).unwrap();
        write(&log, 3);
        assert!(log.pending_lines().wait(LONG));
        assert_eq!(log.queue.left_out(), 3);
    }

    #[test]
    fn a_line_at_which_the_thread_panics_is_counted_and_later_ones_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = AccessLog::open(&Setting::File(path.clone())).unwrap();
        // it goes there already
        assert!(log.pending_lines().wait(LONG));
        log.queue.panics.store(true, Relaxed);
        write(&log, 3);
        assert!(log.pending_lines().wait(LONG));
        assert_eq!(log.queue.left_out(), 1);
        assert_eq!(std::fs::read_to_string(path).unwrap().lines().count(), 2);
    }

    #[test]
    fn no_thread_begins_until_there_is_a_log() {
        let log = AccessLog::open(&Setting::Off).unwrap();
        log.replace(log.prepare(&Setting::Off).unwrap());
        assert!(!log.queue.has_thread() && log.is_off());
        assert!(log.pending_lines().wait(Duration::ZERO));
        log.replace(log.prepare(&Setting::Stderr).unwrap());
        assert!(log.queue.has_thread() && !log.is_off());
    }
}
