//! One end of a connection: a socket, or a flow of a peer's tunnel. Both have the calls of tokio's TCP socket.

use crate::transfer::buffered::is_transient;
use ekiden_linux::sockets::options::SocketOptions;
use ekiden_linux::sockets::outcome::{Outcomes, Stage};
use ekiden_linux::sockets::socket;
use ekiden_tunnel::driver::{FlowStream, wait_until_sent};
use ekiden_tunnel::frame::reason::Reason;
use socket2::SockRef;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// A socket or a flow. Clones are the same end.
#[derive(Debug, Clone)]
pub(crate) enum End {
    Tcp(Arc<TcpStream>),
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
            Self::Flow(_) => None,
        }
    }

    /// Its socket, not kept open; a flow has none.
    pub(crate) fn downgrade(&self) -> Weak<TcpStream> {
        self.socket().map(Arc::downgrade).unwrap_or_default()
    }

    fn own_socket(&self) -> io::Result<&Arc<TcpStream>> {
        self.socket().ok_or_else(|| io::Error::new(ErrorKind::Unsupported, "a flow has no socket"))
    }

    /// Sets the options of a leg's profile; a flow has none.
    pub(crate) fn apply(&self, options: &SocketOptions, stage: Stage) -> Option<Outcomes> {
        self.socket().map(|stream| options.apply(stream.as_fd(), stage))
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.own_socket()?.local_addr()
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.own_socket()?.peer_addr()
    }

    /// Waits for the first bytes and leaves them there. Only sockets are asked.
    pub(crate) async fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.own_socket()?.peek(bytes).await
    }

    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(cx),
            Self::Flow(flow) => flow.poll_read_ready(cx).map(Ok),
        }
    }

    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_write_ready(cx),
            Self::Flow(flow) => flow.poll_room(cx).map_ok(|_| ()),
        }
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.readable().await,
            Self::Flow(flow) => {
                flow.readable().await;
                Ok(())
            }
        }
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.writable().await,
            Self::Flow(flow) => flow.writable().await,
        }
    }

    pub(crate) fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read(bytes),
            Self::Flow(flow) => flow.try_read(bytes),
        }
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Flow(flow) => flow.try_write(bytes),
        }
    }

    /// Waits until the end breaks, whether it is read or not.
    pub(crate) async fn broken(&self) {
        match self {
            // fails where the runtime ends
            Self::Tcp(stream) => drop(stream.ready(Interest::ERROR).await),
            Self::Flow(flow) => flow.broken().await,
        }
    }

    /// What broke, after [`Self::broken`].
    pub(crate) fn error(&self) -> io::Error {
        let found = match self {
            Self::Tcp(stream) => socket::take_error(stream.as_fd()).ok().flatten(),
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
            Self::Flow(flow) => flow.is_broken(),
        }
    }

    /// Ends this direction; the other goes on.
    pub(crate) fn finish(&self) {
        match self {
            // fails only when the other side is gone, which reading reports
            Self::Tcp(stream) => drop(SockRef::from(&**stream).shutdown(Shutdown::Write)),
            Self::Flow(flow) => flow.finish(),
        }
    }

    /// Makes its close a reset; bytes that wait may be discarded. `why`: in words, for a peer.
    pub(crate) fn abort(&self, why: &str) {
        match self {
            Self::Tcp(stream) => drop(socket::abort(stream.as_fd())),
            Self::Flow(flow) => flow.abort(Reason::Closed, why),
        }
    }

    /// The same, once what was written is sent, or nobody takes it any more.
    pub(crate) async fn abort_when_sent(&self, why: &str) {
        match self {
            Self::Tcp(stream) => {
                wait_until_sent(stream).await;
                let _ = socket::abort(stream.as_fd());
            }
            Self::Flow(flow) => flow.reset_when_sent(Reason::Closed, why),
        }
    }
}
