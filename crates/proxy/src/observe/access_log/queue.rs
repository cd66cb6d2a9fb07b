//! Lines of the access log on their way to it. A thread writes them in their order, so that none that relays waits for
//! a disk.

use crate::observe::log_throttle::LogThrottle;
use ekiden_linux::host::panics::restarted_on_thread;
use ekiden_linux::host::sync::locked;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::mem;
#[cfg(test)]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Bytes of lines that wait at most: some 3,000 lines.
pub(super) const WAITING: usize = 1 << 20;

/// Where lines go.
#[derive(Debug)]
pub(crate) enum Sink {
    Off,
    Stderr,
    File(File),
}

impl Sink {
    /// One write per line, so that lines of several processes do not mix.
    fn write(&mut self, line: &str) -> io::Result<()> {
        match self {
            Self::Off => Ok(()),
            Self::Stderr => io::stderr().lock().write_all(line.as_bytes()),
            Self::File(file) => file.write_all(line.as_bytes()),
        }
    }
}

#[derive(Debug)]
enum Item {
    Line(String),
    /// Lines behind it go there.
    Sink(Sink),
}

#[derive(Debug, Default)]
struct Waiting {
    items: VecDeque<Item>,
    /// Of the lines among them.
    bytes: usize,
    /// Items since the start: those that were taken in, and those that are done.
    came: u64,
    done: u64,
    /// Lines since the start that found no room or could not be written, and how many of them the relay's log has told.
    left_out: u64,
    told: u64,
    /// The present sink is standard error, where the relay's own log goes, too.
    on_stderr: bool,
    has_thread: bool,
    /// Nothing comes any more.
    ended: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    on_came: Condvar,
    on_done: Condvar,
    throttle: LogThrottle,
    /// The thread is to panic at the next item.
    #[cfg(test)]
    pub(super) panics: AtomicBool,
}

impl Queue {
    /// Begins the thread, if there is none. Errors: there cannot be one.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<()> {
        let mut waiting = locked(&self.waiting);
        if !waiting.has_thread {
            let this = Arc::clone(self);
            thread::Builder::new().name("access log".to_owned()).spawn(move || this.run())?;
            waiting.has_thread = true;
        }
        Ok(())
    }

    /// Hands a line over. Where there is no room, it is left out and counted.
    pub(super) fn push(&self, mut line: String) {
        // its length counts
        line.shrink_to_fit();
        let mut waiting = locked(&self.waiting);
        if waiting.bytes + line.len() <= WAITING {
            waiting.bytes += line.len();
            waiting.came += 1;
            waiting.items.push_back(Item::Line(line));
            drop(waiting);
            self.on_came.notify_one();
            return;
        }
        waiting.left_out += 1;
        // who writes to a stuck standard error waits there, so the thread tells of it later
        let told = if waiting.on_stderr { None } else { self.now_told(&mut waiting) };
        drop(waiting);
        if let Some(left_out) = told {
            tell(left_out, "it does not take its lines");
        }
    }

    /// Lines that come from now on go to another sink. Has no effect without a thread.
    pub(super) fn replace(&self, sink: Sink) {
        let mut waiting = locked(&self.waiting);
        if !waiting.has_thread {
            return;
        }
        if let Some(Item::Sink(last)) = waiting.items.back_mut() {
            // no line has come for that one
            let unused = mem::replace(last, sink);
            drop(waiting);
            drop(unused);
            return;
        }
        waiting.came += 1;
        waiting.items.push_back(Item::Sink(sink));
        drop(waiting);
        self.on_came.notify_one();
    }

    /// Waits until all that has come is done, and tells what is not. Returns whether it is, after `patience` at most.
    pub(super) fn wait(&self, patience: Duration) -> bool {
        let waiting = locked(&self.waiting);
        let came = waiting.came;
        let is_undone = |waiting: &mut Waiting| waiting.done < came;
        let waited = self.on_done.wait_timeout_while(waiting, patience, is_undone);
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let undone = came.saturating_sub(waiting.done);
        let left_out = waiting.left_out + undone;
        let is_news = left_out > waiting.told && (undone == 0 || !waiting.on_stderr);
        if is_news {
            waiting.told = waiting.left_out;
        }
        drop(waiting);
        if is_news {
            let why = if undone > 0 {
                "it did not take its lines in time"
            } else {
                "it did not take its lines"
            };
            tell(left_out, why);
        }
        undone == 0
    }

    /// Nothing comes any more: the thread ends once it has written what waits.
    pub(super) fn end(&self) {
        locked(&self.waiting).ended = true;
        self.on_came.notify_one();
    }

    fn run(&self) {
        let mut sink = Sink::Off;
        restarted_on_thread("the access log", || self.work(&mut sink));
    }

    fn work(&self, sink: &mut Sink) {
        self.leave_out_taken();
        while let Some(item) = self.take() {
            #[cfg(test)]
            assert!(!self.panics.swap(false, Ordering::AcqRel), "a test asked for it");
            let wrote = match item {
                Item::Line(line) => sink.write(&line),
                Item::Sink(new) => {
                    *sink = new;
                    Ok(())
                }
            };
            self.on_written(&wrote, matches!(sink, Sink::Stderr));
        }
    }

    /// The line at which a panic ended the thread is not written.
    fn leave_out_taken(&self) {
        let mut waiting = locked(&self.waiting);
        let taken = waiting.came - waiting.items.len() as u64;
        waiting.left_out += taken - waiting.done;
        waiting.done = taken;
        drop(waiting);
        self.on_done.notify_all();
    }

    fn take(&self) -> Option<Item> {
        let is_idle = |waiting: &mut Waiting| waiting.items.is_empty() && !waiting.ended;
        let waiting = self.on_came.wait_while(locked(&self.waiting), is_idle);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        let item = waiting.items.pop_front()?;
        if let Item::Line(line) = &item {
            waiting.bytes -= line.len();
        }
        Some(item)
    }

    fn on_written(&self, wrote: &io::Result<()>, on_stderr: bool) {
        let mut waiting = locked(&self.waiting);
        waiting.done += 1;
        waiting.on_stderr = on_stderr;
        waiting.left_out += u64::from(wrote.is_err());
        let told = self.now_told(&mut waiting);
        drop(waiting);
        self.on_done.notify_all();
        match (told, wrote) {
            (Some(left_out), Err(error)) => tell(left_out, &error.to_string()),
            (Some(left_out), Ok(())) => tell(left_out, "it did not take its lines for a time"),
            (None, _) => {}
        }
    }

    /// How many lines are left out, if the relay's log is to tell it now.
    fn now_told(&self, waiting: &mut Waiting) -> Option<u64> {
        if waiting.left_out == waiting.told || !self.throttle.is_due() {
            return None;
        }
        waiting.told = waiting.left_out;
        Some(waiting.left_out)
    }

    #[cfg(test)]
    pub(super) fn left_out(&self) -> u64 {
        locked(&self.waiting).left_out
    }

    #[cfg(test)]
    pub(super) fn has_thread(&self) -> bool {
        locked(&self.waiting).has_thread
    }
}

fn tell(left_out: u64, error: &str) {
    tracing::error!(
        error,
        left_out,
        "cannot write the access log, and leaves lines out; check its file and its disk"
    );
}
