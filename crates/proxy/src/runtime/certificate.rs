//! The TLS certificate, read again when its files change.

use crate::settings::Tls;
use ekiden_linux::host::sync::locked;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// ALPN's name of HTTP/2 (RFC 9113 §3.2).
pub(crate) const HTTP_2: &[u8] = b"h2";

#[derive(Debug)]
pub(crate) struct Certificate {
    pub(crate) config: Arc<ServerConfig>,
    current: Arc<CurrentKey>,
    files: [PathBuf; 2],
    /// The files' stamps at the last check.
    seen: Mutex<[FileStamp; 2]>,
}

/// Changes when a file is written or replaced: inode, size, seconds and nanoseconds.
type FileStamp = Option<(u64, u64, i64, i64)>;

#[derive(Debug)]
struct CurrentKey(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for CurrentKey {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Certificate {
    /// Reads the files that the settings name, if any; fails in words.
    pub(crate) fn open(settings: &Tls) -> Result<Option<Self>, String> {
        let (Some(certificate), Some(key)) = (&settings.certificate, &settings.key) else {
            return Ok(None);
        };
        let files = [certificate.clone(), key.clone()];
        let seen = Mutex::new(stamps(&files));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let current = Arc::new(CurrentKey(RwLock::new(Arc::new(read(&files, &provider)?))));
        let resolver = Arc::clone(&current) as Arc<dyn ResolvesServerCert>;
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be set up: {error}"))?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![HTTP_2.to_vec(), b"http/1.1".to_vec()];
        Ok(Some(Self { config: Arc::new(config), current, files, seen }))
    }

    /// Reads the files again if they have changed; an error keeps the old certificate. Call it from time to time.
    pub(crate) fn refresh(&self) {
        let now = stamps(&self.files);
        if std::mem::replace(&mut *locked(&self.seen), now) == now {
            return;
        }
        match read(&self.files, self.config.crypto_provider()) {
            Ok(new) => {
                *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
                tracing::info!("reread the certificate because its files changed");
            }
            Err(why) => tracing::error!("{why}; keeping the old certificate"),
        }
    }
}

fn stamps(files: &[PathBuf; 2]) -> [FileStamp; 2] {
    files.each_ref().map(|file| {
        let data = fs::metadata(file).ok()?;
        Some((data.ino(), data.len(), data.mtime(), data.mtime_nsec()))
    })
}

fn read(files: &[PathBuf; 2], provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let [certificate, key] = files;
    let open = |file: &Path| {
        fs::read(file).map_err(|error| format!("[tls] {} cannot be read: {error}", file.display()))
    };
    let wrong = |file: &Path, why: String| format!("[tls] {}: {why}", file.display());
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&open(certificate)?).collect();
    let chain = chain.map_err(|error| wrong(certificate, format!("it is not PEM: {error}")))?;
    if chain.is_empty() {
        return Err(wrong(certificate, "it contains no certificate".to_owned()));
    }
    let secret = PrivateKeyDer::from_pem_slice(&open(key)?)
        .map_err(|error| wrong(key, format!("it contains no key: {error}")))?;
    CertifiedKey::from_der(chain, secret, provider)
        .map_err(|error| wrong(key, format!("it does not match the certificate: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    /// A certificate and its key for "localhost".
    fn write(folder: &Path, files: [&str; 2]) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let pem = |label: &str, bytes: &[u8]| {
            let text = STANDARD.encode(bytes);
            format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
        };
        let [certificate, key] = files.map(|file| folder.join(file));
        fs::write(certificate, pem("CERTIFICATE", made.cert.der())).unwrap();
        fs::write(key, pem("PRIVATE KEY", &made.signing_key.serialize_der())).unwrap();
    }

    fn settings(folder: &Path, certificate: &str, key: &str) -> Tls {
        Tls { certificate: Some(folder.join(certificate)), key: Some(folder.join(key)) }
    }

    #[test]
    fn rereads_changed_files_and_survives_errors() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), ["c", "k"]);
        let certificate = Certificate::open(&settings(folder.path(), "c", "k")).unwrap().unwrap();
        let current = || certificate.current.0.read().unwrap().cert[0].clone();
        let first = current();
        certificate.refresh();
        assert_eq!(current(), first);
        fs::write(folder.path().join("c"), "half a file").unwrap();
        certificate.refresh();
        assert_eq!(current(), first);
        write(folder.path(), ["c", "k"]);
        certificate.refresh();
        assert_ne!(current(), first);
    }

    #[test]
    fn names_each_certificate_error() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), ["c", "k"]);
        write(folder.path(), ["other-c", "other-k"]);
        for (certificate, key, why) in [
            ("none", "k", "cannot be read"),
            ("k", "k", "contains no certificate"),
            ("c", "c", "contains no key"),
            ("c", "other-k", "does not match the certificate"),
        ] {
            let refused = Certificate::open(&settings(folder.path(), certificate, key));
            assert!(refused.as_ref().is_err_and(|text| text.contains(why)), "{why}: {refused:?}");
        }
        assert!(Certificate::open(&Tls::default()).unwrap().is_none());
    }
}
