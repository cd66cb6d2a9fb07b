//! TLS 1.3 with pinned certificates.

use super::{Fingerprint, NoRandomness, fingerprint};
use crate::driver::tcp_framing;
use crate::frame::ALPN;
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::crypto::{self, HmacKey};
use ring::{hkdf, hmac};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, CipherSuite, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    SignatureScheme, SupportedCipherSuite,
};
use std::fmt;
use std::io;
use std::sync::Arc;

/// A relay's certificate and key, and TLS with them.
#[derive(Clone)]
pub struct Credentials {
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
    server: Arc<QuicServerConfig>,
    provider: Arc<CryptoProvider>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("fingerprint", &self.fingerprint())
            .finish_non_exhaustive()
    }
}

/// Why credentials are of no use.
#[derive(Debug, thiserror::Error)]
pub enum BadCredentials {
    /// None could be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// TLS does not take them.
    #[error("TLS does not take the relay's certificate and key: {0}")]
    Tls(#[from] Error),
    /// No randomness.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

impl Credentials {
    /// New credentials: a self-signed certificate without any attribute of its owner.
    pub fn generate() -> Result<Self, BadCredentials> {
        // with signatures of one length, so that simulations do not depend on the key
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
        let names = vec!["relay.ekiden".to_owned()];
        let certificate = rcgen::CertificateParams::new(names)?.self_signed(&key)?;
        Self::from_der(certificate.der().to_vec(), key.serialize_der())
    }

    /// From a certificate and its key (PKCS #8), both in DER.
    pub fn from_der(certificate: Vec<u8>, key: Vec<u8>) -> Result<Self, BadCredentials> {
        let certificate = CertificateDer::from(certificate);
        let provider = Arc::new(provider());
        let server = listening(&provider, &certificate, &key, ALPN)?;
        let server = QuicServerConfig::try_from(server).map_err(|_| no_suite())?;
        Ok(Self { certificate, key, server: Arc::new(server), provider })
    }

    /// The certificate, in DER.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// Its key (PKCS #8), in DER.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The fingerprint by which peers know this relay.
    pub fn fingerprint(&self) -> Fingerprint {
        fingerprint(&self.certificate)
    }

    /// Every client shows a certificate; its owner is checked later.
    pub(crate) fn server(&self) -> Arc<dyn crypto::ServerConfig> {
        Arc::clone(&self.server) as _
    }

    /// For the relay with this fingerprint and no other.
    pub(crate) fn client(
        &self,
        peer: Fingerprint,
    ) -> Result<Arc<dyn crypto::ClientConfig>, BadCredentials> {
        let client = self.connecting(peer, ALPN)?;
        Ok(Arc::new(QuicClientConfig::try_from(client).map_err(|_| no_suite())?))
    }

    /// TLS on TCP, server side: for any client, as with QUIC.
    pub(crate) fn carrier_server(&self) -> Result<Arc<rustls::ServerConfig>, BadCredentials> {
        let server = listening(&self.provider, &self.certificate, &self.key, tcp_framing::ALPN)?;
        Ok(Arc::new(server))
    }

    /// TLS on TCP, client side: for the relay with this fingerprint and no other.
    pub(crate) fn carrier_client(
        &self,
        peer: Fingerprint,
    ) -> Result<Arc<rustls::ClientConfig>, BadCredentials> {
        Ok(Arc::new(self.connecting(peer, tcp_framing::ALPN)?))
    }

    fn connecting(
        &self,
        peer: Fingerprint,
        alpn: &[u8],
    ) -> Result<rustls::ClientConfig, BadCredentials> {
        let algorithms = self.provider.signature_verification_algorithms;
        let mut client = rustls::ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned { peer, algorithms }))
            .with_client_auth_cert(vec![self.certificate.clone()], private(&self.key))?;
        client.alpn_protocols = vec![alpn.to_vec()];
        client.resumption = rustls::client::Resumption::disabled();
        Ok(client)
    }

    /// The key of stateless resets (RFC 9000 §10.3) of an address with this salt. It outlives a restart, so that peers
    /// notice at once. No other socket of the relay may have it: asked there, it would give what ends tunnels here.
    pub(crate) fn reset_key(&self, salt: &[u8]) -> Arc<dyn HmacKey> {
        let key = self.derived(b"stateless resets", salt);
        Arc::new(hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()))
    }

    /// The key of the tokens by which others show their address (RFC 9000 §8.1.4), the same for all threads.
    pub(crate) fn token_key(&self) -> Arc<hkdf::Prk> {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"tokens of addresses");
        Arc::new(salt.extract(&self.key))
    }

    /// Checks the connection identifiers of an address with this salt before a reset is answered.
    pub(crate) fn identifier_key(&self, salt: &[u8]) -> u64 {
        let key = self.derived(b"connection identifiers", salt);
        key.as_ref().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }

    /// A key for one use; no label begins with another.
    fn derived(&self, label: &[u8], salt: &[u8]) -> hmac::Tag {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.key);
        let mut context = hmac::Context::with_key(&key);
        context.update(label);
        context.update(salt);
        context.sign()
    }
}

/// AES-128 first: ten rounds instead of fourteen, and curve and hash give no more than 128 bits of security either.
fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    let is_shorter =
        |suite: &SupportedCipherSuite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(|suite| !is_shorter(suite));
    provider
}

fn listening(
    provider: &Arc<CryptoProvider>,
    certificate: &CertificateDer<'static>,
    key: &[u8],
    alpn: &[u8],
) -> Result<rustls::ServerConfig, BadCredentials> {
    let any = Arc::new(AnyCertificate(provider.signature_verification_algorithms));
    let mut server = rustls::ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(any)
        .with_single_cert(vec![certificate.clone()], private(key))?;
    server.alpn_protocols = vec![alpn.to_vec()];
    Ok(server)
}

fn private(key: &[u8]) -> PrivateKeyDer<'static> {
    PrivatePkcs8KeyDer::from(key.to_vec()).into()
}

fn no_suite() -> Error {
    Error::General("no cipher suite for QUIC's first packets".to_owned())
}

#[derive(Debug)]
struct Pinned {
    peer: Fingerprint,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug, thiserror::Error)]
#[error("the relay shows another certificate than the one in the invitation")]
struct OtherCertificate;

/// Why a handshake of TLS on TCP failed, with the words of this file where it was this file that refused.
pub(crate) fn describe(error: io::Error) -> io::Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::InvalidCertificate(CertificateError::Other(OtherError(why)))) => {
            io::Error::new(error.kind(), why.to_string())
        }
        _ => error,
    }
}

/// The methods of a verifier that TLS 1.3's signatures settle, by the algorithms in a field.
macro_rules! tls_13_signatures {
    ($algorithms:tt) => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("tunnels are TLS 1.3".to_owned()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, certificate, signature, &self.$algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.$algorithms.supported_schemes()
        }
    };
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if fingerprint(end_entity) == self.peer {
            return Ok(ServerCertVerified::assertion());
        }
        let other = CertificateError::Other(OtherError(Arc::new(OtherCertificate)));
        Err(Error::InvalidCertificate(other))
    }

    tls_13_signatures!(algorithms);
}

/// Accepts any certificate whose owner has its key: HELLO, fingerprint and invitation decide later.
#[derive(Debug)]
struct AnyCertificate(WebPkiSupportedAlgorithms);

impl ClientCertVerifier for AnyCertificate {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    tls_13_signatures!(0);
}
