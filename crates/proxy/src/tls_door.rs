//! TLS on the port of all doors: what a client says within it comes out of a connection on loopback, and is
//! served like any other. So whatever is done with connections is done with it, too: splicing, half-close,
//! limits; it costs a copy each way, and the places of two connections.

mod streams;

use crate::incoming::{Incoming, is_transient};
use crate::registry::{Protocol, State};
use crate::session::{Session, serve};
use crate::tunnels::Plug;
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

/// The first byte of TLS: a record of the handshake (RFC 8446 §5.1). No other door's protocol begins so.
pub(crate) const FIRST_BYTE: u8 = 22;

/// Bytes of the client read at a time: what one record of TLS may hold (RFC 8446 §5.1).
const AT_ONCE: usize = 16 * 1024;

/// What ALPN calls HTTP/2 (RFC 9113 §3.2).
pub(crate) const HTTP_2: &[u8] = b"h2";

/// Serves a client that begins with TLS; what was read of it is in `incoming`.
pub(crate) async fn unseal(session: &Session, mut incoming: Incoming) {
    let Some(certificate) = &session.world.certificate else { return };
    session.registered.set_protocol(Protocol::Tls);
    let early = incoming.take();
    let client = Sealed { stream: Arc::clone(&session.client), early, used: 0 };
    let acceptor = TlsAcceptor::from(Arc::clone(&certificate.config));
    let limit = session.world.settings.timeouts.request_head;
    let mut client = match tokio::time::timeout(limit.into(), acceptor.accept(client)).await {
        Ok(Ok(client)) => client,
        Ok(Err(error)) => return broke(session, &error.to_string()),
        Err(_) => return broke(session, &format!("not within {limit}")),
    };
    if client.get_ref().1.alpn_protocol() == Some(HTTP_2) {
        session.registered.set_state(State::Relaying);
        if let Err(error) = Box::pin(streams::serve(session, client)).await {
            tracing::debug!(client = %session.address, "HTTP/2: {error}");
        }
        return;
    }
    let Some(place) = session.resources().another() else {
        return broke(session, "all connections are at work");
    };
    let (outside, mut inside) = match pair().await {
        Ok(pair) => pair,
        Err(error) => {
            return broke(session, &format!("no connection within this machine: {error}"));
        }
    };
    let inner = session.within(outside);
    let entry = Arc::clone(&inner.registered.entry);
    place.belongs_to(&entry);
    let mut task = tokio::spawn(async move {
        serve_boxed(inner).await;
        drop(place);
    });
    // set once, here
    let _ = entry.task.set(task.abort_handle());
    session.registered.set_state(State::Relaying);
    let patience = session.world.client_leg.leg.idle_timeout;
    if carry(&mut client, &mut inside, &mut task, patience).await.is_err() {
        // cut off in the middle, and neither side may take it for the end
        let _ = SockRef::from(&inside).set_linger(Some(Duration::ZERO));
        let _ = SockRef::from(&*session.client).set_linger(Some(Duration::ZERO));
    }
}

/// Carries bytes between the client and the session until both directions are over, or the session is and all
/// it said is delivered, which a client may take so long for.
async fn carry(
    client: &mut TlsStream<Sealed>,
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
            // a session that has ended hears nothing, and has said what it had to say
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
    let (mut heard, mut told, mut over) = (false, false, None);
    while !(told && (heard || over.is_some())) {
        let late = async {
            match over {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            up = &mut up, if !heard => { up?; heard = true; }
            down = &mut down, if !told => { down?; told = true; }
            _ = &mut *task, if over.is_none() => over = Some(Instant::now() + Duration::from(patience)),
            () = late => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
    Ok(())
}

/// A session within a session: its type must not hold itself.
fn serve_boxed(session: Session) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(serve(session))
}

async fn pair() -> io::Result<(TcpStream, TcpStream)> {
    // each its own listener: clients that come at once do not wait for each other
    Plug::new()?.pair().await
}

fn broke(session: &Session, why: &str) {
    session.registered.count_failed();
    tracing::debug!(client = %session.address, "TLS: {why}");
}

/// The client's connection as TLS reads and writes it.
struct Sealed {
    stream: Arc<TcpStream>,
    /// What was read to find out that it is TLS.
    early: Vec<u8>,
    used: usize,
}

impl AsyncRead for Sealed {
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

impl AsyncWrite for Sealed {
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
