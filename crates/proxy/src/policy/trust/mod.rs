//! TLS towards servers that this relay connects to: whose certificates it takes, and a failed
//! handshake in words.

mod verify;
mod words;

pub use verify::fingerprint_text;
pub use words::{TlsFailure, describe};

use crate::settings::UpstreamTls;
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;
use verify::{Accepted, Verifier};

/// TLS 1.2 and 1.3 as a client that speaks HTTP/1.1, with a cache of sessions to resume. Errors are
/// in words, and name the file.
pub fn client(trust: &UpstreamTls) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let accepted = match trust.fingerprint {
        Some(sha256) => Accepted::Pinned(sha256),
        None => {
            let roots = authorities(trust.authorities.as_deref())?;
            let builder =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
            let built = builder.build();
            Accepted::Issued(built.map_err(|error| format!("TLS cannot be set up: {error}"))?)
        }
    };
    let verifier = Arc::new(Verifier::new(accepted, &provider));
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up: {error}"))?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The authorities of a PEM file, or the system's.
fn authorities(file: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some(file) = file else {
        let found = rustls_native_certs::load_native_certs();
        let (added, _) = roots.add_parsable_certificates(found.certs);
        if added == 0 {
            let why = found.errors.first().map_or_else(String::new, |error| format!(": {error}"));
            return Err(format!(
                "this machine has no certificates of authorities{why}; install them (Debian: apt-get install ca-certificates), \
                 or name a file of your own"
            ));
        }
        return Ok(roots);
    };
    let (shown, hint) = (file.display(), "a PEM file with certificates of authorities is wanted");
    let bytes =
        std::fs::read(file).map_err(|error| format!("{shown} cannot be read: {error}; {hint}"))?;
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let certificate =
            certificate.map_err(|error| format!("{shown} is not PEM: {error}; {hint}"))?;
        roots.add(certificate).map_err(|error| {
            format!("{shown} contains a certificate that cannot be used: {error}")
        })?;
    }
    match roots.is_empty() {
        true => Err(format!("{shown} contains no certificate; {hint}")),
        false => Ok(roots),
    }
}

#[cfg(test)]
mod tests;
