//! TLS to an upstream proxy. The decrypted bytes pass a loopback connection, as those of a client
//! within TLS do, so that everything else about the upstream stays as it is without TLS.

use crate::error::{Failure, FailureKind};
use crate::outbound::tunnel::LoopbackPairs;
use crate::policy::trust::{TlsFailure, describe};
use crate::policy::upstream::{ClientTls, Hop};
use crate::runtime::RuntimeConfig;
use crate::settings::Leg;
use crate::transfer::buffered::BufferedStream;
use crate::transfer::end::End;
use crate::transfer::tls::{AT_ONCE, SESSION, TlsTransport, carry};
use ekiden_linux::sockets::socket;
use ekiden_model::units::Span;
use ekiden_tunnel::driver::wait_until_sent;
use rustls::{ClientConnection, HandshakeKind, ProtocolVersion};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How often a session that has sent its last byte looks whether anybody waits for an answer.
const LOOKS: Duration = Duration::from_millis(100);

/// The connection that carries an upstream's TLS.
#[derive(Debug, Clone)]
pub(crate) struct SecuredBy {
    /// Its socket, whose figures are the path's.
    pub(crate) socket: Weak<TcpStream>,
    /// Version, cipher, and whether a session was resumed.
    pub(crate) words: Arc<str>,
}

/// Begins TLS with `hop` on the connection to it; returns the stream of its decrypted bytes.
/// `network`: profile and peer of `incoming`, where that is a connection over the network.
pub(crate) async fn secure(
    config: &RuntimeConfig,
    hop: &Hop,
    tls: &ClientTls,
    mut incoming: BufferedStream,
    network: Option<(&Leg, SocketAddr)>,
) -> Result<(BufferedStream, SecuredBy), Failure> {
    let exhausted = |why: &str| {
        let text = format!("TLS to upstream \"{}\": {why}", hop.name);
        Failure::new(FailureKind::Exhausted, text)
    };
    let resources = &config.shared.resources;
    let held = resources.hold_apart(SESSION).await;
    let held = held.ok_or_else(|| exhausted("no memory is left for another session"))?;
    let place = resources.always_reserve();
    let stream = incoming.stream.clone();
    let transport = TlsTransport::new(stream.clone(), incoming.take());
    let connector = TlsConnector::from(Arc::clone(&tls.config));
    let limit = config.settings.timeouts.handshake;
    let connecting = connector.connect(tls.name.clone(), transport);
    let mut secure = match tokio::time::timeout(limit.into(), connecting).await {
        Ok(Ok(secure)) => secure,
        Ok(Err(error)) => return Err(failed(hop, &error)),
        Err(_) => {
            let text = format!(
                "upstream \"{}\" did not finish the TLS handshake within {limit}; perhaps it does not speak TLS on that port",
                hop.name
            );
            return Err(Failure::new(FailureKind::TimedOut, text));
        }
    };
    // unsent bytes wait in the connection that sends them
    secure.get_mut().1.set_buffer_limit(Some(AT_ONCE));
    let words = in_words(secure.get_ref().1).into();
    // each with its own listener, so that simultaneous connections do not wait for each other
    let pair = async { LoopbackPairs::new()?.pair().await };
    let (outside, inside) =
        pair.await.map_err(|error| Failure::io("cannot make a loopback connection", &error))?;
    let outside = Arc::new(outside);
    let managed = network.map(|(leg, peer)| resources.manage(&stream, leg, Some(peer)));
    let (user, patience) = (Arc::downgrade(&outside), hop.leg.leg.idle_timeout);
    let socket = stream.downgrade();
    tokio::spawn(async move {
        run(secure, inside, user, patience).await;
        drop((held, place, managed));
    });
    Ok((BufferedStream::new(End::Tcp(outside), Vec::new()), SecuredBy { socket, words }))
}

/// Carries bytes until both directions have ended, one side breaks, or nobody has the other end.
async fn run(
    mut secure: TlsStream<TlsTransport>,
    mut inside: TcpStream,
    user: Weak<TcpStream>,
    patience: Span,
) {
    let left = async {
        while user.strong_count() > 0 {
            tokio::time::sleep(LOOKS).await;
        }
    };
    if carry(&mut secure, &mut inside, left, patience).await.is_err() {
        let stream = &secure.get_ref().0.stream;
        // bytes that came before the break belong to the other side; an end of stream would hide it
        tokio::join!(wait_until_sent(&inside), stream.abort_when_sent("its TLS broke"));
        let _ = socket::abort(inside.as_fd());
    }
}

fn failed(hop: &Hop, error: &io::Error) -> Failure {
    let (kind, what) = describe(error, Some(["`ca`", "`fingerprint`"]));
    let kind = match kind {
        TlsFailure::Certificate | TlsFailure::Protocol => FailureKind::BadAnswer,
        TlsFailure::Closed => FailureKind::Closed,
        TlsFailure::System => Failure::io("", error).kind,
    };
    Failure::new(kind, format!("upstream \"{}\" {what}", hop.name))
}

/// Version and cipher as the RFCs write them.
fn in_words(connection: &ClientConnection) -> String {
    let version = match connection.protocol_version() {
        Some(ProtocolVersion::TLSv1_2) => "TLS 1.2",
        _ => "TLS 1.3",
    };
    let suite = connection.negotiated_cipher_suite().map(|suite| suite.suite());
    let cipher = suite.and_then(|suite| suite.as_str()).unwrap_or("an unknown cipher");
    match connection.handshake_kind() {
        Some(HandshakeKind::Resumed) => format!("{version}, {cipher}, resumed"),
        _ => format!("{version}, {cipher}"),
    }
}
