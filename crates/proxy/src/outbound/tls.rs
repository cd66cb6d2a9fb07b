//! TLS to an upstream proxy.

use crate::error::{Failure, FailureKind};
use crate::policy::trust::{TlsFailure, describe};
use crate::policy::upstream::{ClientTls, Hop};
use crate::resources::{AdmissionPermit, ManagedLeg};
use crate::runtime::RuntimeConfig;
use crate::settings::Leg;
use crate::transfer::buffered::BufferedStream;
use crate::transfer::end::End;
use crate::transfer::tls::TlsTransport;
use crate::transfer::tls_session::{SESSION, TlsSession};
use rustls::{ClientConnection, HandshakeKind, ProtocolVersion};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The connection that carries an upstream's TLS.
#[derive(Debug, Clone)]
pub(crate) struct SecuredBy {
    /// Its socket, whose figures are the path's.
    pub(crate) socket: Weak<TcpStream>,
    /// Version, cipher, and whether a session was resumed.
    pub(crate) words: Arc<str>,
}

/// Begins TLS with `hop` on the connection to it; returns the stream of its decrypted bytes.
/// Its memory is in the share of the source of `permit`. `network`: profile and peer of `incoming`, where that is a
/// connection over the network.
pub(crate) async fn secure(
    config: &RuntimeConfig,
    (hop, tls): (&Hop, &ClientTls),
    permit: &AdmissionPermit,
    mut incoming: BufferedStream,
    network: Option<(&Leg, SocketAddr)>,
) -> Result<(BufferedStream, SecuredBy), Failure> {
    let exhausted = |why: &str| {
        let text = format!("TLS to upstream \"{}\": {why}", hop.name);
        Failure::without_memory(text)
    };
    let held = permit.hold_apart(SESSION).await;
    let held = held.ok_or_else(|| exhausted("no memory is left for another session"))?;
    let stream = incoming.stream.clone();
    let transport = TlsTransport::new(stream.clone(), incoming.take());
    let connector = TlsConnector::from(Arc::clone(&tls.config));
    let limit = config.settings.timeouts.handshake;
    let connecting = connector.connect(tls.name.clone(), transport);
    let secure = match tokio::time::timeout(limit.into(), connecting).await {
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
    let words = in_words(secure.get_ref().1).into();
    let resources = &config.shared.resources;
    let leg = network.map(|(leg, peer)| resources.manage(&stream, leg, Some(peer)));
    leg.iter().for_each(ManagedLeg::settle);
    let (transport, tls) = secure.into_inner();
    let session = TlsSession::new(transport, tls, None, Some(Box::new((held, leg))));
    let secured = SecuredBy { socket: stream.downgrade(), words };
    Ok((BufferedStream::new(End::Tls(Arc::new(session)), Vec::new()), secured))
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
