//! The TLS certificate, read again when its files change.

use super::certificate_facts::CertificateFacts;
use super::file_stamp::{FileStamp, stamp};
use crate::observe::log_throttle::LogThrottle;
use crate::observe::status::CertificateStatus;
use crate::settings::{Acme, Tls};
use ekiden_linux::host::sync::locked;
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;
use std::fs;
use std::io::ErrorKind;
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
    /// The files' stamps when they were read, or when an ordered certificate was not there yet. `None`: they could not
    /// be read.
    read: Mutex<Option<[FileStamp; 2]>>,
    failed: LogThrottle,
}

/// `None`: none has been ordered yet, and TLS is refused with the alert `access_denied`.
#[derive(Debug)]
struct CurrentKey(RwLock<Option<Arc<CertifiedKey>>>);

impl CurrentKey {
    fn get(&self) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ResolvesServerCert for CurrentKey {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.get()
    }
}

impl Certificate {
    /// Reads the files that the settings name, if any; fails in words. Files of a certificate that is
    /// ordered may be missing or damaged: what was read of the same files `before` stays then.
    pub(crate) fn open(
        settings: &Tls,
        acme: &Acme,
        before: Option<&Self>,
    ) -> Result<Option<Self>, String> {
        let (Some(certificate), Some(key)) = (&settings.certificate, &settings.key) else {
            return Ok(None);
        };
        let files = [certificate.clone(), key.clone()];
        // before the files: what is written meanwhile is read the next time
        let seen = stamps(&files);
        let kept = || before.filter(|before| before.files == files)?.current.get();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let (read, first) = match read(&files, &provider) {
            _ if seen.iter().all(Option::is_none) && acme.is_on() => (Some(seen), kept()),
            Ok(key) => (Some(seen), Some(Arc::new(key))),
            // another is ordered
            Err(why) if acme.is_on() => {
                tracing::error!("{why}");
                (None, kept())
            }
            Err(why) => return Err(why),
        };
        let (read, current) = (Mutex::new(read), Arc::new(CurrentKey(RwLock::new(first))));
        let resolver = Arc::clone(&current) as Arc<dyn ResolvesServerCert>;
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be set up: {error}"))?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![HTTP_2.to_vec(), b"http/1.1".to_vec()];
        let (config, failed) = (Arc::new(config), LogThrottle::new());
        Ok(Some(Self { config, current, files, read, failed }))
    }

    /// Whether there is a certificate.
    pub(crate) fn is_there(&self) -> bool {
        self.current.get().is_some()
    }

    /// The one in use; `None` while there is none.
    pub(crate) fn status(&self) -> Option<CertificateStatus> {
        let current = self.current.get()?;
        let facts = CertificateFacts::of(current.cert.first()?)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(facts.status(&self.files[0], now.as_secs()))
    }

    /// The name by which clients that know this relay as `host` find it under this certificate: the same where it fits,
    /// else the certificate's own one. `None`: there is none that others can use.
    pub(crate) fn name_for(&self, host: &str) -> Option<String> {
        let current = self.current.get()?;
        let leaf = current.cert.first()?;
        if is_for(leaf, host) {
            return Some(host.to_owned());
        }
        let parsed = webpki::EndEntityCert::try_from(leaf).ok()?;
        let mut names = parsed.valid_dns_names();
        let name =
            names.find(|name| !name.starts_with('*') && !name.eq_ignore_ascii_case("localhost"));
        name.map(str::to_owned)
    }

    /// Reads the files again if they have changed, or could not be read the last time; an error keeps the old
    /// certificate. Call it from time to time.
    pub(crate) fn refresh(&self) {
        self.refresh_by(read);
    }

