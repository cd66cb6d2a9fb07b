//! What the listener and the ordering of certificates know of each other: challenges to answer, and
//! how far the order is.

use crate::observe::status::AcmeStatus;
use ekiden_linux::host::sync::locked;
use rustls::ServerConfig;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ClientHello;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

/// ALPN's name of the challenge (RFC 8737 §6.2).
const ACME_TLS: &[u8] = b"acme-tls/1";

/// Challenges that may be answered now, and the state of the order.
#[derive(Debug, Default)]
pub struct AcmeState {
    challenges: Mutex<BTreeMap<String, Arc<ServerConfig>>>,
    report: Mutex<Option<AcmeReport>>,
}

/// How far the ordering of a certificate is. Times are seconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AcmeReport {
    /// The names that are ordered.
    pub names: Vec<String>,
    /// The authority's directory.
    pub directory: String,
    /// When the certificate in use ends; `None`: there is none.
    pub until: Option<u64>,
    /// When the next is ordered; `None`: an order is under way.
    pub next: Option<u64>,
    /// Failures in a row.
    pub failures: u32,
    /// When and why an order failed last, since the start or the last certificate.
    pub last_failure: Option<(u64, String)>,
    /// Certificates obtained since the start.
    pub obtained: u64,
}

impl AcmeState {
    /// Answers the challenge for `name` from now on, with a certificate and its key (PKCS #8), both in
    /// DER. Errors: in words, where TLS does not take them.
    pub fn set_challenge(&self, name: &str, certificate: &[u8], key: &[u8]) -> Result<(), String> {
        let chain = vec![CertificateDer::from(certificate.to_vec())];
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.to_vec()));
        let key = any_supported_type(&key).map_err(|error| error.to_string())?;
        // not compared with the certificate, whose critical extension webpki does not know
        let shown = SingleCertAndKey::from(CertifiedKey::new(chain, key));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(shown));
        config.alpn_protocols = vec![ACME_TLS.to_vec()];
        locked(&self.challenges).insert(name.to_ascii_lowercase(), Arc::new(config));
        Ok(())
    }

    /// No challenge is answered any more.
    pub fn clear_challenges(&self) {
        locked(&self.challenges).clear();
    }

    pub(crate) fn is_challenged(&self) -> bool {
        !locked(&self.challenges).is_empty()
    }

    /// TLS for a connection that asks for a challenge's answer and nothing else (RFC 8737 §3).
    pub(crate) fn answer(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        let mut offered = hello.alpn()?;
        if offered.next() != Some(ACME_TLS) || offered.next().is_some() {
            return None;
        }
        let name = hello.server_name()?.to_ascii_lowercase();
        locked(&self.challenges).get(&name).cloned()
    }

    /// Changes the report; `None` while nothing is ordered.
    pub fn report(&self, change: impl FnOnce(&mut Option<AcmeReport>)) {
        change(&mut locked(&self.report));
    }

    /// Why there is no certificate, for the log; `None` where none is ordered.
    pub(crate) fn excuse(&self) -> Option<String> {
        let report = locked(&self.report).clone()?;
        let names = report.names.join(", ");
        Some(match (report.last_failure, report.next) {
            (Some((_, why)), Some(_)) => format!("the last order for {names} failed: {why}"),
            _ => format!("one for {names} is being ordered"),
        })
    }

    pub(crate) fn status(&self) -> Option<AcmeStatus> {
        let report = locked(&self.report).clone()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let from_now = |then: u64| then as f64 - now as f64;
        let (last_failure_seconds_ago, last_failure) = match report.last_failure {
            Some((when, why)) => (Some(-from_now(when)), Some(why)),
            None => (None, None),
        };
        Some(AcmeStatus {
            names: report.names,
            directory: report.directory,
            expires_in_seconds: report.until.map(from_now),
            next_order_in_seconds: report.next.map(from_now),
            failures: report.failures,
            last_failure,
            last_failure_seconds_ago,
            obtained: report.obtained,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::ClientConnection;
    use rustls::pki_types::ServerName;
    use rustls::server::Acceptor;

    fn hello(name: &str, protocols: &[&[u8]]) -> rustls::server::Accepted {
        let trust = crate::settings::UpstreamTls { fingerprint: Some([0; 32]), authorities: None };
        let mut config = (*crate::policy::trust::client(&trust).unwrap()).clone();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        let mut acceptor = Acceptor::default();
        acceptor.read_tls(&mut bytes.as_slice()).unwrap();
        acceptor.accept().unwrap().unwrap()
    }

    #[test]
    fn a_challenge_is_answered_for_its_name_and_protocol_alone() {
        let state = AcmeState::default();
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["relay.example".to_owned()]).unwrap();
        params.custom_extensions = vec![rcgen::CustomExtension::new_acme_identifier(&[7; 32])];
        let (made, key) = (params.self_signed(&key).unwrap(), key.serialize_der());
        assert!(!state.is_challenged());
        state.set_challenge("Relay.example", made.der(), &key).unwrap();
        let answered = |name: &str, protocols: &[&[u8]]| {
            state.answer(&hello(name, protocols).client_hello()).is_some()
        };
        assert!(answered("relay.example", &[b"acme-tls/1"]));
        assert!(!answered("other.example", &[b"acme-tls/1"]));
        assert!(!answered("relay.example", &[b"http/1.1"]));
        assert!(!answered("relay.example", &[b"acme-tls/1", b"http/1.1"]));
        assert!(!answered("relay.example", &[]));
        assert!(!answered("192.0.2.1", &[b"acme-tls/1"]));
        state.clear_challenges();
        assert!(!answered("relay.example", &[b"acme-tls/1"]));
        assert!(state.set_challenge("relay.example", made.der(), b"no key").is_err());
    }
}
