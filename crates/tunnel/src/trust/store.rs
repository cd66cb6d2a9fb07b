//! What a relay knows of others, in files: its own certificate and key, and whom it invited, joined or
//! knows. Files are its owner's alone and are replaced as a whole.

use super::tls::BadCredentials;
use super::{Credentials, Fingerprint};
use crate::core::{Invited, Peer, Terms};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A directory with a relay's own certificate and the relays it knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    directory: PathBuf,
}

/// A relay that is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relay {
    /// What it is called here: 1 to 63 letters, digits, `-` and `_`.
    pub name: String,
    /// How it is known.
    #[serde(flatten)]
    pub kind: Kind,
    /// The rates.
    #[serde(flatten)]
    pub terms: Terms,
}

/// How a relay is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Kind {
    /// It was invited and has not come yet.
    Invited {
        /// SHA-256 of the invitation's secret.
        invitation: Fingerprint,
    },
    /// It came, and opens tunnels to us.
    Peer {
        /// Of its certificate.
        fingerprint: Fingerprint,
    },
    /// It invited us, and we open tunnels to it.
    Joined {
        /// Of its certificate.
        fingerprint: Fingerprint,
        /// `host:port`, over UDP.
        address: String,
        /// The invitation's secret, in base64url.
        secret: String,
    },
}

/// Why what is known cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The kernel's reason.
        error: io::Error,
    },
    /// A file is not what this program writes.
    #[error("{} cannot be understood: {why}; restore it, or remove it and invite anew", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The name is taken.
    #[error("a relay «{0}» is known already; choose another with --name, or revoke that one")]
    Taken(String),
    /// There is none of that name.
    #[error("no relay «{0}» is known; see «ekiden relay list»")]
    NotKnown(String),
    /// No certificate could be made or used.
    #[error(transparent)]
    Credentials(#[from] BadCredentials),
}

#[derive(Serialize, Deserialize)]
struct Identity {
    certificate: String,
    key: String,
}

#[derive(Default, Serialize, Deserialize)]
struct Relays {
    relays: Vec<Relay>,
}

impl Store {
    /// What is kept in `directory`, which is made when something is first written.
    #[must_use]
    pub const fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Where.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// This relay's own certificate and key; they are made when there are none.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn credentials(&self) -> Result<Credentials, StoreError> {
        if let Some(identity) = self.read::<Identity>("identity.json")? {
            return self.open_identity(&identity);
        }
        let _lock = self.lock()?;
        // another program may have been quicker
        if let Some(identity) = self.read::<Identity>("identity.json")? {
            return self.open_identity(&identity);
        }
        let made = Credentials::generate()?;
        let certificate = URL_SAFE_NO_PAD.encode(made.certificate());
        let key = URL_SAFE_NO_PAD.encode(made.key());
        self.write("identity.json", &Identity { certificate, key })?;
        Ok(made)
    }

    fn open_identity(&self, identity: &Identity) -> Result<Credentials, StoreError> {
        let bad = |why: &str| StoreError::Content {
            path: self.directory.join("identity.json"),
            why: why.to_owned(),
        };
        let certificate = URL_SAFE_NO_PAD.decode(&identity.certificate);
        let certificate = certificate.map_err(|_| bad("the certificate is no base64url"))?;
        let key = URL_SAFE_NO_PAD.decode(&identity.key);
        let key = key.map_err(|_| bad("the key is no base64url"))?;
        Ok(Credentials::from_der(certificate, key)?)
    }

    /// The relays that are known, by name.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn relays(&self) -> Result<Vec<Relay>, StoreError> {
        Ok(self.read::<Relays>("relays.json")?.unwrap_or_default().relays)
    }

    /// When what is known was last changed; `None` while nothing is.
    #[must_use]
    pub fn changed(&self) -> Option<SystemTime> {
        fs::metadata(self.directory.join("relays.json")).and_then(|data| data.modified()).ok()
    }

    /// One more.
    ///
    /// # Errors
    /// [`StoreError::Taken`], or a file's.
    pub fn add(&self, relay: Relay) -> Result<(), StoreError> {
        self.change(|relays| {
            if relays.iter().any(|known| known.name == relay.name) {
                return Err(StoreError::Taken(relay.name.clone()));
            }
            relays.push(relay);
            relays.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(())
        })
    }

    /// One less.
    ///
    /// # Errors
    /// [`StoreError::NotKnown`], or a file's.
    pub fn remove(&self, name: &str) -> Result<Relay, StoreError> {
        self.change(|relays| {
            let nth = relays.iter().position(|relay| relay.name == name);
            let nth = nth.ok_or_else(|| StoreError::NotKnown(name.to_owned()))?;
            Ok(relays.remove(nth))
        })
    }

    /// Whoever was invited with this secret has come.
    ///
    /// # Errors
    /// A file's.
    pub fn joined(&self, invitation: [u8; 32], fingerprint: Fingerprint) -> Result<(), StoreError> {
        let invitation = Fingerprint(invitation);
        self.change(|relays| {
            for relay in relays {
                if relay.kind == (Kind::Invited { invitation }) {
                    relay.kind = Kind::Peer { fingerprint };
                }
            }
            Ok(())
        })
    }

    fn change<T>(
        &self,
        change: impl FnOnce(&mut Vec<Relay>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let _lock = self.lock()?;
        let mut relays = self.read::<Relays>("relays.json")?.unwrap_or_default();
        let result = change(&mut relays.relays)?;
        self.write("relays.json", &relays)?;
        Ok(result)
    }

    /// Held by one program at a time, until it is dropped.
    fn lock(&self) -> Result<File, StoreError> {
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(&self.directory);
        made.map_err(|error| StoreError::File { path: self.directory.clone(), error })?;
        let path = self.directory.join("lock");
        let open =
            OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let locked = open.and_then(|file| {
            flock(&file, FlockOperation::LockExclusive)?;
            Ok(file)
        });
        locked.map_err(|error| StoreError::File { path, error })
    }

    fn read<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Result<Option<T>, StoreError> {
        let path = self.directory.join(name);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::File { path, error }),
        };
        let read = serde_json::from_slice(&text);
        read.map(Some).map_err(|error| StoreError::Content { path, why: error.to_string() })
    }

    /// Written beside it and put in its place: a reader sees the old or the new, also after a power cut.
    fn write<T: Serialize>(&self, name: &str, value: &T) -> Result<(), StoreError> {
        let path = self.directory.join(name);
        let new = self.directory.join(format!(".{name}.new"));
        let write = || {
            let mut text = serde_json::to_vec_pretty(value)?;
            text.push(b'\n');
            let mut file = OpenOptions::new()
                .create(true)
                .truncate(true)
                .write(true)
                .mode(0o600)
                .open(&new)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.directory)?.sync_all()
        };
        write().map_err(|error: io::Error| StoreError::File { path: path.clone(), error })
    }
}

