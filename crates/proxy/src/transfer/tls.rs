//! TLS on a TCP connection, and its bytes carried between it and a loopback connection, which the
//! rest of the relay uses like any other.

use crate::transfer::buffered::is_transient;
use crate::transfer::end::End;
use ekiden_model::units::Span;
use ekiden_tunnel::driver::DRAIN_WITHOUT_PROGRESS;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Bytes per read from the other side: the content of one TLS record (RFC 8446 §5.1).
pub(crate) const AT_ONCE: usize = 16 * 1024;

/// The memory that counts for a TLS connection: rustls's state, one record in each direction, and
/// the buffers of [`carry`].
pub(crate) const SESSION: usize = 64 * 1024;

/// What ended a direction before its end of stream.
enum Broken {
    Secure(io::Error),
    Plain(io::Error),
}

/// Carries bytes between `secure` and `plain` until both directions have ended. Once `ended` says
/// that nobody has the other end of `plain` any more, its output is delivered within `patience`.
/// After an error, which comes when the bytes before it are delivered, neither side may take the
/// other's end for an end of stream.
pub(crate) async fn carry(
    secure: impl AsyncRead + AsyncWrite,
    plain: &mut TcpStream,
    ended: impl Future<Output = ()>,
    patience: Span,
) -> io::Result<()> {
    let (from_secure, to_secure) = tokio::io::split(secure);
    let (from_plain, to_plain) = plain.split();
    let cut = AtomicBool::new(false);
    let inwards = inwards(from_secure, to_plain, &cut);
    let outwards = outwards(from_plain, to_secure, &cut);
    tokio::pin!(inwards, outwards, ended);
    let (mut inwards_done, mut outwards_done, mut over) = (false, false, None);
    // the kernel reports an error once, to either direction, and the other may have bytes to deliver
    let mut broken = None;
    while !(outwards_done && (inwards_done || (over.is_some() && broken.is_none()))) {
        let late = async {
            match over {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            done = &mut inwards, if !inwards_done => {
                inwards_done = true;
                match done {
                    Err(Broken::Plain(error)) if !outwards_done => broken = Some(error),
                    Err(Broken::Plain(error) | Broken::Secure(error)) => return Err(error),
                    Ok(()) => {}
                }
            }
            done = &mut outwards, if !outwards_done => {
                outwards_done = true;
                match done {
                    Err(Broken::Secure(error)) if !inwards_done => broken = Some(error),
                    Err(Broken::Plain(error) | Broken::Secure(error)) => return Err(error),
                    Ok(()) => {}
                }
            }
            () = &mut ended, if over.is_none() => over = Some(Instant::now() + Duration::from(patience)),
            () = late => return Err(io::ErrorKind::TimedOut.into()),
        }
        if broken.is_some() {
            let soon = Instant::now() + DRAIN_WITHOUT_PROGRESS;
            over = Some(over.map_or(soon, |until| until.min(soon)));
        }
    }
    broken.map_or(Ok(()), Err)
}

async fn inwards(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    cut: &AtomicBool,
) -> Result<(), Broken> {
    let mut bytes = vec![0; AT_ONCE];
    loop {
        let n = from.read(&mut bytes).await.map_err(Broken::Secure)?;
        let passed = match n {
            0 => to.shutdown().await,
            n => to.write_all(&bytes[..n]).await,
        };
        match passed {
            Ok(()) if n > 0 => {}
            // one that has ended its own direction and reads no more has sent its answer
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                cut.store(true, Relaxed);
                return Err(Broken::Plain(error));
            }
            Ok(()) | Err(_) => return Ok(()),
        }
    }
}

async fn outwards(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    cut: &AtomicBool,
) -> Result<(), Broken> {
    let mut bytes = vec![0; AT_ONCE];
    loop {
        let n = from.read(&mut bytes).await.map_err(Broken::Plain)?;
        // the other direction has met a reset, which looks like the end here
        if n == 0 && cut.load(Relaxed) {
            return Ok(());
        }
        if n == 0 {
            return to.shutdown().await.map_err(Broken::Secure);
        }
        to.write_all(&bytes[..n]).await.map_err(Broken::Secure)?;
        to.flush().await.map_err(Broken::Secure)?;
    }
}

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

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.finish();
        Poll::Ready(Ok(()))
    }
}
