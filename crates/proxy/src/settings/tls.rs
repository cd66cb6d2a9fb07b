//! `[tls]`.

use std::path::PathBuf;

/// A certificate for the doors. With it, clients may begin with TLS on the same port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// PEM: the certificate, and those between it and whom clients trust. `None`: no TLS.
    pub certificate: Option<PathBuf>,
    /// PEM: its key.
    pub key: Option<PathBuf>,
}
