//! The ways of a pump that copy: through the thread's buffer, out of a flow, and with the memory budget spent.

use super::{HeldBytes, MovedBytes, Polled, Pump, PumpError};
use crate::transfer::end::End;
use crate::transfer::scratch::{SCRATCH, with_scratch};
use crate::transfer::transient::is_transient;
use bytes::{Buf, Bytes};
use ekiden_tunnel::driver::FlowStream;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::task::{Context, Poll, ready};
use tokio::io::ReadBuf;

/// Bytes that are taken at a time from what is in memory already when the memory budget is spent.
const UNHELD: usize = 4 * 1024;
/// Pieces of a flow, a datagram's bytes each, that are written at a time.
const PIECES: usize = 64;

impl Pump {
    /// Reads into the thread's buffer and writes from it; keeps only what the sink does not accept.
    pub(super) fn poll_copy(
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
                    _counted: None,
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
                self.held = HeldBytes::Bytes { bytes, at: 0, _memory: None, _counted: None };
            }
            Ok(read)
        })
    }

    /// Passes on what has come out of a flow; keeps only what the sink does not accept.
    pub(super) fn poll_pass(
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
pub(super) fn write_pieces(to: &End, pieces: &mut VecDeque<Bytes>) -> io::Result<usize> {
    let wrote = match to {
        End::Tcp(stream) => {
            let slices: Vec<_> =
                pieces.iter().take(PIECES).map(|piece| IoSlice::new(piece)).collect();
            stream.try_write_vectored(&slices)?
        }
        // a record, or a flow's packets, for all of them
        End::Tls(_) | End::Pipe(_) | End::Flow(_) => with_scratch(|scratch| {
            let mut at = 0;
            for piece in pieces.iter() {
                let some = piece.len().min(scratch.len() - at);
                scratch[at..at + some].copy_from_slice(&piece[..some]);
                at += some;
                if at == scratch.len() {
                    break;
                }
            }
            to.try_write(&scratch[..at])
        })?,
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
