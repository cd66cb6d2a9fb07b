//! A connection of which so many bytes can be read, until more are allowed.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf, Take};

/// Reads as many bytes as its [`Allowance`] says. Then a read waits and wakes nobody: who allows more also reads again.
#[derive(Debug)]
pub(super) struct ReadLimit<S> {
    stream: Take<S>,
    left: Arc<AtomicUsize>,
}

/// What may still be read, for one task that reads.
#[derive(Debug)]
pub(super) struct Allowance(Arc<AtomicUsize>);

impl<S: AsyncRead> ReadLimit<S> {
    pub(super) fn new(stream: S, bytes: usize) -> (Self, Allowance) {
        let left = Arc::new(AtomicUsize::new(bytes));
        (Self { stream: stream.take(0), left: Arc::clone(&left) }, Allowance(left))
    }
}

impl Allowance {
    /// So many bytes from now on, whatever was left.
    pub(super) fn set(&mut self, bytes: usize) {
        self.0.store(bytes, Relaxed);
    }

    /// Whether a read would wait for more.
    pub(super) fn is_used_up(&self) -> bool {
        self.0.load(Relaxed) == 0
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadLimit<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let left = self.left.load(Relaxed);
        if left == 0 {
            return Poll::Pending;
        }
        self.stream.set_limit(left as u64);
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.left.store(left - (buffer.filled().len() - before).min(left), Relaxed);
        read
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ReadLimit<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.stream.get_mut()).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.stream.get_mut()).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.get_ref().is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.get_mut()).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn reads_what_is_allowed_and_then_waits() {
        let (mut stream, mut allowance) = ReadLimit::new(&b"a head and a body"[..], 6);
        let mut cx = Context::from_waker(Waker::noop());
        let mut read = |stream: &mut ReadLimit<&[u8]>| {
            let mut bytes = [0; 9];
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(stream).poll_read(&mut cx, &mut buffer) {
                Poll::Ready(read) => read.map(|()| buffer.filled().to_vec()).ok(),
                Poll::Pending => None,
            }
        };
        assert_eq!(read(&mut stream).unwrap(), b"a head");
        assert!(allowance.is_used_up());
        assert_eq!(read(&mut stream), None);
        allowance.set(100);
        assert_eq!(read(&mut stream).unwrap(), b" and a bo");
        assert_eq!(read(&mut stream).unwrap(), b"dy");
        assert!(!allowance.is_used_up());
        assert_eq!(read(&mut stream).unwrap(), b"", "the end is no wait");
        allowance.set(0);
        assert_eq!(read(&mut stream), None);
    }
}
