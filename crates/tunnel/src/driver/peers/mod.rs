//! Known peers and their tunnels: connects, again and again, to those that invited this relay, and
//! listens for those it invited.

use super::{Driver, Flow, PacingError, locked};
use crate::core::{Limits, Snapshot};
use crate::driver::peers::connect::Joined;
use crate::driver::peers::listening::Listening;
use crate::driver::peers::peer::{PeerState, Ready, same_but_terms};
use crate::frame::Opening;
use crate::frame::reason::Reason;
use crate::trust::{self, Credentials, Peer, Store, StoreError};
use ekiden_linux::host::clock;
use ekiden_linux::host::panics::restarted;
use ekiden_model::connect::outage::Outage;
use ekiden_model::units::Span;
pub use probe::{Probe, probe};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
pub use tcp_fallback::TransportMode;
use tcp_fallback::{Carried, FallbackTarget};
use tcp_places::Door;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Settings of a relay's tunnels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where its certificate and the relays it knows are kept.
    pub store: Store,
    /// Where it listens for those it invited; nowhere is possible.
    pub listen: Vec<SocketAddr>,
    /// Whether tunnels may go over TLS on TCP.
    pub carrier: TransportMode,
    /// DSCP of interactive data and of bulk.
    pub dscp: [u8; 2],
    /// How much a tunnel may take.
    pub limits: Limits,
    /// Threads for each address it listens on, 1 to 8, of which each can keep a processor busy. A tunnel stays on one; a joined relay's has one of its own.
    pub threads: usize,
}

/// A flow that a peer opened: to be answered and carried.
#[derive(Debug)]
pub struct Incoming {
    /// It.
    pub flow: Flow,
    /// Its destination and account.
    pub opening: Opening,
    /// The local name of the peer that opened it.
    pub peer: String,
}

/// Why tunnels could not be begun.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot listen for tunnels on UDP {address}: {error}")]
    Listen { address: SocketAddr, error: io::Error },
}

/// Why a flow was not opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct OpenError {
    /// As sent to a peer.
    pub reason: Reason,
    /// For people.
    pub words: String,
    /// When to try again, where the tunnel is down.
    pub retry_after: Option<Span>,
}

/// A relay that is known, as it is seen.
#[derive(Debug, Clone)]
pub struct TunnelStatus {
    /// Its local name.
    pub name: String,
    /// Whether we connect to it, and not it to us.
    pub joined: bool,
    /// The tunnel, while there is one.
    pub tunnel: Option<Snapshot>,
    /// Where it goes over TLS on TCP: the other end of that.
    pub over_tcp: Option<SocketAddr>,
    /// Why there is none, or was none before.
    pub last_error: Option<String>,
    /// How long there has been none; `None` while there is one.
    pub down_for: Option<Span>,
    /// Time until the next attempt, where this relay connects and pauses between two.
    pub retry_in: Option<Span>,
    /// How late its datagrams left; of all tunnels on one socket together.
    pub pacing: PacingError,
}

/// How long the final frames may take.
const GOODBYE: Duration = Duration::from_millis(50);
/// How often the store is checked for changes.
const LOOK: Duration = Duration::from_secs(1);

/// All tunnels of a relay.
#[derive(Debug)]
pub struct Peers {
    inner: Arc<Inner>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    settings: Settings,
    credentials: Credentials,
    incoming: mpsc::Sender<Incoming>,
    listening: Vec<Arc<Driver>>,
    addresses: Vec<SocketAddr>,
    /// Locked before a driver's core, where both are.
    known: Mutex<BTreeMap<String, PeerState>>,
    /// Held while the store, what is known, and who is admitted change together; before the others.
    changes: Mutex<()>,
    /// Why the last peer that joined could not be saved.
    unsaved: Mutex<Option<String>>,
    carried: Carried,
    origin: Instant,
    /// A test wants a task to panic with the next event.
    #[cfg(test)]
    panics: std::sync::atomic::AtomicBool,
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        locked(&self.inner.known).clear();
    }
}

