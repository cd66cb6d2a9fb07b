//! What the threads that listen on one address share: budgets of strangers, breakers, and how identifiers tell whose a
//! connection is.

use crate::core::{Fingerprint, Limits, PeersMemory, is_carrier};
use crate::trust::{self, Credentials};
use ekiden_linux::host::sync::locked;
use ekiden_model::control::rate_hold::Breaker;
use ekiden_model::resources::initial_rate::{self, InitialRate};
use ekiden_model::resources::overload::{PendingPlaces, PlaceId, Source};
use ekiden_model::units::Time;
use quinn_proto::{ConnectionId, ConnectionIdGenerator, HashedConnectionIdGenerator, InvalidCid};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Threads at most.
pub(crate) const MOST_THREADS: usize = 8;

/// One address, of one thread or several.
#[derive(Debug)]
pub(crate) struct Address {
    /// Makes keys of identifiers and resets this address's own (RFC 9000 §21.11). It is the same after a restart.
    pub(super) salt: Vec<u8>,
    pub(super) initials: Mutex<InitialRate>,
    /// Of restrained paths: a tunnel's successor is restrained, too.
    pub(super) breakers: Mutex<BTreeMap<Fingerprint, Breaker>>,
    /// Places of connections of no tunnel, of all threads.
    places: Mutex<PendingPlaces<Arc<AtomicBool>>>,
    /// Tunnels of all threads.
    pub(super) tunnels: AtomicUsize,
    /// Sessions of the tunnels that peers opened, of all threads. One is free once its tunnel is dropped, however it ended.
    sessions: Mutex<BTreeMap<(Fingerprint, u64), Weak<()>>>,
    /// What peers' tunnels hold, of all addresses.
    pub(super) memory: Arc<PeersMemory>,
}

/// A place of a connection that belongs to no tunnel yet, until this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    address: Arc<Address>,
    id: PlaceId,
    /// Another has the place now, of any thread: the connection is to be closed.
    pub(super) is_lost: Arc<AtomicBool>,
}

impl Place {
    /// Its peer is known.
    pub(super) fn identified(self, now: Time) {
        locked(&self.address.places).on_identified(now, self.id);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = locked(&self.address.places).on_closed(self.id);
    }
}

impl Address {
    fn new(salt: Vec<u8>, limits: &Limits, memory: &Arc<PeersMemory>) -> Arc<Self> {
        Arc::new(Self {
            salt,
            initials: Mutex::new(InitialRate::new(initial_rate::Config::default(), Time::ZERO)),
            breakers: Mutex::default(),
            places: Mutex::new(PendingPlaces::new(limits.pending())),
            tunnels: AtomicUsize::new(0),
            sessions: Mutex::default(),
            memory: Arc::clone(memory),
        })
    }

    /// The breaker of the path to a peer at this address; `None` where none is known. Over TCP nothing is broken off.
    pub(super) fn breaker(&self, now: Time, peer: Fingerprint, at: SocketAddr) -> Option<Breaker> {
        if is_carrier(at) {
            return Some(Breaker::never(now));
        }
        locked(&self.breakers).get(&peer).cloned()
    }

    /// Whether a connection of this source has to show first that the address is its own.
    pub(super) fn wants_proof(&self, source: Source) -> bool {
        locked(&self.places).wants_proof(source)
    }

    /// Whether a relay of this source was identified within a day.
    pub(super) fn is_remembered(&self, now: Time, source: Source) -> bool {
        locked(&self.places).is_known(now, source)
    }

    /// A place for a connection, perhaps another's; `None` where all are taken.
    pub(super) fn place(self: &Arc<Self>, now: Time, source: Source) -> Option<Place> {
        let is_lost = Arc::new(AtomicBool::new(false));
        let admitted = locked(&self.places).on_attempt(now, source, Arc::clone(&is_lost))?;
        if let Some(other) = admitted.gives_way {
            other.store(true, Relaxed);
        }
        Some(Place { address: Arc::clone(self), id: admitted.place, is_lost })
    }

