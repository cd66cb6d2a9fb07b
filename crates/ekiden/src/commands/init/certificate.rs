//! The certificate of a relay for clients: files that are given, an order, what the configuration has, or a self-signed
//! one.

use super::access;
use crate::daemon::orders;
use crate::setup::document::Document;
use crate::setup::place::Place;
use ekiden_linux::host::state_files::{self, Prepared};
use ekiden_proxy::CertificateFiles;
use rcgen::{CertificateParams, DnType, KeyPair};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Days that it is valid. Clients of Apple take no server's certificate of more than 825.
const DAYS: u64 = 824;
/// Valid from a little before, since clocks differ.
const BEFORE: Duration = Duration::from_secs(86_400);
/// One that ends within this is made anew.
const SOON: Duration = Duration::from_secs(30 * 86_400);

/// What the operator wants.
#[derive(Debug)]
pub(super) struct Wish {
    /// Certificate and key in files.
    pub(super) files: Option<(PathBuf, PathBuf)>,
    /// One that is ordered.
    pub(super) acme: bool,
    /// The relay's name or address.
    pub(super) name: String,
}

/// Where a relay has its certificate from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Certificate {
    /// The configuration says so already.
    Configured,
    /// Files of the operator.
    Given { certificate: PathBuf, key: PathBuf },
    /// Ordered from an authority.
    Ordered,
    /// Made by this relay; clients have to be told to trust it. `why` it is made now; `None`: it is there.
    SelfSigned { certificate: PathBuf, key: PathBuf, why: Option<String> },
}

/// A certificate and its key that are written and not in place yet. The old files are neither read nor moved: the
/// service's user may have put links to other files there.
#[derive(Debug)]
pub(super) struct Made {
    folder: PathBuf,
    files: Vec<Prepared>,
}

impl Certificate {
    /// What is to be used. Errors: a given file cannot be used by the relay, or the wishes exclude each other.
    pub(super) fn choose(
        document: &Document,
        wish: &Wish,
        (place, state): (&Place, &Path),
    ) -> Result<Self, String> {
        let ordered = document.draft().acme.is_on();
        if let Some((certificate, key)) = &wish.files {
            if ordered {
                return Err("[acme] orders the certificate: leave --certificate and --key out, or remove [acme] from the configuration".to_owned());
            }
            let absolute = |path: &Path| std::path::absolute(path).map_err(|e| e.to_string());
            let (certificate, key) = (absolute(certificate)?, absolute(key)?);
            let files = CertificateFiles::read(&certificate, &key)?;
            if !files.holds(SystemTime::now()) {
                return Err(format!(
                    "the certificate in {} is not valid now; renew it, or set the clock",
                    certificate.display()
                ));
            }
            if !files.is_for(&wish.name) {
                return Err(format!(
                    "the certificate in {} is not for {}, and clients would refuse it: give a --name that it has",
                    certificate.display(),
                    wish.name
                ));
            }
            if let Some(owner) = place.service {
                access::check(&certificate, owner)?;
                access::check(&key, owner)?;
            }
            return Ok(Self::Given { certificate, key });
        }
        let folder = state.join("tls");
        let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
        let own = document.draft().tls.certificate.as_ref() == Some(&certificate);
        let other = document.says_table("tls") && !own;
        if wish.acme {
            orders::are_possible()?;
            if other {
                return Err("[tls] names a certificate: leave --acme out, or remove `certificate` and `key` of [tls] from the configuration".to_owned());
            }
            return Ok(if is_ordered(document, &wish.name) {
                Self::Configured
            } else {
                Self::Ordered
            });
        }
        // whatever the configuration says is meant
        if ordered || other {
            return Ok(Self::Configured);
        }
        let why = reason(&certificate, &key, &wish.name);
        Ok(Self::SelfSigned { certificate, key, why })
    }

    /// What is done beside the configuration.
    pub(super) fn step(&self, name: &str) -> Option<String> {
        match self {
            Self::SelfSigned { certificate, why: Some(why), .. } => Some(format!(
                "make a self-signed certificate for {name}, valid for {DAYS} days, in {}{why}",
                certificate.display()
            )),
            Self::Ordered => Some(format!(
                "have the relay order a certificate for {name}, with your agreement to the authority's terms"
            )),
            _ => None,
        }
    }

    /// Names the files in the configuration, or the order.
    pub(super) fn configure(&self, document: &mut Document, name: &str) -> Result<(), String> {
        match self {
            Self::Configured => Ok(()),
            Self::Given { certificate, key } | Self::SelfSigned { certificate, key, .. } => {
                document.set(&["tls"], "certificate", certificate.display().to_string())?;
                document.set(&["tls"], "key", key.display().to_string())
            }
            Self::Ordered => {
                document.remove("tls", &["certificate", "key"]);
                let mut names = document.draft().acme.names.clone();
                if !is_ordered(document, name) {
                    names.push(name.to_owned());
                }
                document.set_list(&["acme"], "names", &names)?;
                document.set(&["acme"], "agree_to_terms", true)
            }
        }
    }