impl Peers {
    /// Listens and connects. Flows that peers open come out of `incoming`.
    pub fn start(settings: Settings, incoming: mpsc::Sender<Incoming>) -> Result<Self, StartError> {
        let credentials = settings.store.credentials()?;
        // the core counts from the same moment as the clock
        let origin = Instant::now() - Duration::from_nanos(clock::now().as_nanos());
        let mut listening = Vec::new();
        let mut receivers = Vec::new();
        let mut carriers = Vec::new();
        let mut addresses = Vec::new();
        let memory = Arc::default();
        for &address in &settings.listen {
            let started = Listening::start(address, &settings, &credentials, (origin, &memory));
            let started = started.map_err(|error| StartError::Listen { address, error })?;
            let first = started.drivers.first().map(|(driver, _)| Arc::clone(driver));
            carriers.extend(started.carrier.zip(first));
            addresses.push(started.address);
            for (driver, events) in started.drivers {
                listening.push(driver);
                receivers.push(events);
            }
        }
        let inner = Arc::new(Inner {
            settings,
            credentials,
            incoming,
            listening,
            addresses,
            known: Mutex::default(),
            changes: Mutex::default(),
            unsaved: Mutex::default(),
            carried: Carried::default(),
            origin,
            #[cfg(test)]
            panics: Default::default(),
        });
        // before it is read: a change meanwhile is noticed later
        let watch = Watch { seen: inner.settings.store.changed(), said: None };
        Inner::look(&inner)?;
        let mut tasks: Vec<_> = inner
            .listening
            .iter()
            .zip(receivers)
            .map(|(driver, events)| {
                let (inner, driver) = (Arc::clone(&inner), Arc::clone(driver));
                let events = Arc::new(tokio::sync::Mutex::new(events));
                let attend = move || {
                    let (driver, events) = (Arc::clone(&driver), Arc::clone(&events));
                    Arc::clone(&inner).attend_listening(driver, events)
                };
                tokio::spawn(restarted("the look at the tunnels of an address", attend))
            })
            .collect();
        for (listener, driver) in carriers {
            let inside = FallbackTarget { driver, carried: Arc::clone(&inner.carried) };
            let door = Door::new(clock::now(), &inner.settings.limits);
            let (listener, door) = (Arc::new(listener), Arc::new(Mutex::new(door)));
            let credentials = inner.credentials.clone();
            let listen = move || {
                let (listener, door) = (Arc::clone(&listener), Arc::clone(&door));
                tcp_fallback::listen(listener, credentials.clone(), inside.clone(), door)
            };
            tasks.push(tokio::spawn(restarted("tunnels that come over TCP", listen)));
        }
        let (watched, mut first) = (Arc::clone(&inner), Some(watch));
        // after a panic the store is read again
        let watch = move || first.take().unwrap_or_default().run(Arc::clone(&watched));
        tasks.push(tokio::spawn(restarted("the look at known relays", watch)));
        Ok(Self { inner, tasks })
    }

    /// Where it listens, with the ports that the kernel chose where any was asked for.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.inner.addresses
    }

    /// Opens a flow through the tunnel of a peer. One that is not up is waited for until `patience` after it was lost, or
    /// after the peer became known; later it fails at once. Fails where there is no such peer, no tunnel, or it has too
    /// many flows.
    pub async fn open(
        &self,
        name: &str,
        opening: Opening,
        patience: Span,
    ) -> Result<Flow, OpenError> {
        let error = |reason, words| OpenError { reason, words, retry_after: None };
        let (mut ready, wait) = match locked(&self.inner.known).get(name) {
            Some(known) => {
                (known.ready.subscribe(), locked(&known.outage).wait(clock::now(), patience))
            }
            None => {
                let words = format!("unknown peer `{name}`; see `ekiden peer list`");
                return Err(error(Reason::TunnelLost, words));
            }
        };
        // without time left, one that is up is still taken
        let up = tokio::time::timeout(wait.into(), ready.wait_for(Option::is_some)).await;
        let up = up.ok().and_then(Result::ok).and_then(|ready| ready.clone());
        let Some(Ready { driver, tunnel }) = up else { return Err(self.no_tunnel(name, wait)) };
        let now = clock::now();
        let opened = driver.with(|core| core.open(now, tunnel, opening));
        let id = opened.map_err(|reason| error(reason, format!("tunnel `{name}`: {reason}")))?;
        Ok(driver.flow(id))
    }

    /// Why there is no tunnel to a peer. The log has it once in an outage, when requests no longer wait.
    fn no_tunnel(&self, name: &str, waited: Span) -> OpenError {
        let (reason, now) = (Reason::TunnelLost, clock::now());
        let known = locked(&self.inner.known);
        let Some(known) = known.get(name) else {
            let words = format!("the peer `{name}` was revoked");
            return OpenError { reason, words, retry_after: None };
        };
        let why = known.last_error().unwrap_or_else(|| "it has not come yet".to_owned());
        let mut outage = locked(&known.outage);
        let down_for = Span::from_secs(outage.lasted(now).as_secs());
        if waited == Span::ZERO && outage.is_to_be_logged() {
            tracing::warn!(peer = %name, %down_for, why, "no tunnel: requests through it fail at once until it is up");
        }
        let words = format!("no tunnel to peer `{name}` for {down_for}: {why}");
        OpenError { reason, words, retry_after: Some(outage.retry_after(now)) }
    }

    /// Whether a peer's tunnel is up.
    pub fn is_up(&self, name: &str) -> bool {
        locked(&self.inner.known).get(name).is_some_and(|known| known.ready.borrow().is_some())
    }

    /// Informs all peers that this relay stops. Nothing comes up again afterwards.
    pub async fn close(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        let known = std::mem::take(&mut *locked(&self.inner.known));
        // taken away, so that none is told that it was revoked
        let ready = known.values().filter_map(|known| known.ready.send_replace(None));
        let draining = known.values().filter_map(|known| locked(&known.draining).take());
        let drivers: Vec<_> = ready.chain(draining).map(|ready| ready.driver).collect();
        for driver in drivers.iter().chain(&self.inner.listening) {
            driver.shared.end();
        }
        // each thread sends its final frames as soon as it runs, some of them over TCP
        tokio::time::sleep(GOODBYE).await;
        drop(known);
    }

    /// Why a peer that joins cannot be saved, and so is refused; until one is, or the store changes.
    pub fn unsaved(&self) -> Option<String> {
        locked(&self.inner.unsaved).clone()
    }

    /// Every relay that is known.
    pub fn status(&self) -> Vec<TunnelStatus> {
        let known: Vec<_> = locked(&self.inner.known).values().map(PeerState::status).collect();
        let carried = locked(&self.inner.carried);
        let over_tcp = |status: TunnelStatus| {
            let address = status.tunnel.as_ref().and_then(|tunnel| tunnel.address);
            TunnelStatus { over_tcp: address.and_then(|at| carried.get(&at).copied()), ..status }
        };
        known.into_iter().map(over_tcp).collect()
    }
}