    fn refresh_by(
        &self,
        read: impl FnOnce(&[PathBuf; 2], &CryptoProvider) -> Result<CertifiedKey, String>,
    ) {
        let now = stamps(&self.files);
        if *locked(&self.read) == Some(now) {
            return;
        }
        match read(&self.files, self.config.crypto_provider()) {
            Ok(new) => {
                *self.current.0.write().unwrap_or_else(PoisonError::into_inner) =
                    Some(Arc::new(new));
                *locked(&self.read) = Some(now);
                tracing::info!("reread the certificate because its files changed");
            }
            // descriptors may be free a second later, or the other file be there
            Err(why) => {
                *locked(&self.read) = None;
                if self.failed.is_due() {
                    tracing::error!(
                        "{why}; keeping the old certificate, and trying again each second"
                    );
                }
            }
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

    /// Whether a relay could use a PEM text with a certificate and its key as a file of both. Errors: in words.
    pub fn check(pem: &[u8]) -> Result<(), String> {
        let provider = rustls::crypto::ring::default_provider();
        let checked = with_key(chain(pem)?, pem, &provider);
        checked.map(drop).map_err(|why| format!("as for the key, {why}"))
    }

    /// Whether clients that write this name or address accept it.
    pub fn is_for(&self, host: &str) -> bool {
        is_for(&self.leaf, host)
    }

    /// Whether its dates are fine at a time.
    pub fn holds(&self, at: SystemTime) -> bool {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        CertificateFacts::of(&self.leaf).is_some_and(|facts| facts.holds(since.as_secs()))
    }
}

/// Whether clients that write this name or address accept a certificate.
fn is_for(leaf: &CertificateDer<'_>, host: &str) -> bool {
    let parsed = ParsedCertificate::try_from(leaf);
    let name = ServerName::try_from(host.trim_matches(['[', ']']));
    matches!((parsed, name), (Ok(parsed), Ok(name)) if verify_server_name(&parsed, &name).is_ok())
}

fn stamps(files: &[PathBuf; 2]) -> [FileStamp; 2] {
    files.each_ref().map(|file| stamp(file))
}

fn read(files: &[PathBuf; 2], provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let [certificate, key] = files;
    let open = |file: &Path| {
        fs::read(file).map_err(|error| {
            let hint = match error.kind() {
                ErrorKind::PermissionDenied => {
                    "; it must be readable by the user ekiden runs as, and with all folders above it"
                }
                _ => "",
            };
            format!("[tls] {} cannot be read: {error}{hint}", file.display())
        })
    };
    let (pem, shown) = (open(certificate)?, certificate.display());
    let chain = chain(&pem).map_err(|why| match PrivateKeyDer::from_pem_slice(&pem) {
        Ok(_) => format!("[tls] {shown}: {why} but a key: {SWAPPED}"),
        Err(_) => format!("[tls] {shown}: {why}"),
    })?;
    let pem = open(key)?;
    with_key(chain, &pem, provider).map_err(|why| {
        let swapped = match PrivateKeyDer::from_pem_slice(&pem) {
            Err(_) if CertificateDer::from_pem_slice(&pem).is_ok() => {
                format!(" but a certificate: {SWAPPED}")
            }
            _ => String::new(),
        };
        format!("[tls] {}, the key for {shown}: {why}{swapped}", key.display())
    })
}

const SWAPPED: &str = "`certificate` and `key` may have changed places";

/// The certificates of a PEM text. Errors: in words.
fn chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| format!("it is not PEM: {error}"))?;
    if chain.is_empty() {
        return Err("it contains no certificate".to_owned());
    }
    Ok(chain)
}

