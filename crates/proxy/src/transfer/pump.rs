//! One direction of a connection: bytes from one end to the other, with back-pressure.
//!
//! A pump keeps only bytes that its sink does not accept at once, so an idle direction holds no
//! buffer and no pipe.

use crate::policy::quota::Meter;
use crate::transfer::budget::{ReservedMemory, TransferBudget};
use crate::transfer::buffered::is_transient;
use crate::transfer::end::End;
use crate::transfer::scratch::{SCRATCH, with_scratch};
use bytes::{Buf, Bytes};
use ekiden_linux::sockets::splice::Pipe;
use ekiden_model::control::copy_mode::{CopyMethod, CopySelector};
use ekiden_tunnel::driver::FlowStream;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{Interest, ReadBuf};

/// Bytes that are taken at a time from what is in memory already when the memory budget is spent.
const UNHELD: usize = 4 * 1024;
/// Pieces of a flow, a datagram's bytes each, that are written at a time.
const PIECES: usize = 64;

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
    budget: Arc<TransferBudget>,
}

impl Pump {
    /// A pump that begins with `early` bytes, read before, then moves `left` more, or all, as `meter` grants.
    pub(crate) fn new(
        from: End,
        to: End,
        early: Vec<u8>,
        left: Option<u64>,
        meter: Meter,
        budget: Arc<TransferBudget>,
    ) -> Self {
        let unmetered = if meter.is_on() { early.len() } else { 0 };
        let held = match early.is_empty() {
            true => HeldBytes::Nothing,
            // they are in memory already, so they are kept even if the budget is spent
            false => HeldBytes::Bytes { _memory: budget.reserve(early.len()), bytes: early, at: 0 },
        };
        let copy_selector = budget.copy_selector();
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
                HeldBytes::Pieces { pieces, .. } => write_pieces(&self.to, pieces),
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
            End::Tcp(_) | End::Tls(_) => usize::MAX,
            // what it does not take would have to be kept here
            End::Flow(flow) => {
                let room = flow.poll_room(cx);
                self.blocked = room.is_pending();
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
                    self.budget.pipe_size
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
                End::Tcp(_) | End::Tls(_) => self.poll_copy(cx, moved, most),
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
            Err(broken) => return Poll::Ready(Err(broken)),
        }
        Poll::Ready(Ok(()))
    }

