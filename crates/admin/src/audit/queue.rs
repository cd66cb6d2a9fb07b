//! Lines on their way to the disk. A thread writes them in their order, so that none that relays waits for it.

use super::Kind;
use ekiden_linux::host::panics::message;
use ekiden_proxy::LogThrottle;
use std::fmt::Display;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Lines that wait at most. Of refused calls half as many do: anybody can have calls refused.
pub(super) const WAITING: usize = 256;
/// An answer waits so long for its line. A disk that hangs has it later, or never.
const PATIENCE: Duration = Duration::from_secs(5);
const HANGS: &str = "the disk does not answer";

/// A line of a file.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) to: Kind,
    /// With its end. The relay's log has it where it cannot be written.
    pub(super) text: Arc<str>,
}

/// A line that was handed over.
#[derive(Debug)]
#[must_use = "an answer comes after its line"]
pub(crate) struct Written {
    pub(super) done: oneshot::Receiver<()>,
    /// What has to be on record before the answer; of refusals nothing.
    line: Option<Line>,
}

impl Written {
    /// One that has nothing to wait for.
    pub(super) fn at_once() -> Self {
        Self { done: oneshot::channel().1, line: None }
    }

    /// Returns when the line is written, or is not going to be, and after 5 s in any case. The relay's log has it then:
    /// the relay may end before the disk answers.
    pub(crate) async fn wait(self) {
        let is_late = tokio::time::timeout(PATIENCE, self.done).await.is_err();
        if let Some(line) = self.line.filter(|_| is_late) {
            log_unwritten(&line, HANGS);
        }
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
        let kept = (line.to != Kind::Refused).then(|| line.clone());
        if let Err(unsent) = self.0.try_send(Item { line: Some(line), done }) {
            let why = match &unsent {
                mpsc::error::TrySendError::Full(_) => HANGS,
                mpsc::error::TrySendError::Closed(_) => "the relay ends",
            };
            if let Some(line) = unsent.into_inner().line {
                log_unwritten(&line, why);
            }
        }
        Written { done: written, line: kept }
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
        // the lines behind it are still written
        match catch_unwind(AssertUnwindSafe(|| write(&line))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => log_unwritten(&line, &error),
            Err(panic) => log_unwritten(&line, message(panic.as_ref())),
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
        let text = line.text.trim_end();
        tracing::error!(error = %why, "the audit log cannot be written; on record here: {text}");
    }
}
