//! The relays that are known, each with its tunnel: those that invited us are connected to and again when
//! a tunnel is lost, those we invited are listened for.

use super::{Driver, Flow, PacingError, locked};
use crate::core::{Endpoint, Event, Fingerprint, FlowId, Limits, Snapshot, Terms, TunnelId};
use crate::frame::Opening;
use crate::reason::Reason;
use crate::trust::{self, Credentials, Kind, Relay, Store, StoreError};
use bytes::Bytes;
use ekiden_linux::{clock, datagram};
use ekiden_model::units::{Span, Time};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

/// What the tunnels of a relay are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where its certificate and the relays it knows are kept.
    pub store: Store,
    /// Where it listens for those it invited; nowhere is possible.
    pub listen: Vec<SocketAddr>,
    /// DSCP of what is interactive and of what is bulk.
    pub dscp: [u8; 2],
    /// How much a tunnel may take.
    pub limits: Limits,
}

/// A flow that a peer opened: to be answered and carried.
#[derive(Debug)]
pub struct Incoming {
    /// It.
    pub flow: Flow,
    /// What it is to be.
    pub opening: Opening,
    /// What the relay that opened it is called here.
    pub relay: String,
}

/// Why tunnels could not be begun.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// What is known of other relays cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An address cannot be listened on.
    #[error("cannot listen for tunnels on UDP {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The kernel's reason.
        error: io::Error,
    },
}

/// Why a flow was not opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct OpenError {
    /// As told to a peer.
    pub reason: Reason,
    /// For people.
    pub words: String,
}

/// A relay that is known, as it is seen.
#[derive(Debug, Clone)]
pub struct TunnelStatus {
    /// What it is called here.
    pub name: String,
    /// Whether we connect to it, and not it to us.
    pub joined: bool,
    /// The tunnel, while there is one.
    pub tunnel: Option<Snapshot>,
    /// Why there is none, or was none before.
    pub last_error: Option<String>,
    /// How late its datagrams left; of all tunnels on one socket together.
    pub pacing: PacingError,
}

/// First pause before connecting again; it doubles up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A tunnel that was up so long was no failure: the next attempt comes at once.
const LASTING: Duration = Duration::from_secs(10);
/// How long saying goodbye may take.
const GOODBYE: Duration = Duration::from_millis(50);
/// Addresses of a relay that are tried, and how long after each other.
const MOST_ADDRESSES: usize = 4;
const APART: Duration = Duration::from_millis(250);
/// How often is looked whether what is known has changed.
const LOOK: Duration = Duration::from_secs(1);

/// A tunnel that is up.
#[derive(Debug, Clone)]
struct Ready {
    driver: Arc<Driver>,
    tunnel: TunnelId,
}

/// A relay that is known.
#[derive(Debug)]
struct Known {
    relay: Relay,
    ready: watch::Sender<Option<Ready>>,
    last_error: Mutex<Option<String>>,
    /// Connects, for relays that invited us.
    connecting: Option<JoinHandle<()>>,
}

impl Drop for Known {
    fn drop(&mut self) {
        if let Some(task) = &self.connecting {
            task.abort();
        }
        if let Some(ready) = self.ready.send_replace(None)
            && self.connecting.is_some()
        {
            ready.driver.close(ready.tunnel, "the relay was revoked");
        }
    }
}

/// All tunnels of a relay.
#[derive(Debug)]
pub struct Relays {
    inner: Arc<Inner>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    settings: Settings,
    credentials: Credentials,
    incoming: mpsc::Sender<Incoming>,
    listening: Vec<Arc<Driver>>,
    known: Mutex<BTreeMap<String, Known>>,
    origin: Instant,
}

impl Drop for Relays {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        locked(&self.inner.known).clear();
    }
}

