//! One direction of a connection: bytes from one end to the other, with back-pressure.
//!
//! A pump keeps only bytes that its sink does not accept at once, so an idle direction holds no
//! buffer and no pipe.

mod copy;

use crate::policy::quota::Meter;
use crate::transfer::budget::{CountedMemory, EarlyBytes, ReservedMemory, TransferShare};
use crate::transfer::end::End;
use crate::transfer::scratch::SCRATCH;
use crate::transfer::transient::is_transient;
use bytes::Bytes;
use ekiden_linux::sockets::splice::Pipe;
use ekiden_model::control::copy_mode::{CopyMethod, CopySelector};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::Interest;

#[derive(Debug)]
pub(crate) enum PumpError {
    Source(io::Error),
    Sink(io::Error),
}

type Polled<T = ()> = Poll<Result<T, PumpError>>;

/// Bytes moved by one poll, for the counters.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct MovedBytes {
    pub(crate) bytes: u64,
    pub(crate) spliced: u64,
}

#[derive(Debug)]
enum HeldBytes {
    Nothing,
    /// Bytes read but not written, from `at` on.
    Bytes {
        bytes: Vec<u8>,
        at: usize,
        _memory: Option<ReservedMemory>,
        /// What counts them in its place.
        _counted: Option<Box<dyn CountedMemory>>,
    },
    /// Bytes of a flow, as they came.
    Pieces {
        pieces: VecDeque<Bytes>,
        _memory: Option<ReservedMemory>,
    },
    /// A pipe with bytes in it, or empty between two reads.
    Pipe(Pipe),
}

#[derive(Debug)]
pub(crate) struct Pump {
    from: End,
    to: End,
    held: HeldBytes,
    /// Bytes still to read; `None`: up to the end of the stream.
    left: Option<u64>,
    copy_selector: CopySelector,
    ended: bool,
    /// The sink or the meter blocks it, so the source is not read.
    blocked: bool,
    meter: Meter,
    /// Of the early bytes, those that the meter has not granted yet.
    unmetered: usize,
    budget: TransferShare,
}

impl Pump {
    /// A pump that begins with `early` bytes, read before, then moves `left` more, or all, as `meter` grants.
    pub(crate) fn new(
        from: End,
        to: End,
        early: impl Into<EarlyBytes>,
        left: Option<u64>,
        meter: Meter,
        budget: TransferShare,
    ) -> Self {
        let EarlyBytes { bytes, counted } = early.into();
        let unmetered = if meter.is_on() { bytes.len() } else { 0 };
        let held = if bytes.is_empty() {
            HeldBytes::Nothing
        } else {
            // they are in memory already, so they are kept even if the budget is spent
            let memory = budget.reserve(bytes.len());
            let counted = counted.filter(|_| memory.is_none());
            HeldBytes::Bytes { bytes, at: 0, _memory: memory, _counted: counted }
        };
        let copy_selector = budget.all().copy_selector();
        let ended = left == Some(0);
        Self {
            from,
            to,
            held,
            left,
            copy_selector,
            ended,
            blocked: false,
            meter,
            unmetered,
            budget,
        }
    }

