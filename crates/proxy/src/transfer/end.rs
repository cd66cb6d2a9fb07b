//! One end of a connection: a socket, TLS on one, a pipe within this process, or a flow of a peer's tunnel. All have the
//! calls of tokio's TCP socket.

use crate::observe::leg_stats::TlsLeg;
use crate::transfer::pipe::Pipe;
use crate::transfer::tls_session::TlsSession;
use crate::transfer::transient::is_transient;
use ekiden_linux::sockets::apply::Inherited;
use ekiden_linux::sockets::options::SocketOptions;
use ekiden_linux::sockets::outcome::Outcomes;
use ekiden_linux::sockets::socket;
use ekiden_tunnel::driver::{FlowStream, wait_until_sent};
use ekiden_tunnel::frame::reason::Reason;
use socket2::SockRef;
use std::future::poll_fn;
use std::io::{self, ErrorKind, Read as _};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::coop::consume_budget;
use tokio::time::timeout;

/// After a break, how long the bytes that came before may take in all: 64 kbit/s deliver 4.8 MB. A reset promises nobody
/// that they arrive (RFC 9293 §3.10.7.4), and what holds them has ended.
pub(crate) const DRAIN_AT_MOST: Duration = Duration::from_secs(600);

/// A socket, a TLS session, a pipe or a flow. Clones are the same end.
#[derive(Debug, Clone)]
pub(crate) enum End {
    Tcp(Arc<TcpStream>),
    Tls(Arc<TlsSession>),
    Pipe(Arc<Pipe>),
    Flow(Arc<FlowStream>),
}

impl From<TcpStream> for End {
    fn from(stream: TcpStream) -> Self {
        Self::Tcp(Arc::new(stream))
    }
}

impl End {
    pub(crate) const fn socket(&self) -> Option<&Arc<TcpStream>> {
        match self {
            Self::Tcp(stream) => Some(stream),
            Self::Tls(_) | Self::Pipe(_) | Self::Flow(_) => None,
        }
    }

    /// Its socket, not kept open; the others have none of their own.
    pub(crate) fn downgrade(&self) -> Weak<TcpStream> {
        self.socket().map(Arc::downgrade).unwrap_or_default()
    }

    /// Its TLS session, or the stream within one, for the registry, not kept open.
    pub(crate) fn tls_leg(&self) -> Option<Weak<dyn TlsLeg>> {
        let session: Arc<dyn TlsLeg> = match self {
            Self::Tls(session) => Arc::clone(session) as _,
            Self::Pipe(pipe) => Arc::clone(pipe) as _,
            Self::Tcp(_) | Self::Flow(_) => return None,
        };
        Some(Arc::downgrade(&session))
    }

    fn own_socket(&self) -> io::Result<&Arc<TcpStream>> {
        match self {
            Self::Tcp(stream) => Ok(stream),
            Self::Tls(session) => session.carrier().own_socket(),
            Self::Pipe(_) | Self::Flow(_) => {
                Err(io::Error::new(ErrorKind::Unsupported, "a stream has no socket"))
            }
        }
    }

    /// Sets the options of a leg's profile on an accepted connection; what is no socket has none.
    pub(crate) fn apply(&self, options: &SocketOptions, inherited: Inherited) -> Option<Outcomes> {
        self.socket().map(|stream| options.apply_accepted(stream.as_fd(), inherited))
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.own_socket()?.local_addr()
    }

