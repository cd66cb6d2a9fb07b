//! Authentication of peers: certificates, fingerprints, invitations, and their files.
//!
//! Both sides show a self-signed certificate and check the other's fingerprint; names and
//! authorities mean nothing. An invited relay sends the invitation's secret once, encrypted, to the
//! relay whose fingerprint the token holds. From then on its own fingerprint identifies it.

mod invitation;
mod store;
pub(crate) mod tls;

pub use crate::trust::invitation::{BadToken, Token};
pub(crate) use store::admitted;
pub use store::{Peer, PeerKind, Store, StoreError};
pub use tls::{BadCredentials, Credentials};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// SHA-256 of a certificate; printed as 43 characters of base64url.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

/// The fingerprint of a certificate.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> Fingerprint {
    Fingerprint(Sha256::digest(certificate).into())
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<Self, BadToken> {
        bytes(text).map(Self)
    }
}

impl serde::Serialize for Fingerprint {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Fingerprint {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl From<[u8; 32]> for Fingerprint {
    fn from(hash: [u8; 32]) -> Self {
        Self(hash)
    }
}

/// An invitation's secret from its text in the store.
pub fn decode(secret: &str) -> Result<[u8; 32], BadToken> {
    bytes(secret)
}

/// And back.
pub fn encode(secret: &[u8; 32]) -> String {
    URL_SAFE_NO_PAD.encode(secret)
}

/// 32 bytes from base64url.
fn bytes(text: &str) -> Result<[u8; 32], BadToken> {
    let decoded = URL_SAFE_NO_PAD.decode(text).map_err(|_| BadToken::Damaged)?;
    decoded.try_into().map_err(|_| BadToken::Damaged)
}

/// Random bytes from the kernel. Errors: the kernel gives none.
pub fn random<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(bytes)
}

/// The kernel gives no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the kernel gives no random bytes (getrandom)")]
pub struct NoRandomness;

/// SHA-256 of an invitation's secret, which the inviting relay keeps.
pub fn hash(secret: &[u8]) -> [u8; 32] {
    Sha256::digest(secret).into()
}
