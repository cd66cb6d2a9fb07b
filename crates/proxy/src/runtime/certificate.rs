//! The TLS certificate, read again when its files change.

use crate::settings::{Acme, Tls};
use ekiden_linux::host::sync::locked;
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

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

/// `None`: none has been ordered yet, and TLS is refused with the alert `access_denied`.
#[derive(Debug)]
struct CurrentKey(RwLock<Option<Arc<CertifiedKey>>>);

impl ResolvesServerCert for CurrentKey {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Certificate {
    /// Reads the files that the settings name, if any; fails in words. Files of a certificate that is
    /// ordered may be missing.
    pub(crate) fn open(settings: &Tls, acme: &Acme) -> Result<Option<Self>, String> {
        let (Some(certificate), Some(key)) = (&settings.certificate, &settings.key) else {
            return Ok(None);
        };
        let files = [certificate.clone(), key.clone()];
        let seen = stamps(&files);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let first = match read(&files, &provider) {
            _ if seen.iter().all(Option::is_none) && acme.is_on() => None,
            Ok(key) => Some(Arc::new(key)),
            // another is ordered
            Err(why) if acme.is_on() => {
                tracing::error!("{why}");
                None
            }
            Err(why) => return Err(why),
        };
        let (seen, current) = (Mutex::new(seen), Arc::new(CurrentKey(RwLock::new(first))));
        let resolver = Arc::clone(&current) as Arc<dyn ResolvesServerCert>;
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be set up: {error}"))?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![HTTP_2.to_vec(), b"http/1.1".to_vec()];
        Ok(Some(Self { config: Arc::new(config), current, files, seen }))
    }

    /// Whether there is a certificate.
    pub(crate) fn is_there(&self) -> bool {
        self.current.0.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Reads the files again if they have changed; an error keeps the old certificate. Call it from time to time.
    pub(crate) fn refresh(&self) {
        let now = stamps(&self.files);
        if std::mem::replace(&mut *locked(&self.seen), now) == now {
            return;
        }
        match read(&self.files, self.config.crypto_provider()) {
            Ok(new) => {
                *self.current.0.write().unwrap_or_else(PoisonError::into_inner) =
                    Some(Arc::new(new));
                tracing::info!("reread the certificate because its files changed");
            }
            Err(why) => tracing::error!("{why}; keeping the old certificate"),
        }
    }
}

/// A certificate in files with its key, as a relay would use it.
#[derive(Debug)]
pub struct CertificateFiles {
    leaf: CertificateDer<'static>,
}

impl CertificateFiles {
    /// Reads both. Errors: in words, with the file: one cannot be read, has not what is wanted, or they do not belong
    /// together.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, String> {
        let files = [certificate.to_owned(), key.to_owned()];
        let read = read(&files, &rustls::crypto::ring::default_provider())?;
        let leaf = read.cert.into_iter().next();
        leaf.map(|leaf| Self { leaf }).ok_or_else(|| "there is no certificate".to_owned())
    }

    /// Whether clients that write this name or address accept it.
    pub fn is_for(&self, host: &str) -> bool {
        let parsed = ParsedCertificate::try_from(&self.leaf);
        let name = ServerName::try_from(host.trim_matches(['[', ']']));
        matches!((parsed, name), (Ok(parsed), Ok(name)) if verify_server_name(&parsed, &name).is_ok())
    }

    /// Whether its dates are fine at a time.
    pub fn holds(&self, at: SystemTime) -> bool {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let Ok(parsed) = ParsedCertificate::try_from(&self.leaf) else { return false };
        // dates are looked at before the issuer, whom nobody needs to know here
        let seen = verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &RootCertStore::empty(),
            &[],
            UnixTime::since_unix_epoch(since),
            rustls::crypto::ring::default_provider().signature_verification_algorithms.all,
        );
        use rustls::CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
        !matches!(
            seen,
            Err(rustls::Error::InvalidCertificate(
                Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. }
            ))
        )
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
    use std::time::Duration;

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
        let settings = settings(folder.path(), "c", "k");
        let certificate = Certificate::open(&settings, &Acme::default()).unwrap().unwrap();
        let current = || certificate.current.0.read().unwrap().as_ref().unwrap().cert[0].clone();
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
    fn names_and_dates_are_those_of_the_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let [certificate, key] = ["c", "k"].map(|name| folder.path().join(name));
        write(folder.path(), ["c", "k"]);
        let files = CertificateFiles::read(&certificate, &key).unwrap();
        let now = SystemTime::now();
        // rcgen's end is in 4096
        let ages = Duration::from_secs(3_000 * 366 * 86_400);
        assert!(files.holds(now) && !files.holds(now + ages) && !files.holds(UNIX_EPOCH));
        for (host, fits) in [
            ("localhost", true),
            ("LOCALHOST", true),
            ("relay.example", false),
            ("192.0.2.1", false),
        ] {
            assert_eq!(files.is_for(host), fits, "{host}");
        }
        let why = CertificateFiles::read(&certificate, &certificate).unwrap_err();
        assert!(why.contains("contains no key"), "{why}");
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
            let settings = settings(folder.path(), certificate, key);
            let refused = Certificate::open(&settings, &Acme::default());
            assert!(refused.as_ref().is_err_and(|text| text.contains(why)), "{why}: {refused:?}");
        }
        assert!(Certificate::open(&Tls::default(), &Acme::default()).unwrap().is_none());
    }

    #[test]
    fn an_ordered_certificate_may_come_later() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path(), "c", "k");
        let acme = Acme { names: vec!["relay.example".to_owned()], ..Acme::default() };
        let certificate = Certificate::open(&settings, &acme).unwrap().unwrap();
        certificate.refresh();
        assert!(!certificate.is_there());
        fs::write(folder.path().join("c"), "half a file").unwrap();
        assert!(!Certificate::open(&settings, &acme).unwrap().unwrap().is_there());
        write(folder.path(), ["c", "k"]);
        certificate.refresh();
        assert!(certificate.is_there());
    }
}