    /// Waits for the first bytes and leaves them there. Flows are not asked.
    pub(crate) async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let peeked = match self {
                Self::Tls(session) => session.try_peek(bytes),
                Self::Pipe(pipe) => pipe.try_peek(bytes),
                Self::Tcp(_) | Self::Flow(_) => return self.own_socket()?.peek(bytes).await,
            };
            match peeked {
                Err(error) if is_transient(&error) => self.readable().await?,
                peeked => return peeked,
            }
        }
    }

    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(cx),
            Self::Tls(session) => session.poll_read_ready(cx),
            Self::Pipe(pipe) => pipe.poll_read_ready(cx).map(Ok),
            Self::Flow(flow) => flow.poll_read_ready(cx).map(Ok),
        }
    }

    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_write_ready(cx),
            Self::Tls(session) => session.poll_write_ready(cx),
            Self::Pipe(pipe) => pipe.poll_write_ready(cx).map(Ok),
            Self::Flow(flow) => flow.poll_room(cx).map_ok(|_| ()),
        }
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        // a socket that always has bytes must not keep other tasks from their turn
        consume_budget().await;
        match self {
            Self::Tcp(stream) => stream.readable().await,
            Self::Tls(_) | Self::Pipe(_) => poll_fn(|cx| self.poll_read_ready(cx)).await,
            Self::Flow(flow) => {
                flow.readable().await;
                Ok(())
            }
        }
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.writable().await,
            Self::Tls(_) | Self::Pipe(_) => poll_fn(|cx| self.poll_write_ready(cx)).await,
            Self::Flow(flow) => flow.writable().await,
        }
    }

    pub(crate) fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => try_read_tcp(stream, bytes),
            Self::Tls(session) => session.try_read(bytes),
            Self::Pipe(pipe) => pipe.try_read(bytes),
            Self::Flow(flow) => flow.try_read(bytes),
        }
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Tls(session) => session.try_write(bytes),
            Self::Pipe(pipe) => pipe.try_write(bytes),
            Self::Flow(flow) => flow.try_write(bytes),
        }
    }

    /// Waits until the end breaks, whether it is read or not.
    pub(crate) async fn broken(&self) {
        match self {
            // fails where the runtime ends
            Self::Tcp(stream) => drop(stream.ready(Interest::ERROR).await),
            Self::Tls(session) => Box::pin(session.carrier().broken()).await,
            Self::Pipe(pipe) => pipe.broken().await,
            Self::Flow(flow) => flow.broken().await,
        }
    }

    /// What broke, after [`Self::broken`].
    pub(crate) fn error(&self) -> io::Error {
        let found = match self {
            Self::Tcp(stream) => socket::take_error(stream.as_fd()).ok().flatten(),
            Self::Tls(session) => return session.carrier().error(),
            Self::Pipe(_) => None,
            Self::Flow(flow) => flow.room().err(),
        };
        found.unwrap_or_else(|| ErrorKind::ConnectionReset.into())
    }

    /// Whether there is nothing to read: no bytes, no end, no error. For a socket whose readiness was awaited.
    pub(crate) fn would_block(&self) -> bool {
        match self {
            Self::Tcp(stream) => {
                let mut byte = [MaybeUninit::uninit()];
                let peek = || SockRef::from(&**stream).peek(&mut byte).map(|_| ());
                let peeked = stream.try_io(Interest::READABLE, peek);
                peeked.is_err_and(|error| is_transient(&error))
            }
            Self::Tls(session) => {
                session.try_peek(&mut [0]).is_err_and(|error| is_transient(&error))
            }
            Self::Pipe(pipe) => !pipe.is_readable(),
            Self::Flow(flow) => !flow.is_readable(),
        }
    }

    /// Whether the other side has closed or broken it.
    pub(crate) fn is_gone(&self) -> bool {
        match self {
            Self::Tcp(stream) => {
                let mut byte = [MaybeUninit::uninit()];
                match SockRef::from(&**stream).peek(&mut byte) {
                    Ok(n) => n == 0,
                    Err(error) => error.kind() != ErrorKind::WouldBlock,
                }
            }
            Self::Tls(session) => session.carrier().is_gone(),
            Self::Pipe(pipe) => pipe.is_gone(),
            Self::Flow(flow) => flow.is_broken(),
        }
    }

    /// Whether bytes have arrived that nobody has read.
    pub(crate) fn has_spoken(&self) -> bool {
        match self {
            Self::Tcp(stream) => {
                let mut byte = [MaybeUninit::uninit()];
                SockRef::from(&**stream).peek(&mut byte).is_ok_and(|n| n > 0)
            }
            Self::Tls(session) => session.has_spoken(),
            Self::Pipe(pipe) => pipe.has_spoken(),
            Self::Flow(flow) => flow.view().status().is_some_and(|flow| flow.held > 0),
        }
    }

    /// Ends what is read from it, and wakes its reader.
    pub(crate) fn shut_reading(&self) {
        match self {
            // fails only when the other end is gone
            Self::Tcp(stream) => drop(SockRef::from(&**stream).shutdown(Shutdown::Read)),
            Self::Tls(session) => session.shut(),
            Self::Pipe(pipe) => pipe.shut(),
            Self::Flow(flow) => flow.view().shut(),
        }
    }

    /// Waits until what was written is with the kernel or the tunnel: TLS may keep some.
    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tls(session) => session.poll_flush(cx),
            Self::Tcp(_) | Self::Pipe(_) | Self::Flow(_) => Poll::Ready(Ok(())),
        }
    }

    pub(crate) async fn flush(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Ends this direction; the other goes on.
    pub(crate) fn finish(&self) {
        match self {
            // fails only when the other side is gone, which reading reports
            Self::Tcp(stream) => drop(SockRef::from(&**stream).shutdown(Shutdown::Write)),
            Self::Tls(session) => session.finish(),
            Self::Pipe(pipe) => pipe.finish(),
            Self::Flow(flow) => flow.finish(),
        }
    }

    /// Makes its close a reset; bytes that wait may be discarded. `why`: in words, for a peer.
    pub(crate) fn abort(&self, why: &str) {
        match self {
            Self::Tcp(stream) => drop(socket::abort(stream.as_fd())),
            Self::Tls(session) => session.abort(why),
            Self::Pipe(pipe) => pipe.abort(why),
            Self::Flow(flow) => flow.abort(Reason::Closed, why),
        }
    }

    /// The same, once what was written is sent, nobody takes it any more, or [`DRAIN_AT_MOST`] has passed.
    pub(crate) async fn abort_when_sent(&self, why: &str) {
        match self {
            Self::Tcp(stream) => {
                let _ = timeout(DRAIN_AT_MOST, wait_until_sent(stream)).await;
                let _ = socket::abort(stream.as_fd());
            }
            Self::Tls(session) => {
                let sending = async {
                    session.flushed().await;
                    if let Ok(stream) = session.carrier().own_socket() {
                        wait_until_sent(stream).await;
                    }
                };
                let _ = timeout(DRAIN_AT_MOST, sending).await;
                session.abort(why);
            }
            // what was written can be read
            Self::Pipe(pipe) => pipe.abort(why),
            Self::Flow(flow) => flow.reset_when_sent(Reason::Closed, why),
        }
    }
}

