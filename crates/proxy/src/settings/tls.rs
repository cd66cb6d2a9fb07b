//! `[tls]`.

use std::path::PathBuf;

/// The certificate for clients. With it, clients may begin with TLS on the same port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// PEM: the certificate with its chain. `None`: no TLS.
    pub certificate: Option<PathBuf>,
    /// PEM: its private key.
    pub key: Option<PathBuf>,
}
