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
use crate::resources::arrival::NoPlace;
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
use std::sync::atomic::Ordering::Relaxed;
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
        Ok((task, entry)) => EndedWithOuter { task, entry },
        Err(why) => return broke(session, &why),
    };
    session.registration.set_state(ConnectionState::Relaying);
    match (&mut task.task).await {
        Ok(()) => {
            client.end();
            client.flushed().await;
        }
        // neither side may take a cut for an end of stream
        Err(_) => client.abort("cut"),
    }
}

/// A session within another ends with it.
struct EndedWithOuter {
    task: JoinHandle<()>,
    entry: Arc<ConnectionEntry>,
}

impl Drop for EndedWithOuter {
    fn drop(&mut self) {
        // its destination must not take the cut for an end of stream, nor may the client
        if !self.task.is_finished() {
            self.entry.end();
        }
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
    let permit = session.permit.inner().map_err(|why| refused(session, why))?;
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

/// Says why nothing more is served within TLS, as often as is useful, and returns it.
fn refused(session: &Session, why: NoPlace) -> &'static str {
    static LOGGED: LogThrottle = LogThrottle::new();
    let why = match why {
        NoPlace::Room => "all connections are in use",
        NoPlace::Share => "its address has its share of connections in service",
    };
    // one that was closed for others has its own reason
    let is_closed = session.registration.entry.evicted.load(Relaxed);
    if !is_closed && LOGGED.is_due() {
        tracing::warn!(client = %session.address, "a connection within TLS is refused: {why} (budgets.connections)");
    }
    why
}

fn broke(session: &Session, why: &str) {
    session.registration.count_failed();
    tracing::debug!(client = %session.address, "TLS: {why}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::log_throttle::counting::said;
    use crate::session::tests::fixture;
    use crate::settings::Settings;
    use crate::transfer::buffered::write_all;
    use std::io::ErrorKind;
    use std::time::Duration;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;
    use tracing::Level;

    #[test]
    fn the_log_says_once_that_no_place_is_left_within_tls() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _within = runtime.enter();
        let mut settings = Settings::default();
        settings.budgets.connections = 1;
        let outer = runtime.block_on(fixture("192.0.2.1", None, settings));
        let lines = said(Level::WARN, || {
            for _ in 0..3 {
                let why = begin_stream(&outer.session, None, &Arc::default()).err();
                assert_eq!(why.as_deref(), Some("all connections are in use"));
            }
        });
        assert_eq!(lines.len(), 1, "{lines:?}");
        for part in ["client=192.0.2.1:5000 ", "all connections are in use (budgets.connections)"] {
            assert!(lines[0].contains(part), "{part}: {lines:?}");
        }
    }

    #[tokio::test]
    async fn an_upload_within_another_connection_is_reset_where_that_one_is_cut() {
        let mut settings = Settings::default();
        settings.access.allow_destinations = vec!["127.0.0.0/8".parse().unwrap()];
        let outer = fixture("127.0.0.1", None, settings).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        let (near, far) = Pipe::pair();
        let [near, far] = [near, far].map(|end| End::Pipe(Arc::new(end)));
        let (task, entry) = begin(&outer.session, None, &Arc::default(), near).unwrap();
        let within = EndedWithOuter { task, entry };
        let asked = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\nhalf");
        write_all(&far, asked.as_bytes()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        server.read_exact(&mut [0; 4]).await.unwrap();
        drop(within);
        let ended = server.read(&mut [0; 1]).await;
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
        // nor does the client find an end
        let reset = tokio::time::timeout(Duration::from_secs(60), far.broken());
        reset.await.expect("it waits for ever");
    }
}
