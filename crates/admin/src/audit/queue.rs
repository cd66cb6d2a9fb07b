//! Lines on their way to the disk. A thread writes them in their order, so that none that relays waits for it.

use super::Kind;
use ekiden_proxy::LogThrottle;
use std::fmt::Display;
use std::io;
use std::thread;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Lines that wait at most. Of refused calls half as many do: anybody can have calls refused.
pub(super) const WAITING: usize = 256;
/// An answer waits so long for its line. A disk that hangs has it later.
const PATIENCE: Duration = Duration::from_secs(5);

/// A line of a file.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) to: Kind,
    pub(super) bytes: Vec<u8>,
    /// What the relay's log has of it where it cannot be written.
    pub(super) words: String,
}

/// A line that was handed over.
#[derive(Debug)]
#[must_use = "an answer comes after its line"]
pub(crate) struct Written(pub(super) oneshot::Receiver<()>);

impl Written {
    /// One that has nothing to wait for.
    pub(super) fn at_once() -> Self {
        Self(oneshot::channel().1)
    }

    /// Returns when the line is written, or is not going to be, and after 5 s in any case.
    pub(crate) async fn wait(self) {
        let _late = tokio::time::timeout(PATIENCE, self.0).await;
    }
}

/// A line, or none where the queue ends; told when that is done.
#[derive(Debug)]
struct Item {
    line: Option<Line>,
    done: oneshot::Sender<()>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Queue(mpsc::Sender<Item>);

impl Queue {
    /// Each line is handed to `write`, one after the other. Errors: there is no thread.
    pub(super) fn start(
        write: impl FnMut(&Line) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, lines) = mpsc::channel(WAITING);
        thread::Builder::new().name("audit".to_owned()).spawn(move || run(lines, write))?;
        Ok(Self(sender))
    }

    /// Whether a refused call may have a line.
    pub(super) fn has_room_for_refused(&self) -> bool {
        self.0.capacity() > WAITING / 2
    }

    /// Hands a line over. Where there is no room, the relay's log has what happened.
    pub(super) fn push(&self, line: Line) -> Written {
        let (done, written) = oneshot::channel();
        if let Err(unsent) = self.0.try_send(Item { line: Some(line), done }) {
            let why = match &unsent {
                mpsc::error::TrySendError::Full(_) => "the disk does not answer",
                mpsc::error::TrySendError::Closed(_) => "the relay ends",
            };
            if let Some(line) = unsent.into_inner().line {
                log_unwritten(&line, why);
            }
        }
        Written(written)
    }

    /// Takes no further line, and returns once those of before are written.
    pub(super) async fn end(&self) {
        let (done, all_written) = oneshot::channel();
        if self.0.send(Item { line: None, done }).await.is_ok() {
            let _all = all_written.await;
        }
    }
}

/// Writes until the queue ends, or nobody holds it.
fn run(mut lines: mpsc::Receiver<Item>, mut write: impl FnMut(&Line) -> io::Result<()>) {
    let mut end = None;
    while let Some(Item { line, done }) = lines.blocking_recv() {
        let Some(line) = line else {
            // what came meanwhile is still written
            lines.close();
            end = Some(done);
            continue;
        };
        if let Err(error) = write(&line) {
            log_unwritten(&line, &error);
        }
        let _gone = done.send(());
    }
    if let Some(end) = end {
        let _gone = end.send(());
    }
}

/// Who cannot write may still have to switch an account off.
fn log_unwritten(line: &Line, why: impl Display) {
    // a stranger may be refused without end; of changes each is on record
    static SAID: LogThrottle = LogThrottle::new();
    if line.to != Kind::Refused || SAID.is_due() {
        tracing::error!(error = %why, "the audit log cannot be written; on record here: {}", line.words);
    }
}