    fn take_pipe(&mut self) -> Option<Pipe> {
        match std::mem::replace(&mut self.held, HeldBytes::Nothing) {
            HeldBytes::Pipe(pipe) => Some(pipe),
            _ => self.budget.pipes.take(),
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

    /// Reads into the thread's buffer and writes from it; keeps only what the sink does not accept.
    fn poll_copy(
        &mut self,
        cx: &mut Context<'_>,
        moved: &mut MovedBytes,
        most: usize,
    ) -> Polled<usize> {
        self.held = HeldBytes::Nothing;
        let most = self.most(SCRATCH.min(most));
        let Some(mut memory) = self.budget.reserve(SCRATCH) else {
            return self.poll_copy_unheld(cx, moved, most);
        };
        Poll::Ready(with_scratch(|scratch| {
            let read = self.from.try_read(&mut scratch[..most]).map_err(PumpError::Source)?;
            let bytes = &scratch[..read];
            let wrote = if read > 0 { write_some(&self.to, bytes)? } else { 0 };
            moved.bytes += wrote as u64;
            if wrote < read {
                memory.shrink_to(read - wrote);
                self.held = HeldBytes::Bytes {
                    bytes: bytes[wrote..].to_vec(),
                    at: 0,
                    _memory: Some(memory),
                };
            }
            Ok(read)
        }))
    }

    /// Copies so little that what the sink does not accept may be kept.
    fn copy_little(&mut self, moved: &mut MovedBytes, most: usize) -> Result<usize, PumpError> {
        with_scratch(|scratch| {
            let most = UNHELD.min(most);
            let read = self.from.try_read(&mut scratch[..most]).map_err(PumpError::Source)?;
            let wrote = if read > 0 { write_some(&self.to, &scratch[..read])? } else { 0 };
            moved.bytes += wrote as u64;
            if wrote < read {
                let bytes = scratch[wrote..read].to_vec();
                self.held = HeldBytes::Bytes { bytes, at: 0, _memory: None };
            }
            Ok(read)
        })
    }

    /// Passes on what has come out of a flow; keeps only what the sink does not accept.
    fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        moved: &mut MovedBytes,
        flow: &FlowStream,
        most: usize,
    ) -> Polled<usize> {
        self.held = HeldBytes::Nothing;
        let mut memory = self.budget.reserve(SCRATCH);
        let most = match memory {
            Some(_) => self.most(SCRATCH.min(most)),
            // the memory budget is spent: little, and only what has a taker
            None => {
                ready!(self.poll_sink(cx))?;
                self.most(UNHELD.min(most))
            }
        };
        let mut pieces = VecDeque::new();
        let read = ready!(flow.poll_pieces(cx, most, &mut pieces)).map_err(PumpError::Source)?;
        let mut wrote = 0;
        while !pieces.is_empty() {
            match write_pieces(&self.to, &mut pieces) {
                Ok(n) => wrote += n,
                Err(error) if is_transient(&error) => break,
                Err(error) => return Poll::Ready(Err(PumpError::Sink(error))),
            }
        }
        moved.bytes += wrote as u64;
        if !pieces.is_empty() {
            if let Some(memory) = &mut memory {
                memory.shrink_to(read - wrote);
            }
            self.held = HeldBytes::Pieces { pieces, _memory: memory };
        }
        Poll::Ready(Ok(read))
    }

    /// The same as [`Self::poll_copy`] when the memory budget is spent: peeks, and removes only what the sink accepted, by
    /// one more system call.
    fn poll_copy_unheld(
        &mut self,
        cx: &mut Context<'_>,
        moved: &mut MovedBytes,
        most: usize,
    ) -> Polled<usize> {
        ready!(self.poll_sink(cx))?;
        let Some(from) = self.from.socket() else {
            // decrypted bytes are in memory already, a record at most
            return Poll::Ready(self.copy_little(moved, most));
        };
        with_scratch(|scratch| {
            let mut seen = ReadBuf::new(&mut scratch[..most]);
            let seen = ready!(from.poll_peek(cx, &mut seen)).map_err(PumpError::Source)?;
            if seen == 0 {
                return Poll::Ready(Ok(0));
            }
            let wrote = write_some(&self.to, &scratch[..seen])?;
            moved.bytes += wrote as u64;
            let mut left = wrote;
            while left > 0 {
                // these bytes were peeked, so they are there
                match from.try_read(&mut scratch[..left]).map_err(PumpError::Source)? {
                    0 => {
                        return Poll::Ready(Err(PumpError::Source(
                            ErrorKind::UnexpectedEof.into(),
                        )));
                    }
                    n => left -= n,
                }
            }
            Poll::Ready(match wrote {
                // not the end: the sink accepts nothing now
                0 => Err(PumpError::Source(ErrorKind::WouldBlock.into())),
                n => Ok(n),
            })
        })
    }
}

/// Writes what the sink accepts now, possibly nothing. The kernel reports an error only once, so it
/// is returned at once: a later read would look like the end of the stream.
fn write_some(to: &End, bytes: &[u8]) -> Result<usize, PumpError> {
    match to.try_write(bytes) {
        Err(error) if is_transient(&error) => Ok(0),
        wrote => wrote.map_err(PumpError::Sink),
    }
}

/// Writes what the sink accepts now of some pieces, and takes that from them.
fn write_pieces(to: &End, pieces: &mut VecDeque<Bytes>) -> io::Result<usize> {
    let wrote = match to {
        End::Tcp(stream) => {
            let slices: Vec<_> =
                pieces.iter().take(PIECES).map(|piece| IoSlice::new(piece)).collect();
            stream.try_write_vectored(&slices)?
        }
        End::Tls(_) | End::Flow(_) => to.try_write(pieces.front().map_or(&[], |piece| piece))?,
    };
    let mut left = wrote;
    while let Some(first) = pieces.front_mut() {
        if left < first.len() {
            first.advance(left);
            break;
        }
        left -= first.len();
        pieces.pop_front();
    }
    Ok(wrote)
}
