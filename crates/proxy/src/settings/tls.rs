//! `[tls]`, and TLS to upstream proxies.

use std::path::PathBuf;

/// The certificate for clients. With it, clients may begin with TLS on the same port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// PEM: the certificate with its chain. `None`: no TLS.
    pub certificate: Option<PathBuf>,
    /// PEM: its private key.
    pub key: Option<PathBuf>,
}

/// Whom to take an upstream proxy's certificate from; only for [`super::UpstreamProtocol::Https`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamTls {
    /// PEM: certificates of the authorities to trust for it, in place of the system's.
    pub authorities: Option<PathBuf>,
    /// SHA-256 of its certificate in DER: that one and no other, whatever its name and dates.
    pub fingerprint: Option<[u8; 32]>,
}

/// Certificates that this relay orders by itself (RFC 8555), by TLS-ALPN-01 (RFC 8737).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acme {
    /// The names of the certificate, without wildcards; empty: none is ordered.
    pub names: Vec<String>,
    /// Whether the operator agrees to the authority's terms of service.
    pub agree_to_terms: bool,
    /// Mail addresses for the authority.
    pub contact: Vec<String>,
    /// The authority's directory, an `https://` URL.
    pub directory: String,
    /// PEM: whom to trust for the directory's own certificate, in place of the system's authorities.
    pub authorities: Option<PathBuf>,
    /// The key identifier of an external account (RFC 8555 §7.3.4), if the authority wants one.
    pub external_key_id: Option<String>,
    /// A file with that account's MAC key in base64url.
    pub external_key_file: Option<PathBuf>,
    /// The folder for account, keys and certificates. `None` before the daemon has chosen one.
    pub state: Option<PathBuf>,
}

impl Acme {
    /// Whether certificates are ordered.
    pub const fn is_on(&self) -> bool {
        !self.names.is_empty()
    }
}

impl Default for Acme {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            agree_to_terms: false,
            contact: Vec::new(),
            directory: "https://acme-v02.api.letsencrypt.org/directory".to_owned(),
            authorities: None,
            external_key_id: None,
            external_key_file: None,
            state: None,
        }
    }
}