impl Relays {
    /// Listens and connects. What peers open comes out of `incoming`.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(settings: Settings, incoming: mpsc::Sender<Incoming>) -> Result<Self, StartError> {
        let credentials = settings.store.credentials()?;
        // the core counts from the same moment as the clock
        let origin = Instant::now() - Duration::from_nanos(clock::now().as_nanos());
        let mut listening = Vec::new();
        let mut receivers = Vec::new();
        for &address in &settings.listen {
            let limits = limits_on(settings.limits, None);
            let core = Endpoint::new(credentials.clone(), limits, true, origin, None);
            let started = datagram::open(address)
                .and_then(|socket| Driver::start(core, socket, settings.dscp));
            let (driver, events) =
                started.map_err(|error| StartError::Listen { address, error })?;
            listening.push(Arc::new(driver));
            receivers.push(events);
        }
        let inner = Arc::new(Inner {
            settings,
            credentials,
            incoming,
            listening,
            known: Mutex::default(),
            origin,
        });
        Inner::look(&inner)?;
        let mut tasks: Vec<_> = inner
            .listening
            .iter()
            .zip(receivers)
            .map(|(driver, events)| {
                let (inner, driver) = (Arc::clone(&inner), Arc::clone(driver));
                tokio::spawn(async move { drop(inner.attend(&driver, events, None).await) })
            })
            .collect();
        tasks.push(tokio::spawn(watch_store(Arc::clone(&inner))));
        Ok(Self { inner, tasks })
    }

    /// Opens a flow through the tunnel of a relay, which is waited for as long as `patience`.
    ///
    /// # Errors
    /// No such relay, no tunnel, or it has too many flows.
    pub async fn open(
        &self,
        name: &str,
        opening: Opening,
        patience: Span,
    ) -> Result<Flow, OpenError> {
        let error = |reason, words| OpenError { reason, words };
        let mut ready = match locked(&self.inner.known).get(name) {
            Some(known) => known.ready.subscribe(),
            None => {
                let words = format!("no relay «{name}» is known; see «ekiden relay list»");
                return Err(error(Reason::TunnelLost, words));
            }
        };
        let up = tokio::time::timeout(patience.into(), ready.wait_for(Option::is_some)).await;
        let up = up.ok().and_then(Result::ok).and_then(|ready| ready.clone());
        let Some(Ready { driver, tunnel }) = up else {
            let why = locked(&self.inner.known).get(name).and_then(Known::last_error);
            let why = why.map_or_else(|| "it has not come yet".to_owned(), |why| why.clone());
            let words = format!("there is no tunnel to relay «{name}»: {why}");
            return Err(error(Reason::TunnelLost, words));
        };
        let now = clock::now();
        let opened = driver.with(|core| core.open(now, tunnel, opening));
        let id = opened.map_err(|reason| error(reason, format!("tunnel «{name}»: {reason}")))?;
        Ok(driver.flow(id))
    }

    /// Tells the relays at the other ends that this one stops. Nothing comes up again afterwards.
    pub async fn close(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        let known = std::mem::take(&mut *locked(&self.inner.known));
        let drivers = known.values().filter_map(|known| known.ready.borrow().clone());
        let drivers: Vec<_> = drivers.map(|ready| ready.driver).collect();
        drop(known);
        for driver in drivers.iter().chain(&self.inner.listening) {
            driver.shared.stop.store(true, std::sync::atomic::Ordering::Release);
            driver.shared.ring();
        }
        // each thread says goodbye as soon as it runs
        tokio::time::sleep(GOODBYE).await;
    }

    /// Every relay that is known.
    #[must_use]
    pub fn status(&self) -> Vec<TunnelStatus> {
        let known = locked(&self.inner.known);
        known.values().map(Known::status).collect()
    }
}

/// Never larger than what the way out takes, so that few probes for the MTU are in vain.
fn limits_on(limits: Limits, to: Option<SocketAddr>) -> Limits {
    // towards anybody: a usual device's
    let mtu = to.map_or(1_500, |to| datagram::route_mtu(to).unwrap_or(1_500));
    let headers = if to.is_some_and(|to| to.is_ipv6()) { 48 } else { 28 };
    let most = u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX);
    Limits { datagram: limits.datagram.min(most).max(1_200), ..limits }
}

