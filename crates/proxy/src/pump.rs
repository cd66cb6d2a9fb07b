//! One direction of a connection: bytes from one socket to another, with back-pressure.
//!
//! A pump holds bytes only while its sink cannot take them: what was read into the thread's buffer is
//! written at once, and only the rest is kept. So an idle direction holds no buffer and no pipe.

use crate::means::{Means, Reserved, SCRATCH, with_scratch};
use ekiden_linux::splice::Pipe;
use ekiden_model::movement::{Movement, Way};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::Interest;
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
    means: Arc<Means>,
}

impl Pump {
    /// A pump that begins with `early` bytes that were read already, and then moves `left` more, or
    /// all there are.
    pub(crate) fn new(
        from: Arc<TcpStream>,
        to: Arc<TcpStream>,
        early: Vec<u8>,
        left: Option<u64>,
        means: Arc<Means>,
    ) -> Self {
        let held = match early.is_empty() {
            true => Held::Nothing,
            // at most a head's worth, which has its own budget
            false => Held::Bytes { bytes: early, at: 0, _memory: None },
        };
        let movement = means.movement();
        Self { from, to, held, left, movement, ended: left == Some(0), means }
    }

    /// Moves bytes until it has to wait. `Ready(Ok)` when the source has ended and everything is
    /// written; the sink is not shut down.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        moved: &mut Moved,
    ) -> Poll<Result<(), Broken>> {
        loop {
            ready!(self.poll_flush(cx, moved))?;
            if self.ended {
                self.held = Held::Nothing;
                return Poll::Ready(Ok(()));
            }
            match self.poll_fill(cx, moved) {
                Poll::Ready(result) => result?,
                Poll::Pending => {
                    // waiting for the source, it keeps no pipe
                    if !self.holds_bytes() {
                        self.held = Held::Nothing;
                    }
                    return Poll::Pending;
                }
            }
        }
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
            ready!(self.to.poll_write_ready(cx)).map_err(Broken::Sink)?;
            let wrote = match &mut self.held {
                Held::Bytes { bytes, at, .. } => {
                    self.to.try_write(&bytes[*at..]).inspect(|n| *at += n)
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

    /// Reads once; nothing is held.
    fn poll_fill(&mut self, cx: &mut Context<'_>, moved: &mut Moved) -> Poll<Result<(), Broken>> {
        ready!(self.from.poll_read_ready(cx)).map_err(Broken::Source)?;
        let read = match self.movement.way() {
            Way::Splice => match self.take_pipe() {
                Some(pipe) => self.splice(pipe),
                None => ready!(self.poll_copy(cx, moved)),
            },
            Way::Copy => ready!(self.poll_copy(cx, moved)),
        };
        match read {
            Ok(0) => {
                self.ended = true;
                if self.left.is_some_and(|left| left > 0) {
                    let early = io::Error::from(io::ErrorKind::UnexpectedEof);
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
            Err(error) if is_transient(&error) => {}
            Err(error) => return Poll::Ready(Err(Broken::Source(error))),
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

    fn splice(&mut self, mut pipe: Pipe) -> io::Result<usize> {
        let most = self.most(pipe.capacity());
        let from = &self.from;
        let read = from.try_io(Interest::READABLE, || pipe.fill(from.as_fd(), most));
        self.held = Held::Pipe(pipe);
        read
    }

    /// Reads into the thread's buffer and writes from it; only what the sink does not take is kept.
    fn poll_copy(&mut self, cx: &Context<'_>, moved: &mut Moved) -> Poll<io::Result<usize>> {
        self.held = Held::Nothing;
        let Some(mut memory) = self.means.reserve(SCRATCH, cx.waker()) else {
            return Poll::Pending;
        };
        let most = self.most(SCRATCH);
        Poll::Ready(with_scratch(|scratch| {
            let read = self.from.try_read(&mut scratch[..most])?;
            let bytes = &scratch[..read];
            // an error here comes again at the flush, which knows whose it is
            let wrote = if read > 0 { self.to.try_write(bytes).unwrap_or(0) } else { 0 };
            moved.bytes += wrote as u64;
            if wrote < read {
                memory.keep(read - wrote);
                self.held =
                    Held::Bytes { bytes: bytes[wrote..].to_vec(), at: 0, _memory: Some(memory) };
            }
            Ok(read)
        }))
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
