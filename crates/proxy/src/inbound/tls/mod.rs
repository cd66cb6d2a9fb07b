//! TLS on the common port. The decrypted bytes are served like those of any client, and count as a second
//! connection.

pub(crate) mod challenge;
mod h2;
mod handshake;

pub(crate) use handshake::handshakes_waiting;

use crate::inbound::detect;
use crate::observe::leg_stats::TlsLeg as _;
use crate::observe::log_throttle::LogThrottle;
use crate::observe::registry::{ConnectionEntry, ConnectionState, Protocol};
use crate::policy::quota::Framing;
use crate::runtime::certificate::HTTP_2;
use crate::session::Session;
use crate::transfer::buffered::BufferedStream;
use crate::transfer::end::End;
use crate::transfer::pipe::Pipe;
use crate::transfer::tls::TlsTransport;
use crate::transfer::tls_session::{SESSION, TlsSession};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// The first byte of a TLS handshake record (RFC 8446 §5.1). No other protocol here begins with it.
pub(crate) const FIRST_BYTE: u8 = 22;

/// Serves a client that begins with TLS.
pub(crate) async fn serve(session: &Session, mut incoming: BufferedStream) {
    let Some(certificate) = &session.config.certificate else { return };
    session.registration.set_protocol(Protocol::Tls);
    if !certificate.is_there() {
        say_why(session);
    }
    let Some(_held) = session.permit.hold(SESSION).await else {
        return broke(session, "no memory is left for another session");
    };
    let early = incoming.take();
    let client = TlsTransport::new(session.client.clone(), early);
    let accepting = handshake::accept(Arc::clone(&certificate.config), client, &session.permit);
    let limit = session.config.settings.timeouts.request_head;
    let client = match tokio::time::timeout(limit.into(), accepting).await {
        Ok(Ok(client)) => client,
        Ok(Err(error)) => return broke(session, &error.to_string()),
        Err(_) => return broke(session, &format!("not within {limit}")),
    };
    let (transport, tls) = client.into_inner();
    let name = tls.server_name().map(Arc::from);
    let is_http2 = tls.alpn_protocol() == Some(HTTP_2);
    let framing = Arc::new(Framing::default());
    let client = TlsSession::new(transport, tls, Some(Arc::clone(&framing)), None);
    let client = Arc::new(client);
    if is_http2 {
        session.registration.set_state(ConnectionState::Relaying);
        let client = TlsTransport::new(End::Tls(client), Vec::new());
        if let Err(error) = Box::pin(h2::serve(session, name, client, framing)).await {
            tracing::debug!(client = %session.address, "HTTP/2: {error}");
        }
        return;
    }
    let mut task = match begin(session, name, &framing, End::Tls(Arc::clone(&client))) {
        Ok((begun, _)) => EndedWithOuter(begun),
        Err(why) => return broke(session, &why),
    };
    session.registration.set_state(ConnectionState::Relaying);
    match (&mut task.0).await {
        Ok(()) => {
            client.end();
            client.flushed().await;
        }
        // neither side may take a cut for an end of stream
        Err(_) => client.abort("cut"),
    }
}

/// A session within another ends with it.
struct EndedWithOuter(JoinHandle<()>);

impl Drop for EndedWithOuter {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// HTTP/2 without TLS, which is the fuzzer's alone: it would spend its time in handshakes.
#[cfg(feature = "fuzzing")]
pub(crate) async fn h2_in_the_clear(session: &Session, mut incoming: BufferedStream) {
    let client = TlsTransport::new(session.client.clone(), incoming.take());
    let _ = Box::pin(h2::serve(session, None, client, Arc::default())).await;
}

/// A session within a session; the box breaks the recursion of types.
fn serve_boxed(session: Session) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(detect::serve(session))
}

/// Begins a session within this one for the bytes of `client`; or in words why there is none.
fn begin(
    session: &Session,
    name: Option<Arc<str>>,
    framing: &Arc<Framing>,
    client: End,
) -> Result<(JoinHandle<()>, Arc<ConnectionEntry>), String> {
    let permit = session.permit.inner().ok_or("all connections are in use")?;
    let inner = session.inner(client, name, framing, permit);
    let entry = Arc::clone(&inner.registration.entry);
    let task = tokio::spawn(serve_boxed(inner));
    entry.set_task(task.abort_handle());
    Ok((task, entry))
}

/// The same for an HTTP/2 stream; returns the other end of its pipe, and its entry.
fn begin_stream(
    session: &Session,
    name: Option<Arc<str>>,
    framing: &Arc<Framing>,
) -> Result<(Pipe, Arc<ConnectionEntry>), String> {
    let (outside, inside) = Pipe::pair();
    let outside = outside.counting(framing);
    let (_, entry) = begin(session, name, framing, End::Pipe(Arc::new(outside)))?;
    Ok((inside, entry))
}

/// Says why clients get no TLS, as often as is useful; the handshake goes on to its alert.
fn say_why(session: &Session) {
    static LOGGED: LogThrottle = LogThrottle::new();
    if LOGGED.is_due() {
        let why = session.config.shared.acme.excuse();
        let why = why.unwrap_or_else(|| "none has been ordered yet".to_owned());
        tracing::warn!(client = %session.address, "TLS is refused, because there is no certificate: {why}");
    }
}

fn broke(session: &Session, why: &str) {
    session.registration.count_failed();
    tracing::debug!(client = %session.address, "TLS: {why}");
}