async fn watch_store(inner: Arc<Inner>) {
    let mut seen: Option<SystemTime> = inner.settings.store.changed();
    loop {
        tokio::time::sleep(LOOK).await;
        let changed = inner.settings.store.changed();
        if changed == seen {
            continue;
        }
        seen = changed;
        if let Err(error) = Inner::look(&inner) {
            tracing::error!(%error, "the relays that are known stay as they were");
        }
    }
}

impl Known {
    fn last_error(&self) -> Option<String> {
        locked(&self.last_error).clone()
    }

    fn status(&self) -> TunnelStatus {
        let ready = self.ready.borrow().clone();
        let tunnel = ready.as_ref().and_then(|ready| {
            let all = locked(&ready.driver.shared.core).snapshots();
            all.into_iter().find(|snapshot| snapshot.tunnel == ready.tunnel)
        });
        let pacing = ready.map(|ready| locked(&ready.driver.shared.late).clone());
        TunnelStatus {
            name: self.relay.name.clone(),
            joined: matches!(self.relay.kind, Kind::Joined { .. }),
            tunnel,
            last_error: self.last_error(),
            pacing: pacing.unwrap_or_default(),
        }
    }

    const fn fingerprint(&self) -> Option<Fingerprint> {
        match &self.relay.kind {
            Kind::Invited { .. } => None,
            Kind::Peer { fingerprint } | Kind::Joined { fingerprint, .. } => Some(*fingerprint),
        }
    }
}

impl Inner {
    /// Takes over what is known: new relays are connected to, revoked ones end.
    fn look(self: &Arc<Self>) -> Result<(), StoreError> {
        let relays = self.settings.store.relays()?;
        let (peers, invited) = trust::admitted(&relays);
        let now = clock::now();
        for driver in &self.listening {
            driver.with(|core| core.admit(now, &peers, &invited));
        }
        let mut known = locked(&self.known);
        known.retain(|name, old| {
            relays.iter().any(|relay| {
                relay.name == *name && (relay == &old.relay || same_but_terms(relay, &old.relay))
            })
        });
        for relay in relays {
            if let Some(old) = known.get_mut(&relay.name) {
                old.relay = relay;
                continue;
            }
            let connecting = match &relay.kind {
                Kind::Joined { fingerprint, address, secret } => {
                    let joined = Joined {
                        name: relay.name.clone(),
                        fingerprint: *fingerprint,
                        address: address.clone(),
                        secret: secret.clone(),
                        terms: relay.terms,
                    };
                    Some(tokio::spawn(Arc::clone(self).connect(joined)))
                }
                Kind::Invited { .. } | Kind::Peer { .. } => None,
            };
            let name = relay.name.clone();
            let ready = watch::Sender::new(None);
            known.insert(name, Known { relay, ready, last_error: Mutex::default(), connecting });
        }
        Ok(())
    }

    /// Listens to what happens on one socket, until it is over; for a socket of our own, `own` says whose,
    /// and this ends with the tunnel.
    async fn attend(
        &self,
        driver: &Arc<Driver>,
        mut events: mpsc::UnboundedReceiver<Event>,
        own: Option<&str>,
    ) -> Option<String> {
        while let Some(event) = events.recv().await {
            match event {
                Event::Up { tunnel, peer } => self.on_up(driver, tunnel, peer, own),
                Event::Down { tunnel, peer, reason } => {
                    self.on_down(tunnel, peer, &reason, own);
                    if own.is_some() {
                        return Some(reason);
                    }
                }
                Event::Joined { peer, invitation } => self.on_joined(peer, invitation),
                Event::Incoming { flow, opening } => self.on_incoming(driver, flow, opening),
                Event::Flow(_) => {}
            }
        }
        None
    }

