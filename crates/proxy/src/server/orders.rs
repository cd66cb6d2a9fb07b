//! What the ordering of certificates needs of a running relay.

use super::Handle;
use crate::destination::Host;
use crate::outbound::dial::{DialFrom, dial};
use crate::policy::trust::describe;
use crate::runtime::acme::AcmeState;
use crate::transfer::tls::TlsTransport;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

/// A TLS connection.
pub trait SecureStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> SecureStream for T {}

impl Handle {
    /// The challenges that the listener answers, and the state of the order that the status shows.
    pub fn acme(&self) -> Arc<AcmeState> {
        Arc::clone(&self.inner.shared.acme)
    }

    /// Connects to a server by TLS, over the leg `direct`, with this relay's own name resolution.
    /// Errors: in words, which name the server.
    pub async fn connect_securely(
        &self,
        host: &str,
        port: u16,
        tls: &Arc<ClientConfig>,
    ) -> Result<Box<dyn SecureStream>, String> {
        let config = self.inner.config();
        let to = Host::from_name(host.trim_matches(['[', ']'])).map_err(|bad| bad.to_string())?;
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
            .map_err(|_| format!("\"{host}\" cannot be a name in a certificate"))?;
        let leg = config.direct_leg();
        let dialed = dial(&config, &to, port, DialFrom::leg(leg), |_| Ok(())).await;
        let transport =
            TlsTransport::new(dialed.map_err(|failure| failure.text)?.stream, Vec::new());
        let limit = config.settings.timeouts.handshake;
        let connecting = TlsConnector::from(Arc::clone(tls)).connect(name, transport);
        match tokio::time::timeout(limit.into(), connecting).await {
            Ok(Ok(secure)) => Ok(Box::new(secure)),
            Ok(Err(error)) => Err(format!("{host}:{port} {}", describe(&error, None).1)),
            Err(_) => Err(format!("{host}:{port} did not finish the TLS handshake within {limit}")),
        }
    }
}
