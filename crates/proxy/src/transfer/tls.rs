//! A connection as TLS reads and writes it during a handshake.

use crate::transfer::end::End;
use crate::transfer::transient::is_transient;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A TCP connection as TLS reads and writes it, after bytes that were read before.
#[derive(Debug)]
pub(crate) struct TlsTransport {
    pub(crate) stream: End,
    early: Vec<u8>,
    used: usize,
}

impl TlsTransport {
    /// `early`: bytes of the other side that were read before.
    pub(crate) const fn new(stream: End, early: Vec<u8>) -> Self {
        Self { stream, early, used: 0 }
    }

    /// The connection, and what was read before and not used.
    pub(crate) fn into_parts(mut self) -> (End, Vec<u8>) {
        let rest = self.early.split_off(self.used.min(self.early.len()));
        (self.stream, rest)
    }
}

impl AsyncRead for TlsTransport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let early = self.early.get(self.used..).unwrap_or_default();
        if !early.is_empty() {
            let n = early.len().min(buffer.remaining());
            buffer.put_slice(&early[..n]);
            self.used += n;
            if self.used == self.early.len() {
                self.early = Vec::new();
                self.used = 0;
            }
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            match self.stream.try_read(buffer.initialize_unfilled()) {
                Ok(n) => {
                    buffer.advance(n);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if is_transient(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for TlsTransport {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(context))?;
            match self.stream.try_write(bytes) {
                Err(error) if is_transient(&error) => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.finish();
        Poll::Ready(Ok(()))
    }
}