    /// The relay with this certificate, or of this name.
    fn find<T>(
        &self,
        peer: Fingerprint,
        own: Option<&str>,
        then: impl FnOnce(&Known) -> T,
    ) -> Option<T> {
        let known = locked(&self.known);
        let found = match own {
            Some(name) => known.get(name),
            None => known.values().find(|known| {
                known.fingerprint() == Some(peer) && matches!(known.relay.kind, Kind::Peer { .. })
            }),
        };
        found.map(then)
    }

    fn on_up(&self, driver: &Arc<Driver>, tunnel: TunnelId, peer: Fingerprint, own: Option<&str>) {
        let ready = Ready { driver: Arc::clone(driver), tunnel };
        self.find(peer, own, |known| {
            tracing::info!(relay = %known.relay.name, "the tunnel is up");
            known.ready.send_replace(Some(ready));
        });
    }

    fn on_down(&self, tunnel: TunnelId, peer: Fingerprint, reason: &str, own: Option<&str>) {
        self.find(peer, own, |known| {
            *locked(&known.last_error) = Some(reason.to_owned());
            let was_up = known.ready.send_if_modified(|ready| {
                // another may have come up meanwhile
                let it = ready.as_ref().is_some_and(|ready| ready.tunnel == tunnel);
                if it {
                    *ready = None;
                }
                it
            });
            if was_up {
                tracing::warn!(relay = %known.relay.name, reason, "the tunnel is lost");
            }
        });
    }

    fn on_joined(&self, peer: Fingerprint, invitation: [u8; 32]) {
        if let Err(error) = self.settings.store.joined(invitation, peer) {
            tracing::error!(%error, "a relay that was invited has come, and that could not be written down: it will not be known after a restart");
        }
        // the other sockets and the names, before its tunnel is up
        let mut known = locked(&self.known);
        for known in known.values_mut() {
            let invited = matches!(&known.relay.kind, Kind::Invited { invitation: hash } if *hash == invitation.into());
            if invited {
                tracing::info!(relay = %known.relay.name, fingerprint = %peer, "the relay has joined");
                known.relay.kind = Kind::Peer { fingerprint: peer };
            }
        }
        let relays: Vec<Relay> = known.values().map(|known| known.relay.clone()).collect();
        drop(known);
        let (peers, invited) = trust::admitted(&relays);
        let now = clock::now();
        for driver in &self.listening {
            driver.with(|core| core.admit(now, &peers, &invited));
        }
    }

    fn on_incoming(&self, driver: &Driver, id: FlowId, opening: Opening) {
        let flow = driver.flow(id);
        let relay = {
            let known = locked(&self.known);
            let this = |known: &&Known| {
                known.ready.borrow().as_ref().is_some_and(|ready| {
                    ready.tunnel == id.tunnel && std::ptr::eq(&raw const *ready.driver, driver)
                })
            };
            known.values().find(this).map(|known| known.relay.name.clone())
        };
        let relay = relay.unwrap_or_else(|| "?".to_owned());
        if let Err(error) = self.incoming.try_send(Incoming { flow, opening, relay }) {
            let incoming = match error {
                mpsc::error::TrySendError::Full(incoming)
                | mpsc::error::TrySendError::Closed(incoming) => incoming,
            };
            incoming.flow.refuse(Reason::Exhausted, "the relay is busy".to_owned());
        }
    }

