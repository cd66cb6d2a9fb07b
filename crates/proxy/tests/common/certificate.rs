//! Certificates of a test's own, as the settings name them.

use ekiden_proxy::settings::Tls;
use ekiden_testkit::{Authority, Certificate};
use sha2::{Digest as _, Sha256};
use std::path::Path;

/// Writes a self-signed certificate for "localhost" to a folder; its fingerprint.
pub fn own(folder: &Path) -> (Tls, Option<[u8; 32]>) {
    let made = Certificate::self_signed(folder, "own", &["localhost"]);
    let fingerprint = Sha256::digest(&made.der).into();
    (named(made), Some(fingerprint))
}

/// A certificate for `subject`, valid from the first of these years to the second.
pub fn certify(by: &Authority, folder: &Path, subject: &str, years: [i32; 2]) -> Tls {
    named(by.certify(folder, subject, years))
}

fn named(made: Certificate) -> Tls {
    Tls { certificate: Some(made.certificate), key: Some(made.key) }
}