/// A chain with the key of a PEM text. Errors: in words, about the key.
fn with_key(
    chain: Vec<CertificateDer<'static>>,
    pem: &[u8],
    provider: &CryptoProvider,
) -> Result<CertifiedKey, String> {
    let secret = PrivateKeyDer::from_pem_slice(pem).map_err(|error| match error {
        pem::Error::NoItemsFound => "it contains no key".to_owned(),
        error => format!("it contains no key that can be read: {error}"),
    })?;
    CertifiedKey::from_der(chain, secret, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            "it does not match the certificate, which has another key".to_owned()
        }
        error => format!("it does not match the certificate: {error}"),
    })
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
        let certificate = Certificate::open(&settings, &Acme::default(), None).unwrap().unwrap();
        let current = || certificate.current.0.read().unwrap().as_ref().unwrap().cert[0].clone();
        let first = current();
        assert_eq!(certificate.status().unwrap().names, ["localhost"]);
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
    fn a_certificate_that_cannot_be_read_once_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), ["c", "k"]);
        let settings = settings(folder.path(), "c", "k");
        let certificate = Certificate::open(&settings, &Acme::default(), None).unwrap().unwrap();
        let current = || certificate.current.get().unwrap().cert[0].clone();
        let first = current();
        write(folder.path(), ["c", "k"]);
        // no descriptor is left for a moment, in which the files do not change any more
        certificate.refresh_by(|_, _| Err("too many open files".to_owned()));
        assert_eq!(current(), first);
        certificate.refresh();
        assert_ne!(current(), first);
        certificate.refresh_by(|_, _| panic!("nothing changed"));
    }

    #[test]
    fn a_file_whose_size_and_time_are_as_before_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), ["c", "k"]);
        let files = ["c", "k"].map(|name| folder.path().join(name));
        let before = stamps(&files);
        let file = fs::File::options().write(true).open(&files[0]).unwrap();
        let time = file.metadata().unwrap().modified().unwrap();
        // the kernel's clock for files goes by ticks
        let changed = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            file.set_modified(time).unwrap();
            stamps(&files)[0] != before[0]
        });
        assert!(changed && stamps(&files)[1] == before[1]);
    }

    #[test]
    fn a_reload_keeps_an_ordered_certificate_whose_files_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), ["c", "k"]);
        let (tls, other) = (settings(folder.path(), "c", "k"), settings(folder.path(), "d", "l"));
        let acme = Acme { names: vec!["relay.example".to_owned()], ..Acme::default() };
        let open = |tls, before| Certificate::open(tls, &acme, before).unwrap().unwrap();
        let first = open(&tls, None);
        fs::write(folder.path().join("k"), "half a file").unwrap();
        let second = open(&tls, Some(&first));
        assert_eq!(second.current.get().unwrap().cert, first.current.get().unwrap().cert);
        assert!(!open(&other, Some(&second)).is_there(), "those are other files");
        fs::remove_file(folder.path().join("k")).unwrap();
        fs::remove_file(folder.path().join("c")).unwrap();
        let third = open(&tls, Some(&second));
        assert!(third.is_there());
        write(folder.path(), ["c", "k"]);
        third.refresh();
        assert_ne!(third.current.get().unwrap().cert, first.current.get().unwrap().cert);
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
    fn another_name_of_the_certificate_stands_in_where_the_one_in_use_does_not_fit() {
        let folder = tempfile::tempdir().unwrap();
        let cases: [(&[&str], &str, Option<&str>); 6] = [
            (&["localhost", "relay.example"], "192.0.2.1", Some("relay.example")),
            (&["*.a.example", "b.example"], "c.a.example", Some("c.a.example")),
            (&["*.a.example", "b.example"], "other.example", Some("b.example")),
            (&["192.0.2.1"], "192.0.2.1", Some("192.0.2.1")),
            (&["2001:db8::1"], "[2001:db8::1]", Some("[2001:db8::1]")),
            (&["192.0.2.1", "*.a.example", "localhost"], "192.0.2.2", None),
        ];
        for (subjects, host, name) in cases {
            let made = ekiden_testkit::Certificate::self_signed(folder.path(), "own", subjects);
            let tls = Tls { certificate: Some(made.certificate), key: Some(made.key) };
            let certificate = Certificate::open(&tls, &Acme::default(), None).unwrap().unwrap();
            assert_eq!(certificate.name_for(host).as_deref(), name, "{subjects:?} {host}");
        }
    }

    #[test]
    fn names_each_certificate_error() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), ["c", "k"]);
        write(folder.path(), ["other-c", "other-k"]);
        for (certificate, key, why) in [
            ("none", "k", "cannot be read"),
            ("k", "k", "k: it contains no certificate but a key: `certificate` and `key` may"),
            ("c", "c", "it contains no key but a certificate: `certificate` and `key` may"),
            ("c", "other-k", "/c: it does not match the certificate, which has another key"),
        ] {
            let settings = settings(folder.path(), certificate, key);
            let refused = Certificate::open(&settings, &Acme::default(), None);
            assert!(refused.as_ref().is_err_and(|text| text.contains(why)), "{why}: {refused:?}");
        }
        assert!(Certificate::open(&Tls::default(), &Acme::default(), None).unwrap().is_none());
    }

    #[test]
    fn an_ordered_certificate_may_come_later() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path(), "c", "k");
        let acme = Acme { names: vec!["relay.example".to_owned()], ..Acme::default() };
        let certificate = Certificate::open(&settings, &acme, None).unwrap().unwrap();
        certificate.refresh();
        assert!(!certificate.is_there());
        fs::write(folder.path().join("c"), "half a file").unwrap();
        assert!(!Certificate::open(&settings, &acme, None).unwrap().unwrap().is_there());
        write(folder.path(), ["c", "k"]);
        certificate.refresh();
        assert!(certificate.is_there());
    }
}