    /// Keeps a tunnel to a relay that invited us.
    async fn connect(self: Arc<Self>, joined: Joined) {
        let joined = Arc::new(joined);
        let mut pause = PAUSE;
        // who was sent away once is not believed to be known
        let mut hasty = true;
        loop {
            let begun = Instant::now();
            let why = match self.connect_once(&joined, hasty).await {
                Ok(reason) => reason,
                Err(why) => why,
            };
            if let Some(known) = locked(&self.known).get(&joined.name) {
                *locked(&known.last_error) = Some(why.clone());
            }
            hasty = begun.elapsed() > LASTING;
            if hasty {
                pause = PAUSE;
            }
            tracing::debug!(relay = %joined.name, why, ?pause, "connecting again after a pause");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// One tunnel, from its beginning to its end; why it ended, or why there was none.
    async fn connect_once(
        self: &Arc<Self>,
        joined: &Arc<Joined>,
        hasty: bool,
    ) -> Result<String, String> {
        let resolved = tokio::net::lookup_host(&joined.address).await;
        let addresses =
            resolved.map_err(|error| format!("{} cannot be resolved: {error}", joined.address))?;
        // all of them, each a little after the one before, as RFC 8305 does for TCP; the first that
        // answers is kept
        let mut attempts = JoinSet::new();
        for (nth, to) in (0..).zip(addresses.take(MOST_ADDRESSES)) {
            let (inner, joined) = (Arc::clone(self), Arc::clone(joined));
            attempts.spawn(async move {
                tokio::time::sleep(APART * nth).await;
                inner.attempt(&joined, to, hasty).await
            });
        }
        let mut why = format!("{} has no address", joined.address);
        while let Some(attempt) = attempts.join_next().await {
            match attempt {
                Ok(Ok(Attempt { driver, events, tunnel, peer })) => {
                    attempts.shutdown().await;
                    self.on_up(&driver, tunnel, peer, Some(&joined.name));
                    let reason = self.attend(&driver, events, Some(&joined.name)).await;
                    return Ok(reason.unwrap_or_else(|| "its thread ended".to_owned()));
                }
                Ok(Err(reason)) => why = reason,
                Err(error) => why = format!("the attempt ended: {error}"),
            }
        }
        Err(why)
    }

    /// A tunnel to one address, until it is up.
    async fn attempt(
        &self,
        joined: &Joined,
        to: SocketAddr,
        hasty: bool,
    ) -> Result<Attempt, String> {
        let any: SocketAddr = match to.is_ipv6() {
            true => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
            false => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        };
        let socket = datagram::open(any).map_err(|error| format!("no UDP socket: {error}"))?;
        let limits = limits_on(self.settings.limits, Some(to));
        let core = Endpoint::new(self.credentials.clone(), limits, false, self.origin, None);
        let (driver, mut events) = Driver::start(core, socket, self.settings.dscp)
            .map_err(|error| format!("no thread for the tunnel: {error}"))?;
        let session = trust::random::<8>().map_err(|error| error.to_string())?;
        let secret = trust::decode(&joined.secret).map_err(|error| error.to_string())?;
        let now: Time = clock::now();
        let begun = driver.with(|core| {
            let secret = Bytes::copy_from_slice(&secret);
            let session = u64::from_be_bytes(session);
            core.connect(now, to, joined.fingerprint, secret, joined.terms, (session, hasty))
        });
        begun.map_err(|error| error.to_string())?;
        while let Some(event) = events.recv().await {
            match event {
                Event::Up { tunnel, peer } => {
                    return Ok(Attempt { driver: Arc::new(driver), events, tunnel, peer });
                }
                Event::Down { reason, .. } => return Err(format!("{to}: {reason}")),
                Event::Joined { .. } | Event::Incoming { .. } | Event::Flow(_) => {}
            }
        }
        Err("its thread ended".to_owned())
    }
}

/// A tunnel that has come up.
#[derive(Debug)]
struct Attempt {
    driver: Arc<Driver>,
    events: mpsc::UnboundedReceiver<Event>,
    tunnel: TunnelId,
    peer: Fingerprint,
}

/// A relay that invited us.
#[derive(Debug)]
struct Joined {
    name: String,
    fingerprint: Fingerprint,
    address: String,
    secret: String,
    terms: Terms,
}

/// Whether two differ in their rates alone, which a running tunnel takes over.
fn same_but_terms(one: &Relay, other: &Relay) -> bool {
    one.name == other.name
        && match (&one.kind, &other.kind) {
            (Kind::Joined { .. }, _) | (_, Kind::Joined { .. }) => false,
            // who was invited has come meanwhile
            (Kind::Peer { .. }, Kind::Invited { .. }) => true,
            (one, other) => one == other,
        }
}

#[cfg(test)]
mod tests;