    /// Moves bytes until it must wait. `Ready(Ok)`: the source has ended and all is written; the
    /// sink is open.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, moved: &mut MovedBytes) -> Polled {
        self.blocked = false;
        loop {
            ready!(self.poll_flush(cx, moved))?;
            if self.ended {
                self.held = HeldBytes::Nothing;
                ready!(self.poll_send(cx))?;
                return Poll::Ready(Ok(()));
            }
            match self.poll_fill(cx, moved) {
                Poll::Ready(result) => result?,
                Poll::Pending => {
                    // a waiting pump keeps no pipe
                    if !self.holds_bytes() {
                        self.held = HeldBytes::Nothing;
                    }
                    if let Poll::Ready(Err(broken)) = self.poll_send(cx) {
                        return Poll::Ready(Err(broken));
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Whether the sink or the meter blocks it: errors of the source, not read then, need another
    /// watch.
    pub(crate) const fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// It is polled no more: a turn that it waits for goes to others.
    pub(crate) fn give_up(&mut self) {
        self.meter.rest();
    }

    fn holds_bytes(&self) -> bool {
        match &self.held {
            HeldBytes::Nothing => false,
            HeldBytes::Bytes { .. } | HeldBytes::Pieces { .. } => true,
            HeldBytes::Pipe(pipe) => !pipe.is_empty(),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>, moved: &mut MovedBytes) -> Polled {
        while self.holds_bytes() {
            if self.unmetered > 0 {
                let may_go = ready!(self.poll_grant(cx, self.unmetered))?;
                self.meter.on_moved(may_go);
                self.unmetered -= may_go;
            }
            ready!(self.poll_sink(cx))?;
            let unmetered = self.unmetered;
            let wrote = match &mut self.held {
                HeldBytes::Bytes { bytes, at, .. } => {
                    let end = bytes.len() - unmetered;
                    self.to.try_write(&bytes[*at..end]).inspect(|n| *at += n)
                }
                HeldBytes::Pieces { pieces, .. } => copy::write_pieces(&self.to, pieces),
                HeldBytes::Pipe(pipe) => {
                    // only between sockets
                    let Some(to) = self.to.socket() else { break };
                    let wrote = to.try_io(Interest::WRITABLE, || pipe.drain(to.as_fd(), false));
                    wrote.inspect(|n| moved.spliced += *n as u64)
                }
                HeldBytes::Nothing => break,
            };
            match wrote {
                Ok(n) => moved.bytes += n as u64,
                Err(error) if is_transient(&error) => {}
                Err(error) => return Poll::Ready(Err(PumpError::Sink(error))),
            }
            let written = match &self.held {
                HeldBytes::Bytes { bytes, at, .. } => *at == bytes.len(),
                HeldBytes::Pieces { pieces, .. } => pieces.is_empty(),
                HeldBytes::Nothing | HeldBytes::Pipe(_) => false,
            };
            if written {
                self.held = HeldBytes::Nothing;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_grant(&mut self, cx: &mut Context<'_>, want: usize) -> Polled<usize> {
        let go = self.meter.poll_grant(cx, want);
        self.blocked = go.is_pending();
        go.map_err(PumpError::Source)
    }

    /// Sends what a TLS sink keeps.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Polled {
        let sent = self.to.poll_flush(cx);
        self.blocked |= sent.is_pending();
        sent.map_err(PumpError::Sink)
    }

    fn poll_sink(&mut self, cx: &mut Context<'_>) -> Polled {
        let ready = self.to.poll_write_ready(cx);
        self.blocked = ready.is_pending();
        ready.map_err(PumpError::Sink)
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>, moved: &mut MovedBytes) -> Polled {
        let ready = self.from.poll_read_ready(cx);
        if ready.is_pending() {
            self.meter.rest();
        }
        ready!(ready).map_err(PumpError::Source)?;
        let room = match &self.to {
            End::Tcp(_) | End::Tls(_) | End::Pipe(_) => usize::MAX,
            // what it does not take would have to be kept here
            End::Flow(flow) => {
                let room = flow.poll_room(cx);
                self.blocked = room.is_pending();
                if self.blocked {
                    // others fill what is shared, perhaps for as long as they wait for this one's turn
                    self.meter.rest();
                }
                ready!(room).map_err(PumpError::Sink)?
            }
        };
        let method = match (&self.from, &self.to) {
            (End::Tcp(_), End::Tcp(_)) => self.copy_selector.method(),
            _ => CopyMethod::Copy,
        };
        let most = match self.meter.is_on() {
            false => usize::MAX,
            true => {
                let want = self.most(if method == CopyMethod::Copy {
                    SCRATCH
                } else {
                    self.budget.all().pipe_size
                });
                ready!(self.poll_grant(cx, want.min(room)))?
            }
        };
        let most = most.min(room);
        let read = match method {
            CopyMethod::Splice => match self.take_pipe() {
                Some(pipe) => Poll::Ready(self.splice(pipe, most).map_err(PumpError::Source)),
                None => self.poll_copy(cx, moved, most),
            },
            CopyMethod::Copy => match &self.from {
                End::Tcp(_) | End::Tls(_) | End::Pipe(_) => self.poll_copy(cx, moved, most),
                End::Flow(flow) => {
                    let flow = Arc::clone(flow);
                    self.poll_pass(cx, moved, &flow, most)
                }
            },
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
                    return Poll::Ready(Err(PumpError::Source(early)));
                }
            }
            Ok(n) => {
                self.copy_selector.on_moved(n);
                if let Some(left) = &mut self.left {
                    *left -= n as u64;
                    self.ended = *left == 0;
                }
            }
            Err(PumpError::Source(error)) if is_transient(&error) => {}
            Err(broken) => {
                // another poll sends what came before
                self.ended |= matches!(broken, PumpError::Source(_)) && self.left.is_none();
                return Poll::Ready(Err(broken));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn take_pipe(&mut self) -> Option<Pipe> {
        match std::mem::replace(&mut self.held, HeldBytes::Nothing) {
            HeldBytes::Pipe(pipe) => Some(pipe),
            _ => self.budget.all().pipes.take(),
        }
    }

    fn most(&self, room: usize) -> usize {
        self.left.map_or(room, |left| usize::try_from(left).unwrap_or(usize::MAX).min(room))
    }

    fn splice(&mut self, mut pipe: Pipe, most: usize) -> io::Result<usize> {
        let most = self.most(pipe.capacity().min(most));
        let read = match self.from.socket() {
            Some(from) => from.try_io(Interest::READABLE, || pipe.fill(from.as_fd(), most)),
            None => Err(ErrorKind::Unsupported.into()),
        };
        self.held = HeldBytes::Pipe(pipe);
        read
    }
}
