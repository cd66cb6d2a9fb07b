//! A connection whose frames are counted, and read no faster than the account of its requests pays for them.

use super::control::ControlFrames;
use super::frames::{Event, Frames, Kind};
use super::kept::Kept;
use super::untaken::{Content, Untaken};
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
    kept: Arc<Kept>,
    control: Arc<ControlFrames>,
    up: Frames,
    down: Frames,
}

/// When the account has paid for what was counted.
pub(super) struct Paid {
    framing: Arc<Framing>,
    again: Pin<Box<Sleep>>,
}

impl<S> Counted<S> {
    pub(super) const fn new(
        stream: S,
        framing: Arc<Framing>,
        untaken: Arc<Untaken>,
        kept: Arc<Kept>,
        control: Arc<ControlFrames>,
    ) -> Self {
        let (up, down) = (Frames::of_client(), Frames::of_server());
        Self { stream, framing, untaken, kept, control, up, down }
    }

    fn on_moved(&mut self, direction: Direction, bytes: &[u8]) {
        let framing = match direction {
            Direction::Up => {
                let (untaken, mut kept) = (&self.untaken, self.kept.on_came(bytes.len()));
                let control = &self.control;
                self.up.read(bytes, |event| {
                    kept.on_event(&event);
                    match event {
                        Event::Began(kind) => control.on_began(kind, clock::now),
                        Event::Came(kind, bytes) => {
                            if let Some(content) = content(kind) {
                                untaken.on_came(content, bytes.len());
                            }
                        }
                        Event::Ended(_) => {}
                    }
                })
            }
            Direction::Down => self.down.read(bytes, |_| {}),
        };
        self.framing.add(direction, framing);
    }
}

/// Trailers are none.
const fn content(kind: Kind) -> Option<Content> {
    match kind {
        Kind::Body(_) => Some(Content::Body),
        Kind::Fields { stream, trailer: false, .. }
        | Kind::Continued { stream, trailer: false, .. } => Some(Content::Head(stream)),
        _ => None,
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
