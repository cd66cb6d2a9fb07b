//! A certificate for peers that end TLS, and clients that trust it alone.

use rustls::client::Resumption;
use rustls::crypto::ring::{self, cipher_suite};
use rustls::{ClientConfig, RootCertStore};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

/// A self-signed certificate for 127.0.0.1 and its key (ECDSA, P-256), in files that go with it.
#[derive(Debug)]
pub struct Certificate {
    folder: TempDir,
    client: Arc<ClientConfig>,
}

impl Certificate {
    /// A new one. Errors: of the temporary folder.
    pub fn new() -> io::Result<Self> {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]);
        let made = made.map_err(io::Error::other)?;
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let folder = TempDir::new()?;
        for (name, text) in
            [("both", format!("{certificate}{key}")), ("certificate", certificate), ("key", key)]
        {
            fs::write(folder.path().join(name).with_extension("pem"), text)?;
        }
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).map_err(io::Error::other)?;
        let mut provider = ring::default_provider();
        provider.cipher_suites = vec![cipher_suite::TLS13_AES_128_GCM_SHA256];
        let client = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(io::Error::other)?;
        let mut client = client.with_root_certificates(roots).with_no_client_auth();
        client.resumption = Resumption::disabled();
        Ok(Self { folder, client: Arc::new(client) })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The certificate in PEM.
    pub fn certificate(&self) -> PathBuf {
        self.file("certificate.pem")
    }

    /// The key in PEM.
    pub fn key(&self) -> PathBuf {
        self.file("key.pem")
    }

    /// Both in one file.
    pub fn both(&self) -> PathBuf {
        self.file("both.pem")
    }

    /// Clients' side: TLS 1.3 by AES-128-GCM, every handshake a whole one, so that all peers do the same work.
    pub fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }
}
