//! TLS on the common port. The decrypted bytes pass a loopback connection, which is served like any
//! other; this costs a copy in each direction, and counts as two connections.

mod h2;
mod h2_heads;

use crate::inbound::detect;
use crate::observe::registry::{ConnectionState, Protocol};
use crate::outbound::tunnel::LoopbackPairs;
use crate::runtime::certificate::HTTP_2;
use crate::session::Session;
use crate::transfer::buffered::{BufferedStream, is_transient};
use ekiden_model::units::Span;
use socket2::SockRef;
use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf, copy};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The first byte of a TLS handshake record (RFC 8446 §5.1). No other protocol here begins with it.
pub(crate) const FIRST_BYTE: u8 = 22;

/// Bytes per read from the client: the content of one TLS record (RFC 8446 §5.1).
const AT_ONCE: usize = 16 * 1024;

/// The memory that counts for a client's TLS: rustls's state, one record in each direction, and the
/// buffers of [`carry`].
const SESSION: usize = 64 * 1024;

/// Serves a client that begins with TLS; its first bytes are in `incoming`.
pub(crate) async fn serve(session: &Session, mut incoming: BufferedStream) {
    let Some(certificate) = &session.config.certificate else { return };
    session.registration.set_protocol(Protocol::Tls);
    let Some(_held) = session.permit.hold(SESSION).await else {
        return broke(session, "no memory is left for another session");
    };
    let early = incoming.take();
    let client = TlsTransport { stream: Arc::clone(&session.client), early, used: 0 };
    let acceptor = TlsAcceptor::from(Arc::clone(&certificate.config));
    let limit = session.config.settings.timeouts.request_head;
    let mut client = match tokio::time::timeout(limit.into(), acceptor.accept(client)).await {
        Ok(Ok(client)) => client,
        Ok(Err(error)) => return broke(session, &error.to_string()),
        Err(_) => return broke(session, &format!("not within {limit}")),
    };
    // unsent bytes wait in the session that sends them
    client.get_mut().1.set_buffer_limit(Some(AT_ONCE));
    if client.get_ref().1.alpn_protocol() == Some(HTTP_2) {
        session.registration.set_state(ConnectionState::Relaying);
        if let Err(error) = Box::pin(h2::serve(session, client)).await {
            tracing::debug!(client = %session.address, "HTTP/2: {error}");
        }
        return;
    }
    let (mut inside, mut task) = match begin(session).await {
        Ok(begun) => begun,
        Err(why) => return broke(session, &why),
    };
    session.registration.set_state(ConnectionState::Relaying);
    let patience = session.config.client_leg.leg.idle_timeout;
    if carry(&mut client, &mut inside, &mut task, patience).await.is_err() {
        // neither side may take a cut for an end of stream
        let _ = SockRef::from(&inside).set_linger(Some(Duration::ZERO));
        let _ = SockRef::from(&*session.client).set_linger(Some(Duration::ZERO));
    }
}

/// Carries bytes between client and session until both directions have ended, or the session has,
/// and its output is delivered in limited time.
async fn carry(
    client: &mut TlsStream<TlsTransport>,
    inside: &mut TcpStream,
    task: &mut JoinHandle<()>,
    patience: Span,
) -> io::Result<()> {
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut answer, mut asked) = inside.split();
    let up = async {
        let mut bytes = vec![0; AT_ONCE];
        loop {
            let n = from_client.read(&mut bytes).await?;
            // a session that has ended reads nothing, and has sent its answer
            let passed = match n {
                0 => asked.shutdown().await,
                n => asked.write_all(&bytes[..n]).await,
            };
            if n == 0 || passed.is_err() {
                return Ok::<_, io::Error>(());
            }
        }
    };
    let down = async {
        copy(&mut answer, &mut to_client).await?;
        to_client.shutdown().await
    };
    tokio::pin!(up, down);
    let (mut up_done, mut down_done, mut over) = (false, false, None);
    while !(down_done && (up_done || over.is_some())) {
        let late = async {
            match over {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            up = &mut up, if !up_done => { up?; up_done = true; }
            down = &mut down, if !down_done => { down?; down_done = true; }
            _ = &mut *task, if over.is_none() => over = Some(Instant::now() + Duration::from(patience)),
            () = late => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
    Ok(())
}

/// A session within a session; the box breaks the recursion of types.
fn serve_boxed(session: Session) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(detect::serve(session))
}

/// Begins a session within this one; returns the connection to it, or in words why there is none.
async fn begin(session: &Session) -> Result<(TcpStream, JoinHandle<()>), String> {
    let permit = session.permit.inner().ok_or("all connections are in use")?;
    let failed = |error: io::Error| format!("cannot make a loopback connection: {error}");
    // each with its own listener, so that simultaneous clients do not wait for each other
    let (outside, inside) = LoopbackPairs::new().map_err(failed)?.pair().await.map_err(failed)?;
    let inner = session.inner(outside, permit);
    let entry = Arc::clone(&inner.registration.entry);
    let task = tokio::spawn(serve_boxed(inner));
    // set once, here
    let _ = entry.task.set(task.abort_handle());
    Ok((inside, task))
}

fn broke(session: &Session, why: &str) {
    session.registration.count_failed();
    tracing::debug!(client = %session.address, "TLS: {why}");
}

struct TlsTransport {
    stream: Arc<TcpStream>,
    early: Vec<u8>,
    used: usize,
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
        Poll::Ready(SockRef::from(&*self.stream).shutdown(Shutdown::Write))
    }
}