    /// Takes a peer's session for a tunnel, which holds `alive`; whether no other tunnel has it.
    pub(super) fn take_session(&self, session: (Fingerprint, u64), alive: &Arc<()>) -> bool {
        let mut sessions = locked(&self.sessions);
        sessions.retain(|_, alive| alive.strong_count() > 0);
        match sessions.entry(session) {
            Entry::Vacant(free) => {
                free.insert(Arc::downgrade(alive));
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    #[cfg(test)]
    pub(super) fn set_places(&self, places: u64) {
        *locked(&self.places) = PendingPlaces::new(places);
    }
}

/// One thread of an address.
#[derive(Debug, Clone)]
pub(crate) struct AddressThread {
    pub(super) address: Arc<Address>,
    nth: usize,
    count: usize,
}

impl AddressThread {
    /// The only one: of the only address of a relay that listens, or of a socket that connects.
    pub(super) fn alone(limits: &Limits, listens: bool) -> Self {
        // after a restart a socket that connects has another port, where no packets come that a reset could answer.
        // Without randomness TLS begins no tunnel either
        let random = || trust::random::<32>().unwrap_or_default().to_vec();
        let salt = if listens { Vec::new() } else { random() };
        Self { address: Address::new(salt, limits, &Arc::default()), nth: 0, count: 1 }
    }

    /// All that listen `at` this address; 1 to [`MOST_THREADS`]. It is the bound one: no two of a relay are equal, while
    /// port 0 may be configured twice.
    pub(crate) fn all(
        at: SocketAddr,
        count: usize,
        limits: &Limits,
        memory: &Arc<PeersMemory>,
    ) -> impl Iterator<Item = Self> {
        let address = Address::new(at.to_string().into_bytes(), limits, memory);
        (0..count).map(move |nth| Self { address: Arc::clone(&address), nth, count })
    }

    /// Whose connections bear which identifiers.
    pub(crate) fn owners(&self, credentials: &Credentials) -> Owners {
        let first = credentials.identifier_key(&self.address.salt);
        let keys = (0..MOST_THREADS as u64).map(|nth| first.wrapping_add(nth));
        let keys = keys.map(HashedConnectionIdGenerator::from_key).collect();
        Owners { keys, own: self.nth, count: self.count }
    }
}

/// Identifiers of an address's connections, and the thread that each is of. A restarted relay knows those from before,
/// also with fewer threads: only then does it answer with a reset. Another address of the relay knows none of them.
pub(crate) struct Owners {
    keys: Vec<HashedConnectionIdGenerator>,
    own: usize,
    count: usize,
}

impl Owners {
    /// The other thread whose connection has this identifier.
    pub(crate) fn elsewhere(&self, identifier: &ConnectionId) -> Option<usize> {
        self.of(identifier).filter(|thread| *thread != self.own)
    }

    /// The thread whose connection has this identifier; `None` where it is not of this relay.
    fn of(&self, identifier: &ConnectionId) -> Option<usize> {
        let is_of = |key: &HashedConnectionIdGenerator| key.validate(identifier).is_ok();
        // nearly always its own
        match self.keys.get(self.own) {
            Some(own) if is_of(own) => Some(self.own),
            _ => self.keys.iter().position(is_of).map(|key| key % self.count),
        }
    }
}

impl fmt::Debug for Owners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owners({} of {})", self.own, self.count)
    }
}

impl ConnectionIdGenerator for Owners {
    fn generate_cid(&mut self) -> ConnectionId {
        self.keys[self.own].generate_cid()
    }

    fn validate(&self, identifier: &ConnectionId) -> Result<(), InvalidCid> {
        if self.of(identifier) == Some(self.own) { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        self.keys[self.own].cid_len()
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(at: &str, count: usize) -> Vec<AddressThread> {
        let at = at.parse().unwrap();
        AddressThread::all(at, count, &Limits::default(), &Arc::default()).collect()
    }

    #[test]
    fn each_identifier_is_of_one_thread_also_after_a_restart_with_fewer() {
        let credentials = Credentials::generate().unwrap();
        let threads = all("0.0.0.0:4433", 8);
        let mut owners: Vec<_> = threads.iter().map(|one| one.owners(&credentials)).collect();
        let fewer = all("0.0.0.0:4433", 3);
        let fewer: Vec<_> = fewer.iter().map(|one| one.owners(&credentials)).collect();
        for nth in 0..owners.len() {
            for _ in 0..1_000 {
                let identifier = owners[nth].generate_cid();
                assert!(owners.iter().all(|one| one.of(&identifier) == Some(nth)));
                assert!(fewer.iter().all(|one| one.of(&identifier) == Some(nth % 3)));
                assert_eq!(fewer.iter().filter(|one| one.validate(&identifier).is_ok()).count(), 1);
            }
        }
        let other = all("0.0.0.0:4433", 1)[0].owners(&Credentials::generate().unwrap());
        assert_eq!(other.of(&owners[0].generate_cid()), None);
    }

    #[test]
    fn sockets_of_a_relay_know_no_identifier_of_each_other() {
        let credentials = Credentials::generate().unwrap();
        let connecting = || vec![AddressThread::alone(&Limits::default(), false)];
        let sockets = [
            all("0.0.0.0:4433", 1),
            all("[::]:4433", 1),
            all("0.0.0.0:443", 1),
            connecting(),
            connecting(),
        ];
        let mut owners: Vec<_> = sockets.iter().map(|one| one[0].owners(&credentials)).collect();
        for nth in 0..owners.len() {
            let identifier = owners[nth].generate_cid();
            for (other, of) in owners.iter().enumerate() {
                assert_eq!(of.of(&identifier), (other == nth).then_some(0), "{nth} {other}");
            }
        }
    }
}
