//! Keys of Curve25519, written as WireGuard's tools write them: 32 bytes in base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use boringtun::x25519;
use ekiden_linux::host::state_files;
use ring::rand::{SecureRandom as _, SystemRandom};
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The file in the state folder that holds the relay's own key.
const FILE: &str = "wireguard.key";
/// As its owner alone may read it.
const OTHERS: u32 = 0o077;

/// A secret key. It is never printed but by [`PrivateKey::reveal`].
#[derive(Clone)]
pub struct PrivateKey(x25519::StaticSecret);

/// A public key, which identifies a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey([u8; 32]);

/// A text that is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key of WireGuard is 44 characters of base64, as `wg pubkey` prints it")]
pub struct BadKey;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum KeyError {
    #[error("the system gives no random bytes")]
    Random,
    #[error("{path}: {error}")]
    File { path: PathBuf, error: io::Error },
    #[error("{0} holds no key; restore it, or remove it: all clients then need new configurations")]
    Broken(PathBuf),
    #[error("others may read the private key in {0}: chmod 600 {0}")]
    Open(PathBuf),
}

impl PrivateKey {
    /// A new one. Errors: [`KeyError::Random`].
    pub fn generate() -> Result<Self, KeyError> {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).map_err(|_| KeyError::Random)?;
        // as `wg genkey` writes it (RFC 7748 §5); the bits do not count otherwise
        bytes[0] &= 248;
        bytes[31] = bytes[31] & 127 | 64;
        Ok(Self(bytes.into()))
    }

    /// Its other half.
    pub fn public(&self) -> PublicKey {
        PublicKey(x25519::PublicKey::from(&self.0).to_bytes())
    }

    /// The secret as text, for the one configuration that it belongs to.
    pub fn reveal(&self) -> String {
        STANDARD.encode(self.0.as_bytes())
    }

    pub(crate) fn secret(&self) -> x25519::StaticSecret {
        self.0.clone()
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey").finish_non_exhaustive()
    }
}

impl FromStr for PrivateKey {
    type Err = BadKey;
    fn from_str(text: &str) -> Result<Self, BadKey> {
        Ok(Self(decode(text)?.into()))
    }
}

impl PublicKey {
    pub(crate) fn half(self) -> x25519::PublicKey {
        self.0.into()
    }
}

impl From<[u8; 32]> for PublicKey {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl FromStr for PublicKey {
    type Err = BadKey;
    fn from_str(text: &str) -> Result<Self, BadKey> {
        decode(text).map(Self)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn decode(text: &str) -> Result<[u8; 32], BadKey> {
    let bytes = STANDARD.decode(text).map_err(|_| BadKey)?;
    bytes.try_into().map_err(|_| BadKey)
}

/// The relay's own key, which is made at the first call, for its owner alone. Errors: [`KeyError`].
pub fn server_key(folder: &Path) -> Result<PrivateKey, KeyError> {
    let path = folder.join(FILE);
    let wrong = |error| KeyError::File { path: path.clone(), error };
    state_files::make_folder(folder).map_err(wrong)?;
    match fs::metadata(&path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // the daemon and a command may both be the first: one file comes to stand, whole
            let new = folder.join(format!(".{FILE}.{}", std::process::id()));
            let key = PrivateKey::generate()?;
            let mut file = state_files::open(&new).map_err(wrong)?;
            let written = writeln!(file, "{}", key.reveal()).and_then(|()| file.sync_all());
            let placed = written.and_then(|()| fs::hard_link(&new, &path));
            let _ = fs::remove_file(&new);
            match placed {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(wrong(error));
                }
                _ => {}
            }
        }
        Err(error) => return Err(wrong(error)),
    }
    if fs::metadata(&path).map_err(wrong)?.mode() & OTHERS != 0 {
        return Err(KeyError::Open(path));
    }
    let text = fs::read_to_string(&path).map_err(wrong)?;
    text.trim().parse().map_err(|BadKey| KeyError::Broken(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn reads_what_wg_writes() {
        // wg genkey | tee | wg pubkey
        let private: PrivateKey = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=".parse().unwrap();
        assert_eq!(private.reveal(), "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=");
        let public: PublicKey = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=".parse().unwrap();
        assert_eq!(public.to_string(), "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=");
        for text in ["", "x", "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg"] {
            assert_eq!(text.parse::<PublicKey>(), Err(BadKey), "{text}");
        }
        assert!(!format!("{private:?}").contains("yAnz"));
    }

    #[test]
    fn the_relay_s_key_stays_and_is_its_owner_s_alone() {
        let folder = tempfile::tempdir().unwrap();
        let first = server_key(folder.path()).unwrap();
        let path = folder.path().join(FILE);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(server_key(folder.path()).unwrap().public(), first.public());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let why = server_key(folder.path()).unwrap_err().to_string();
        assert!(why.contains("chmod 600"), "{why}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "").unwrap();
        assert!(matches!(server_key(folder.path()), Err(KeyError::Broken(_))));
    }
}
