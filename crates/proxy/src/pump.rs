//! One direction of a connection: bytes from one socket to another, with back-pressure.
//!
//! A pump holds bytes only while its sink cannot take them: what was read into the thread's buffer is
//! written at once, and only the rest is kept. So an idle direction holds no buffer and no pipe.

use crate::households::Meter;
use crate::incoming::is_transient;
use crate::means::{Means, Reserved, SCRATCH, with_scratch};
use ekiden_linux::splice::Pipe;
use ekiden_model::movement::{Movement, Way};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{Interest, ReadBuf};
use tokio::net::TcpStream;

/// Which end failed.
#[derive(Debug)]
pub(crate) enum Broken {
    /// Reading failed, or ended before the last byte that was announced.
    Source(io::Error),
    /// Writing failed.
    Sink(io::Error),
}

/// What a turn moved, for the counters.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Moved {
    pub(crate) bytes: u64,
    pub(crate) spliced: u64,
}

#[derive(Debug)]
enum Held {
    Nothing,
    /// Bytes read and not yet written, from `at` on.
    Bytes {
        bytes: Vec<u8>,
        at: usize,
        _memory: Option<Reserved>,
    },
    /// A pipe with bytes in it, or empty between two turns.
    Pipe(Pipe),
}

/// One direction.
#[derive(Debug)]
pub(crate) struct Pump {
    from: Arc<TcpStream>,
    to: Arc<TcpStream>,
    held: Held,
    /// Bytes still to be read; `None` up to the end of the stream.
    left: Option<u64>,
    movement: Movement,
    /// The source has nothing more.
    ended: bool,
    /// There are bytes that the sink does not take, or that may not go yet, so the source is not read.
    blocked: bool,
    /// What may be read, by the household's limits.
    meter: Meter,
    /// Of the bytes that were read before, those that may not go yet.
    unmetered: usize,
    means: Arc<Means>,
}

impl Pump {
    /// A pump that begins with `early` bytes that were read already, and then moves `left` more, or
    /// all there are; as fast as `meter` says.
    pub(crate) fn new(
        from: Arc<TcpStream>,
        to: Arc<TcpStream>,
        early: Vec<u8>,
        left: Option<u64>,
        meter: Meter,
        means: Arc<Means>,
    ) -> Self {
        let unmetered = if meter.is_on() { early.len() } else { 0 };
        let held = match early.is_empty() {
            true => Held::Nothing,
            // they are here already, so they are held also when the budget is spent
            false => Held::Bytes { _memory: means.reserve(early.len()), bytes: early, at: 0 },
        };
        let movement = means.movement();
        let ended = left == Some(0);
        Self { from, to, held, left, movement, ended, blocked: false, meter, unmetered, means }
    }