    /// Makes what is to be made, to be put in place by [`Made::commit`]. Errors: in words.
    pub(super) fn make(&self, name: &str) -> Result<Made, String> {
        let Self::SelfSigned { certificate, key, why: Some(_) } = self else {
            return Ok(Made { folder: PathBuf::new(), files: Vec::new() });
        };
        let (text, secret) =
            self_signed(name).map_err(|error| format!("no certificate could be made: {error}"))?;
        let folder = certificate.parent().unwrap_or(Path::new("/"));
        let write = || {
            state_files::make_folder(folder)?;
            let key = state_files::prepare(key, secret.as_bytes())?;
            let certificate = state_files::prepare(certificate, text.as_bytes())?;
            // it is handed to clients
            certificate.open_to_others()?;
            Ok(vec![key, certificate])
        };
        let files = write().map_err(|error| failed(folder, &error))?;
        Ok(Made { folder: folder.to_owned(), files })
    }
}

impl Made {
    /// Puts both files in place. Errors: in words; all that is likely to fail was done before.
    pub(super) fn commit(self) -> Result<(), String> {
        for file in self.files {
            file.commit().map_err(|error| failed(&self.folder, &error))?;
        }
        Ok(())
    }
}

fn failed(folder: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", folder.display())
}

/// Whether the configuration orders a certificate for this name.
pub(super) fn is_ordered(document: &Document, name: &str) -> bool {
    document.draft().acme.names.iter().any(|ordered| ordered.eq_ignore_ascii_case(name))
}

/// Why a self-signed certificate is made now, to be put behind what is made.
fn reason(certificate: &Path, key: &Path, name: &str) -> Option<String> {
    if !certificate.exists() || !key.exists() {
        return Some(String::new());
    }
    let again = "; clients have to trust it anew, since the one there";
    match CertificateFiles::read(certificate, key) {
        Err(why) => Some(format!("{again} is of no use: {why}")),
        Ok(files) if !files.is_for(name) => Some(format!("{again} is for another name")),
        Ok(files) if !files.holds(SystemTime::now() + SOON) => {
            Some(format!("{again} ends within {} days", SOON.as_secs() / 86_400))
        }
        Ok(_) => None,
    }
}

fn self_signed(name: &str) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    let mut names = vec![name.to_owned()];
    if name != "localhost" {
        names.push("localhost".to_owned());
    }
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, name);
    let now = SystemTime::now();
    params.not_before = (now - BEFORE).into();
    params.not_after = (now - BEFORE + Duration::from_secs(DAYS * 86_400)).into();
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn own(folder: &Path, why: Option<String>) -> Certificate {
        let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| folder.join(name));
        Certificate::SelfSigned { certificate, key, why }
    }

    #[test]
    fn a_self_signed_certificate_is_for_what_clients_write_and_is_made_anew_for_another() {
        for name in ["relay.example", "192.0.2.1", "2001:db8::1"] {
            let folder = tempfile::tempdir().unwrap();
            let [certificate, key] =
                ["certificate.pem", "key.pem"].map(|file| folder.path().join(file));
            assert_eq!(reason(&certificate, &key, name), Some(String::new()));
            own(folder.path(), Some(String::new())).make(name).unwrap().commit().unwrap();
            assert_eq!(reason(&certificate, &key, name), None, "{name}");
            let why = reason(&certificate, &key, "other.example").unwrap();
            assert!(why.contains("is for another name"), "{why}");
            let files = CertificateFiles::read(&certificate, &key).unwrap();
            let day = |days: u64| SystemTime::now() + Duration::from_secs(days * 86_400);
            assert!(files.holds(day(0)) && files.holds(day(DAYS - 2)) && !files.holds(day(DAYS)));
            fs::write(&certificate, "half a file").unwrap();
            assert!(reason(&certificate, &key, name).unwrap().contains("is of no use"));
        }
    }

    #[test]
    fn a_failure_leaves_the_old_files() {
        let folder = tempfile::tempdir().unwrap();
        let new = own(folder.path(), Some(String::new()));
        drop(new.make("relay.example").unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        new.make("relay.example").unwrap().commit().unwrap();
        let read =
            || ["certificate.pem", "key.pem"].map(|f| fs::read(folder.path().join(f)).unwrap());
        let before = read();
        drop(new.make("other.example").unwrap());
        assert_eq!(read(), before);
        // the key is written, and the certificate cannot be
        fs::remove_file(folder.path().join("certificate.pem")).unwrap();
        fs::create_dir(folder.path().join("certificate.pem")).unwrap();
        assert!(new.make("other.example").is_err());
        assert_eq!(fs::read(folder.path().join("key.pem")).unwrap(), before[1]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!(own(folder.path(), None).make("relay.example").unwrap().files.is_empty());
    }

    #[test]
    fn a_link_in_the_place_of_the_key_brings_no_other_file_into_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let (secret, tls) = (folder.path().join("secret"), folder.path().join("tls"));
        fs::create_dir(&tls).unwrap();
        fs::write(&secret, "secret").unwrap();
        symlink(&secret, tls.join("key.pem")).unwrap();
        let new = own(&tls, Some(String::new()));
        drop(new.make("relay.example").unwrap());
        assert_eq!(fs::read_link(tls.join("key.pem")).unwrap(), secret);
        assert_eq!(fs::read_dir(&tls).unwrap().count(), 1);
        new.make("relay.example").unwrap().commit().unwrap();
        assert!(fs::read_to_string(tls.join("key.pem")).unwrap().contains("PRIVATE KEY"));
        assert_eq!(fs::read(&secret).unwrap(), b"secret");
    }
}
