//! What alerts and traces need of a running relay.

use super::{Handle, SecureStream};
use crate::destination::Host;
use crate::observe::traces::TraceQueue;
use crate::outbound::dial::{DialFrom, dial};
use crate::outbound::tunnel::Tunnels;
use crate::runtime::alerts::AlertState;
use crate::transfer::tls::TlsTransport;
use std::path::PathBuf;
use std::sync::Arc;

impl Handle {
    /// What was reported as not saved, and the alerts that the status shows.
    pub fn alerts(&self) -> Arc<AlertState> {
        Arc::clone(&self.inner.shared.alerts)
    }

    /// What could not be saved, and why: also peers that join.
    pub fn unsaved(&self) -> Vec<(&'static str, String)> {
        let peers = self.inner.shared.tunnels().and_then(Tunnels::unsaved);
        let peers = peers.map(|why| ("peers", why));
        self.inner.shared.alerts.unsaved().into_iter().chain(peers).collect()
    }

    /// Traces of connections: which are taken, and those that wait to be sent.
    pub fn traces(&self) -> Arc<TraceQueue> {
        Arc::clone(&self.inner.shared.traces)
    }

    /// The certificate of `[tls]` and its key, where the operator renews them.
    pub fn certificate_files(&self) -> Option<[PathBuf; 2]> {
        let config = self.inner.config();
        let tls = &config.settings.tls;
        let files = tls.certificate.clone().zip(tls.key.clone());
        files.filter(|_| !config.settings.acme.is_on()).map(|(certificate, key)| [certificate, key])
    }

    /// Connects to a server without TLS, over the leg `direct`, with this relay's own name resolution.
    /// Errors: in words, which name the server.
    pub async fn connect_plainly(
        &self,
        host: &str,
        port: u16,
    ) -> Result<Box<dyn SecureStream>, String> {
        let config = self.inner.config();
        let to = Host::from_name(host).map_err(|bad| bad.to_string())?;
        let dialed = dial(&config, &to, port, DialFrom::leg(config.direct_leg()), |_| Ok(())).await;
        let stream = dialed.map_err(|failure| failure.text)?.stream;
        Ok(Box::new(TlsTransport::new(stream, Vec::new())))
    }
}
