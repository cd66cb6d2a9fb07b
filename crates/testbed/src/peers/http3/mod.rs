//! Web servers that speak HTTP/3.

pub mod caddy;
pub mod quiche;

use super::process::{Preparation, io_error};
use super::{Peer, PeerError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::PublicKeyData;
use sha2::{Digest, Sha256};
use std::io;
use std::path::PathBuf;

/// A server, and what a browser has to know of its keys.
#[derive(Debug)]
pub struct Http3 {
    /// The program. It serves by UDP on its address.
    pub server: Peer,
    /// The SHA-256 of each certificate's public key in base64, as Chromium's
    /// `--ignore-certificate-errors-spki-list` takes it: for QUIC it ignores no other error.
    pub keys: Vec<String>,
}

/// A certificate of its own for a name, as files of the program's folder.
struct Certificate {
    certificate: PathBuf,
    key: PathBuf,
    /// As in [`Http3::keys`].
    spki: String,
}

fn certificate(peer: &Preparation, number: usize, name: &str) -> Result<Certificate, PeerError> {
    let failed = |error| io_error(&peer.name, io::Error::other(error));
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).map_err(failed)?;
    Ok(Certificate {
        certificate: peer.write(&format!("{number}.pem"), made.cert.pem())?,
        key: peer.write(&format!("{number}.key"), made.signing_key.serialize_pem())?,
        spki: STANDARD.encode(Sha256::digest(made.signing_key.subject_public_key_info())),
    })
}