    /// Moves bytes until it has to wait. `Ready(Ok)` when the source has ended and everything is
    /// written; the sink is not shut down.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        moved: &mut Moved,
    ) -> Poll<Result<(), Broken>> {
        self.blocked = false;
        loop {
            ready!(self.poll_flush(cx, moved))?;
            if self.ended {
                self.held = Held::Nothing;
                return Poll::Ready(Ok(()));
            }
            match self.poll_fill(cx, moved) {
                Poll::Ready(result) => result?,
                Poll::Pending => {
                    // waiting, it keeps no pipe
                    if !self.holds_bytes() {
                        self.held = Held::Nothing;
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Whether it waits for its sink, or for its turn. Then it does not read, and an error of the source has
    /// to be watched for.
    pub(crate) const fn is_blocked(&self) -> bool {
        self.blocked
    }

    fn holds_bytes(&self) -> bool {
        match &self.held {
            Held::Nothing => false,
            Held::Bytes { .. } => true,
            Held::Pipe(pipe) => !pipe.is_empty(),
        }
    }

    /// Writes what is held.
    fn poll_flush(&mut self, cx: &mut Context<'_>, moved: &mut Moved) -> Poll<Result<(), Broken>> {
        while self.holds_bytes() {
            if self.unmetered > 0 {
                let may_go = ready!(self.poll_go(cx, self.unmetered))?;
                self.meter.on_moved(may_go);
                self.unmetered -= may_go;
            }
            ready!(self.poll_sink(cx))?;
            let unmetered = self.unmetered;
            let wrote = match &mut self.held {
                Held::Bytes { bytes, at, .. } => {
                    let end = bytes.len() - unmetered;
                    self.to.try_write(&bytes[*at..end]).inspect(|n| *at += n)
                }
                Held::Pipe(pipe) => {
                    let to = &self.to;
                    let wrote = to.try_io(Interest::WRITABLE, || pipe.drain(to.as_fd(), false));
                    wrote.inspect(|n| moved.spliced += *n as u64)
                }
                Held::Nothing => break,
            };
            match wrote {
                Ok(n) => moved.bytes += n as u64,
                Err(error) if is_transient(&error) => {}
                Err(error) => return Poll::Ready(Err(Broken::Sink(error))),
            }
            if matches!(&self.held, Held::Bytes { bytes, at, .. } if *at == bytes.len()) {
                self.held = Held::Nothing;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// How many bytes may go, of `want`.
    fn poll_go(&mut self, cx: &mut Context<'_>, want: usize) -> Poll<Result<usize, Broken>> {
        let go = self.meter.poll_go(cx, want);
        self.blocked = go.is_pending();
        go.map_err(Broken::Source)
    }

    fn poll_sink(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let ready = self.to.poll_write_ready(cx);
        self.blocked = ready.is_pending();
        ready.map_err(Broken::Sink)
    }

    /// Reads once; nothing is held.
    fn poll_fill(&mut self, cx: &mut Context<'_>, moved: &mut Moved) -> Poll<Result<(), Broken>> {
        let ready = self.from.poll_read_ready(cx);
        if ready.is_pending() {
            self.meter.rest();
        }
        ready!(ready).map_err(Broken::Source)?;
        let way = self.movement.way();
        let most = match self.meter.is_on() {
            false => usize::MAX,
            true => {
                let want = self.most(if way == Way::Copy { SCRATCH } else { self.means.pipe_size });
                ready!(self.poll_go(cx, want))?
            }
        };
        let read = match way {
            Way::Splice => match self.take_pipe() {
                Some(pipe) => Poll::Ready(self.splice(pipe, most).map_err(Broken::Source)),
                None => self.poll_copy(cx, moved, most),
            },
            Way::Copy => self.poll_copy(cx, moved, most),
        };
        self.meter.on_moved(match &read {
            Poll::Ready(Ok(n)) => *n,
            Poll::Ready(Err(_)) | Poll::Pending => 0,
        });
        match ready!(read) {
            Ok(0) => {
                self.ended = true;
                if self.left.is_some_and(|left| left > 0) {
                    let early = io::Error::from(ErrorKind::UnexpectedEof);
                    return Poll::Ready(Err(Broken::Source(early)));
                }
            }
            Ok(n) => {
                self.movement.on_moved(n);
                if let Some(left) = &mut self.left {
                    *left -= n as u64;
                    self.ended = *left == 0;
                }
            }
            Err(Broken::Source(error)) if is_transient(&error) => {}
            Err(broken) => return Poll::Ready(Err(broken)),
        }
        Poll::Ready(Ok(()))
    }

    fn take_pipe(&mut self) -> Option<Pipe> {
        match std::mem::replace(&mut self.held, Held::Nothing) {
            Held::Pipe(pipe) => Some(pipe),
            _ => self.means.pipes.take(),
        }
    }

    fn most(&self, room: usize) -> usize {
        self.left.map_or(room, |left| usize::try_from(left).unwrap_or(usize::MAX).min(room))
    }

    fn splice(&mut self, mut pipe: Pipe, most: usize) -> io::Result<usize> {
        let most = self.most(pipe.capacity().min(most));
        let from = &self.from;
        let read = from.try_io(Interest::READABLE, || pipe.fill(from.as_fd(), most));
        self.held = Held::Pipe(pipe);
        read
    }

    /// Reads into the thread's buffer and writes from it; only what the sink does not take is kept.
    fn poll_copy(
        &mut self,
        cx: &mut Context<'_>,
        moved: &mut Moved,
        most: usize,
    ) -> Poll<Result<usize, Broken>> {
        self.held = Held::Nothing;
        let most = self.most(SCRATCH.min(most));
        let Some(mut memory) = self.means.reserve(SCRATCH) else {
            return self.poll_copy_unheld(cx, moved, most);
        };
        Poll::Ready(with_scratch(|scratch| {
            let read = self.from.try_read(&mut scratch[..most]).map_err(Broken::Source)?;
            let bytes = &scratch[..read];
            let wrote = if read > 0 { write_some(&self.to, bytes)? } else { 0 };
            moved.bytes += wrote as u64;
            if wrote < read {
                memory.keep(read - wrote);
                self.held =
                    Held::Bytes { bytes: bytes[wrote..].to_vec(), at: 0, _memory: Some(memory) };
            }
            Ok(read)
        }))
    }

    /// The same when the budget of memory is spent: looks at the bytes, and takes out of the source's
    /// buffer only what the sink took. One system call more, but nobody waits for those who hold the
    /// memory.
    fn poll_copy_unheld(
        &mut self,
        cx: &mut Context<'_>,
        moved: &mut Moved,
        most: usize,
    ) -> Poll<Result<usize, Broken>> {
        ready!(self.poll_sink(cx))?;
        with_scratch(|scratch| {
            let mut seen = ReadBuf::new(&mut scratch[..most]);
            let seen = ready!(self.from.poll_peek(cx, &mut seen)).map_err(Broken::Source)?;
            if seen == 0 {
                return Poll::Ready(Ok(0));
            }
            let wrote = write_some(&self.to, &scratch[..seen])?;
            moved.bytes += wrote as u64;
            let mut left = wrote;
            while left > 0 {
                // they are there: they were seen
                match self.from.try_read(&mut scratch[..left]).map_err(Broken::Source)? {
                    0 => return Poll::Ready(Err(Broken::Source(ErrorKind::UnexpectedEof.into()))),
                    n => left -= n,
                }
            }
            Poll::Ready(match wrote {
                // not the end: the sink takes nothing now
                0 => Err(Broken::Source(ErrorKind::WouldBlock.into())),
                n => Ok(n),
            })
        })
    }
}

/// Writes what the sink takes now, perhaps nothing. An error is told at once: the kernel tells it only
/// once, and reading the same socket would then look like its end.
fn write_some(to: &TcpStream, bytes: &[u8]) -> Result<usize, Broken> {
    match to.try_write(bytes) {
        Err(error) if is_transient(&error) => Ok(0),
        wrote => wrote.map_err(Broken::Sink),
    }
}
