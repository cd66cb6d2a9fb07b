//! Certificates of a test's own.

use rcgen::{CertificateParams, Issuer, KeyPair};
use std::fs;
use std::path::{Path, PathBuf};

/// A certificate and its key, each in a PEM file.
#[derive(Debug)]
pub struct Certificate {
    /// `NAME-certificate.pem`.
    pub certificate: PathBuf,
    /// `NAME-key.pem`.
    pub key: PathBuf,
    /// The certificate in DER.
    pub der: Vec<u8>,
    /// Its pair of keys.
    pub pair: KeyPair,
}

impl Certificate {
    /// Writes a self-signed one for these names and addresses to a folder.
    pub fn self_signed(folder: &Path, name: &str, subjects: &[&str]) -> Self {
        let subjects: Vec<String> = subjects.iter().map(ToString::to_string).collect();
        let made = rcgen::generate_simple_self_signed(subjects).unwrap();
        Self::write(folder, name, &made.cert, made.signing_key)
    }

    fn write(folder: &Path, name: &str, made: &rcgen::Certificate, pair: KeyPair) -> Self {
        let file = |part: &str| folder.join(format!("{name}-{part}.pem"));
        let (certificate, key) = (file("certificate"), file("key"));
        fs::write(&certificate, made.pem()).unwrap();
        fs::write(&key, pair.serialize_pem()).unwrap();
        Self { certificate, key, der: made.der().to_vec(), pair }
    }
}

/// An authority whose certificate is in a file.
#[derive(Debug)]
pub struct Authority {
    /// `NAME.pem`.
    pub file: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Writes its certificate to a folder.
    pub fn new(folder: &Path, name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let file = folder.join(format!("{name}.pem"));
        fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
        Self { file, issuer: Issuer::new(params, key) }
    }

    /// A certificate for `subject`, valid from the first of these years to the second.
    pub fn certify(&self, folder: &Path, subject: &str, years: [i32; 2]) -> Certificate {
        let mut params = CertificateParams::new(vec![subject.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(years[0], 1, 1);
        params.not_after = rcgen::date_time_ymd(years[1], 1, 1);
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, &self.issuer).unwrap();
        let name = format!("{subject}-{}-{}", years[0], years[1]).replace('*', "any");
        Certificate::write(folder, &name, &made, key)
    }
}