/// Reads what is there. A read of fewer bytes than there is room for has emptied the socket, and epoll tells of what
/// comes later, so that the next read waits for that: it would find nothing. (An end of stream that came before stays
/// known, and is read.) Beside urgent data, which interrupts a read, what follows waits for the next packet.
fn try_read_tcp(stream: &TcpStream, bytes: &mut [u8]) -> io::Result<usize> {
    let mut short = None;
    let read = stream.try_io(Interest::READABLE, || {
        let n = (&*SockRef::from(stream)).read(bytes)?;
        if n == 0 || n == bytes.len() {
            return Ok(n);
        }
        short = Some(n);
        Err(ErrorKind::WouldBlock.into())
    });
    short.map_or(read, Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    async fn pair() -> (TcpStream, End) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (far, listener.accept().await.unwrap().0.into())
    }

    fn is_readable(end: &End) -> bool {
        end.poll_read_ready(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[tokio::test]
    async fn a_read_that_empties_a_socket_makes_the_next_one_wait() {
        let (mut far, near) = pair().await;
        let mut bytes = [0; 8];
        for text in [&b"abc"[..], b"defgh"] {
            far.write_all(text).await.unwrap();
            near.readable().await.unwrap();
            assert_eq!(near.try_read(&mut bytes).unwrap(), text.len());
            assert!(bytes.starts_with(text) && !is_readable(&near));
        }
        // eight of nine bytes: there may be more, and there is
        far.write_all(b"123456789").await.unwrap();
        near.readable().await.unwrap();
        assert_eq!(near.try_read(&mut bytes).unwrap(), 8);
        assert!(is_readable(&near));
        assert_eq!(near.try_read(&mut bytes).unwrap(), 1);
    }

    #[tokio::test]
    async fn an_end_of_stream_behind_the_last_bytes_is_read() {
        let (mut far, near) = pair().await;
        let mut bytes = [0; 8];
        far.write_all(b"abc").await.unwrap();
        far.shutdown().await.unwrap();
        // both are known before the first read
        let Ok(stream) = near.own_socket() else { panic!("it is a socket") };
        while !stream.ready(Interest::READABLE).await.unwrap().is_read_closed() {
            tokio::task::yield_now().await;
        }
        assert_eq!(near.try_read(&mut bytes).unwrap(), 3);
        assert!(is_readable(&near));
        assert_eq!(near.try_read(&mut bytes).unwrap(), 0);
    }
}
