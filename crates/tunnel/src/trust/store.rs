//! A relay's files: its certificate and key, and the peers that it knows. Only the owner can read
//! them, and they are replaced as a whole.

use super::tls::BadCredentials;
use super::{Credentials, Fingerprint};
use crate::core::{AdmittedPeer, Invited, Terms};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ekiden_linux::host::state_files;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A directory with a relay's own certificate and the relays it knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    directory: PathBuf,
}

/// A relay that is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its local name: 1 to 63 letters, digits, `-` and `_`.
    pub name: String,
    /// How it is known.
    #[serde(flatten)]
    pub kind: PeerKind,
    /// The rates.
    #[serde(flatten)]
    pub terms: Terms,
}

/// How a relay is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[allow(missing_docs)] // the names say it
pub enum PeerKind {
    /// It was invited and has not come yet.
    Invited {
        /// SHA-256 of the invitation's secret.
        invitation: Fingerprint,
    },
    /// It came, and opens tunnels to us.
    Peer { fingerprint: Fingerprint },
    /// It invited us, and we open tunnels to it.
    Joined {
        fingerprint: Fingerprint,
        /// `host:port`, over UDP.
        address: String,
        /// The invitation's secret, in base64url.
        secret: String,
    },
}

/// Why the store cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum StoreError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{} cannot be understood: {why}; restore it, or remove it and invite anew", path.display())]
    Content { path: PathBuf, why: String },
    #[error(
        "a peer `{0}` is known already; choose another name with --name, or remove that one with `ekiden peer revoke {0}`"
    )]
    Taken(String),
    #[error("unknown peer `{0}`; see `ekiden peer list`")]
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
struct PeersFile {
    #[serde(rename = "relays")]
    peers: Vec<Peer>,
}

impl Store {
    /// The store in `directory`, which is created at the first write.
    pub const fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Where.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// This relay's own certificate and key; made when there are none.
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
        self.write_identity(&made)?;
        Ok(made)
    }

    /// This relay's certificate and key, if there are some.
    pub fn own_credentials(&self) -> Result<Option<Credentials>, StoreError> {
        let identity = self.read::<Identity>("identity.json")?;
        identity.map(|identity| self.open_identity(&identity)).transpose()
    }

    /// Keeps these as this relay's own, unless it has others.
    pub fn keep_credentials(&self, credentials: &Credentials) -> Result<(), StoreError> {
        let _lock = self.lock()?;
        match self.read::<Identity>("identity.json")? {
            Some(_) => Ok(()),
            None => self.write_identity(credentials),
        }
    }

    fn write_identity(&self, credentials: &Credentials) -> Result<(), StoreError> {
        let certificate = URL_SAFE_NO_PAD.encode(credentials.certificate());
        let key = URL_SAFE_NO_PAD.encode(credentials.key());
        self.write("identity.json", &Identity { certificate, key })
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

    /// The known peers, by name.
    pub fn peers(&self) -> Result<Vec<Peer>, StoreError> {
        Ok(self.read::<PeersFile>("relays.json")?.unwrap_or_default().peers)
    }

    /// When the store last changed; `None` while it is empty.
    pub fn changed(&self) -> Option<SystemTime> {
        fs::metadata(self.directory.join("relays.json")).and_then(|data| data.modified()).ok()
    }

    /// Adds a peer. Fails with [`StoreError::Taken`], or as a file does.
    pub fn add(&self, peer: Peer) -> Result<(), StoreError> {
        self.put(peer, |_| false).map(drop)
    }

    /// Adds a peer, in place of one of its name where `replaces` says so of that one, which is returned. Fails with
    /// [`StoreError::Taken`], or as a file does.
    pub fn put(
        &self,
        peer: Peer,
        replaces: impl FnOnce(&Peer) -> bool,
    ) -> Result<Option<Peer>, StoreError> {
        self.change(|peers| {
            let old = match peers.iter().position(|known| known.name == peer.name) {
                Some(nth) if replaces(&peers[nth]) => Some(peers.remove(nth)),
                Some(_) => return Err(StoreError::Taken(peer.name.clone())),
                None => None,
            };
            peers.push(peer);
            peers.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(old)
        })
    }

    /// Removes a peer. Fails with [`StoreError::NotKnown`], or as a file does.
    pub fn remove(&self, name: &str) -> Result<Peer, StoreError> {
        self.change(|peers| {
            let nth = peers.iter().position(|peer| peer.name == name);
            let nth = nth.ok_or_else(|| StoreError::NotKnown(name.to_owned()))?;
            Ok(peers.remove(nth))
        })
    }

    /// Whoever was invited with this secret has come. Whether it is a peer now; not where the invitation was revoked, or
    /// used by another one.
    pub fn joined(
        &self,
        invitation: [u8; 32],
        fingerprint: Fingerprint,
    ) -> Result<bool, StoreError> {
        let invitation = Fingerprint(invitation);
        self.change(|peers| {
            for peer in peers.iter_mut() {
                if peer.kind == (PeerKind::Invited { invitation }) {
                    peer.kind = PeerKind::Peer { fingerprint };
                }
            }
            Ok(peers.iter().any(|peer| peer.kind == PeerKind::Peer { fingerprint }))
        })
    }

    fn change<T>(
        &self,
        change: impl FnOnce(&mut Vec<Peer>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let _lock = self.lock()?;
        let mut peers = self.read::<PeersFile>("relays.json")?.unwrap_or_default();
        let result = change(&mut peers.peers)?;
        self.write("relays.json", &peers)?;
        Ok(result)
    }

    /// Held by one program at a time, until it is dropped.
    fn lock(&self) -> Result<File, StoreError> {
        let made = state_files::make_folder(&self.directory);
        made.map_err(|error| StoreError::File { path: self.directory.clone(), error })?;
        let path = self.directory.join("lock");
        let locked = state_files::open(&path).and_then(|file| file.lock().map(|()| file));
        locked.map_err(|error| StoreError::File { path, error })
    }

    fn read<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Result<Option<T>, StoreError> {
        let path = self.directory.join(name);
        let text = match state_files::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::File { path, error }),
        };
        let read = serde_json::from_slice(&text);
        read.map(Some).map_err(|error| StoreError::Content { path, why: error.to_string() })
    }

    fn write<T: Serialize>(&self, name: &str, value: &T) -> Result<(), StoreError> {
        let path = self.directory.join(name);
        let write = || {
            let mut text = serde_json::to_vec_pretty(value)?;
            text.push(b'\n');
            state_files::replace(&path, &text)
        };
        write().map(drop).map_err(|error| StoreError::File { path: path.clone(), error })
    }
}