/// Who may open tunnels here, of all that are known.
#[must_use]
pub(crate) fn admitted(relays: &[Relay]) -> (Vec<Peer>, Vec<Invited>) {
    let mut peers = Vec::new();
    let mut invited = Vec::new();
    for Relay { kind, terms, .. } in relays {
        match kind {
            Kind::Peer { fingerprint } => {
                peers.push(Peer { fingerprint: *fingerprint, terms: *terms });
            }
            Kind::Invited { invitation } => {
                invited.push(Invited { secret: invitation.0, terms: *terms });
            }
            Kind::Joined { .. } => {}
        }
    }
    (peers, invited)
}

#[cfg(test)]
mod tests {
    use super::super::{fingerprint, hash};
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn relay(name: &str, kind: Kind) -> Relay {
        let send = "4 Mbit/s".parse().unwrap();
        let receive = "800 kbit/s".parse().unwrap();
        Relay { name: name.to_owned(), kind, terms: Terms::new(send, receive) }
    }

    #[test]
    fn what_is_known_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().join("relays"));
        assert_eq!(store.relays().unwrap(), []);
        let first = store.credentials().unwrap().fingerprint();
        assert_eq!(store.credentials().unwrap().fingerprint(), first);
        let invitation = Fingerprint(hash(b"secret"));
        store.add(relay("ship", Kind::Invited { invitation })).unwrap();
        let again = store.add(relay("ship", Kind::Invited { invitation }));
        assert!(again.unwrap_err().to_string().contains("«ship»"));
        let peer = fingerprint(&vec![1].into());
        store.joined(hash(b"other"), peer).unwrap();
        assert_eq!(admitted(&store.relays().unwrap()).1.len(), 1);
        store.joined(hash(b"secret"), peer).unwrap();
        let (peers, invited) = admitted(&store.relays().unwrap());
        assert_eq!((peers[0].fingerprint, invited.len()), (peer, 0));
        for entry in fs::read_dir(store.directory()).unwrap() {
            let mode = entry.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0);
        }
        store.remove("ship").unwrap();
        assert!(matches!(store.remove("ship"), Err(StoreError::NotKnown(_))));
    }

    #[test]
    fn a_damaged_file_is_said_and_left() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().to_owned());
        fs::write(folder.path().join("relays.json"), "{").unwrap();
        let error = store.add(relay("a", Kind::Invited { invitation: Fingerprint([0; 32]) }));
        assert!(error.unwrap_err().to_string().contains("relays.json cannot be understood"));
        assert_eq!(fs::read(folder.path().join("relays.json")).unwrap(), b"{");
    }
}