#[derive(Debug, Default)]
struct Watch {
    /// The store's state that was applied.
    seen: Option<SystemTime>,
    said: Option<String>,
}

impl Watch {
    async fn run(mut self, inner: Arc<Inner>) {
        loop {
            tokio::time::sleep(LOOK).await;
            let inner = Arc::clone(&inner);
            // waits for the disk, and for a relay that is being saved
            let looked = tokio::task::spawn_blocking(move || {
                self.look(&inner);
                self
            });
            self = match looked.await {
                Ok(watch) => watch,
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // the runtime ends
                Err(_) => return,
            };
        }
    }

    /// Applies changes. An unreadable store is read again: a peer may have been revoked in it.
    fn look(&mut self, inner: &Arc<Inner>) {
        let changed = inner.settings.store.changed();
        if changed == self.seen {
            return;
        }
        match inner.look() {
            Ok(()) => (self.seen, self.said) = (changed, None),
            Err(error) => {
                let text = Some(error.to_string());
                if self.said != text {
                    tracing::error!(%error, "cannot read the peers; keeping those already known");
                    self.said = text;
                }
            }
        }
    }
}

impl Inner {
    /// Lets these open tunnels here, and nobody else.
    fn admit(&self, peers: &[Peer]) {
        let (peers, invited) = trust::admitted(peers);
        let now = clock::now();
        for driver in &self.listening {
            driver.with(|core| core.admit(now, &peers, &invited));
        }
    }

    fn look(self: &Arc<Self>) -> Result<(), StoreError> {
        let _changes = locked(&self.changes);
        let stored = self.settings.store.peers()?;
        *locked(&self.unsaved) = None;
        self.admit(&stored);
        let mut known = locked(&self.known);
        known.retain(|name, old| match stored.iter().find(|peer| peer.name == *name) {
            Some(peer) if peer == &old.peer || same_but_terms(peer, &old.peer) => true,
            Some(_) => {
                tracing::info!(peer = %name, "peer replaced by another of its name; a tunnel of the old one ends");
                false
            }
            None => {
                tracing::info!(peer = %name, "peer revoked; its tunnel ends");
                false
            }
        });
        for peer in stored {
            if let Some(old) = known.get_mut(&peer.name) {
                old.peer = peer;
                continue;
            }
            let joined = Joined::of(&peer).map(Arc::new);
            let connecting = joined.clone().map(|joined| {
                let inner = Arc::clone(self);
                let connect = move || Arc::clone(&inner).connect(Arc::clone(&joined));
                tokio::spawn(restarted("the tunnel to a relay that invited this one", connect))
            });
            let name = peer.name.clone();
            let ready = watch::Sender::new(None);
            let (last_error, outage) = (Mutex::default(), Mutex::new(Outage::new(clock::now())));
            let (draining, lines) = (Mutex::default(), Mutex::default());
            let state =
                PeerState { peer, ready, last_error, outage, joined, connecting, draining, lines };
            known.insert(name, state);
        }
        Ok(())
    }
}

mod accept;
mod connect;
mod listening;
mod peer;
mod probe;
mod tcp_fallback;
mod tcp_places;
#[cfg(test)]
mod tests;