pub(crate) fn admitted(known: &[Peer]) -> (Vec<AdmittedPeer>, Vec<Invited>) {
    let mut peers = Vec::new();
    let mut invited = Vec::new();
    for Peer { kind, terms, .. } in known {
        match kind {
            PeerKind::Peer { fingerprint } => {
                peers.push(AdmittedPeer { fingerprint: *fingerprint, terms: *terms });
            }
            PeerKind::Invited { invitation } => {
                invited.push(Invited { secret: invitation.0, terms: *terms });
            }
            PeerKind::Joined { .. } => {}
        }
    }
    (peers, invited)
}

#[cfg(test)]
mod tests {
    use super::super::{fingerprint, hash};
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn peer(name: &str, kind: PeerKind) -> Peer {
        let send = "4 Mbit/s".parse().unwrap();
        let receive = "800 kbit/s".parse().unwrap();
        Peer { name: name.to_owned(), kind, terms: Terms::new(send, receive) }
    }

    #[test]
    fn known_peers_are_persisted() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().join("relays"));
        assert_eq!(store.peers().unwrap(), []);
        let first = store.credentials().unwrap().fingerprint();
        assert_eq!(store.credentials().unwrap().fingerprint(), first);
        let invitation = Fingerprint(hash(b"secret"));
        store.add(peer("ship", PeerKind::Invited { invitation })).unwrap();
        let again = store.add(peer("ship", PeerKind::Invited { invitation }));
        assert!(again.unwrap_err().to_string().contains("`ship`"));
        let peer = fingerprint(&vec![1].into());
        assert!(!store.joined(hash(b"other"), peer).unwrap());
        assert_eq!(admitted(&store.peers().unwrap()).1.len(), 1);
        assert!(store.joined(hash(b"secret"), peer).unwrap());
        let (peers, invited) = admitted(&store.peers().unwrap());
        assert_eq!((peers[0].fingerprint, invited.len()), (peer, 0));
        for entry in fs::read_dir(store.directory()).unwrap() {
            let mode = entry.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0);
        }
        store.remove("ship").unwrap();
        assert!(matches!(store.remove("ship"), Err(StoreError::NotKnown(_))));
    }

    #[test]
    fn a_list_elsewhere_is_not_copied_into_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let [own, other] = ["own", "other"].map(|name| Store::new(folder.path().join(name)));
        let invited = |name| peer(name, PeerKind::Invited { invitation: Fingerprint([0; 32]) });
        other.add(invited("ship")).unwrap();
        fs::create_dir(own.directory()).unwrap();
        let link = own.directory().join("relays.json");
        std::os::unix::fs::symlink(other.directory().join("relays.json"), &link).unwrap();
        assert!(own.peers().is_err() && own.add(invited("port")).is_err());
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn a_damaged_file_is_said_and_left() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().to_owned());
        fs::write(folder.path().join("relays.json"), "{").unwrap();
        let error = store.add(peer("a", PeerKind::Invited { invitation: Fingerprint([0; 32]) }));
        assert!(error.unwrap_err().to_string().contains("relays.json cannot be understood"));
        assert_eq!(fs::read(folder.path().join("relays.json")).unwrap(), b"{");
    }
}
