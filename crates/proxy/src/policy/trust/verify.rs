//! Certificates that are trusted for their issuer, and ones that are pinned.

use ring::digest::{SHA256, digest};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};
use std::fmt::Write as _;
use std::sync::Arc;

/// A certificate that is not the pinned one.
#[derive(Debug, thiserror::Error)]
#[error("another certificate than the pinned one: {0}")]
pub(super) struct NotPinned(pub(super) String);

/// A certificate that nobody known has issued.
#[derive(Debug, thiserror::Error)]
#[error("unknown issuer of the certificate {0}")]
pub(super) struct UnknownIssuer(pub(super) String);

fn sha256(certificate: &CertificateDer<'_>) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, certificate).as_ref());
    hash
}

/// A fingerprint as it is configured: `sha256:` and 64 hexadecimal digits.
pub fn fingerprint_text(sha256: &[u8; 32]) -> String {
    sha256.iter().fold("sha256:".to_owned(), |mut text, byte| {
        // writing to a text does not fail
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
}

/// What a server's certificate must be.
#[derive(Debug)]
pub(super) enum Accepted {
    /// Any that an authority vouches for, with the server's name, in its time.
    Issued(Arc<WebPkiServerVerifier>),
    /// This one and no other, by its SHA-256, whatever it says.
    Pinned([u8; 32]),
}

/// Checks the certificate, and that its owner has the key.
#[derive(Debug)]
pub(super) struct Verifier {
    accepted: Accepted,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    pub(super) const fn new(accepted: Accepted, provider: &CryptoProvider) -> Self {
        Self { accepted, algorithms: provider.signature_verification_algorithms }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let shown = || sha256(end_entity);
        match &self.accepted {
            Accepted::Issued(by) => {
                match by.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
                    // with what could be pinned in its place; another authority of the same name is none known
                    Err(Error::InvalidCertificate(
                        CertificateError::UnknownIssuer | CertificateError::BadSignature,
                    )) => Err(other(UnknownIssuer(fingerprint_text(&shown())))),
                    checked => checked,
                }
            }
            Accepted::Pinned(wanted) if *wanted == shown() => Ok(ServerCertVerified::assertion()),
            Accepted::Pinned(_) => Err(other(NotPinned(fingerprint_text(&shown())))),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
