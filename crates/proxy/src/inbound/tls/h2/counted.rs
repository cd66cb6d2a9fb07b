//! A connection whose frames are counted, and read no faster than the account of its requests pays for them.

use super::frames::Frames;
use super::untaken::Untaken;
use crate::policy::quota::Framing;
use ekiden_linux::host::clock;
use ekiden_model::resources::quota::Direction;
use ekiden_model::units::Span;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// How long nothing is read at most, before the account is looked at again: another may have logged in.
const LOOK_AGAIN: Span = Span::from_secs(1);

/// Counts frames on their way.
pub(super) struct Counted<S> {
    stream: S,
    framing: Arc<Framing>,
    untaken: Arc<Untaken>,
    up: Frames,
    down: Frames,
}

/// When the account has paid for what was counted.
pub(super) struct Paid {
    framing: Arc<Framing>,
    again: Pin<Box<Sleep>>,
}

impl<S> Counted<S> {
    pub(super) fn new(stream: S, framing: Arc<Framing>, untaken: Arc<Untaken>) -> Self {
        Self { stream, framing, untaken, up: Frames::of_client(), down: Frames::default() }
    }

    fn on_moved(&mut self, direction: Direction, bytes: &[u8]) {
        let framing = match direction {
            Direction::Up => {
                let untaken = &self.untaken;
                self.up.read(bytes, |content, bytes| untaken.on_came(content, bytes))
            }
            Direction::Down => self.down.read(bytes, |_, _| {}),
        };
        self.framing.add(direction, framing);
    }
}

impl Paid {
    pub(super) fn new(framing: Arc<Framing>) -> Self {
        Self { framing, again: Box::pin(tokio::time::sleep(std::time::Duration::ZERO)) }
    }

    /// Whether more may be read; otherwise wakes the task when it may.
    pub(super) fn is_due(&mut self, cx: &mut Context<'_>) -> bool {
        let left = self.framing.settle().since(clock::now());
        if left == Span::ZERO {
            return true;
        }
        self.again.as_mut().reset(Instant::now() + left.min(LOOK_AGAIN).into());
        self.again.as_mut().poll(cx).is_ready()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.on_moved(Direction::Up, &buffer.filled()[before..]);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(n)) = written {
            self.on_moved(Direction::Down, &bytes[..n]);
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        if let Poll::Ready(Ok(n)) = written {
            let mut left = n;
            for slice in slices {
                let part = left.min(slice.len());
                self.on_moved(Direction::Down, &slice[..part]);
                left -= part;
            }
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
