//! Connecting to relays that invited us, and again when a tunnel is lost.

use super::{Inner, limits_on};
use crate::core::{Endpoint, Event, Fingerprint, Terms, TunnelId};
use crate::driver::{Driver, locked};
use crate::trust;
use bytes::Bytes;
use ekiden_linux::{clock, datagram};
use ekiden_model::rate_hold::Breaker;
use ekiden_model::units::Time;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// First pause before connecting again; it doubles up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A tunnel that was up so long was no failure: the next attempt comes at once.
const LASTING: Duration = Duration::from_secs(10);
/// Addresses of a relay that are tried, and how long after each other.
const MOST_ADDRESSES: usize = 4;
const APART: Duration = Duration::from_millis(250);

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
pub(super) struct Joined {
    pub(super) name: String,
    pub(super) fingerprint: Fingerprint,
    pub(super) address: String,
    pub(super) secret: String,
    pub(super) terms: Terms,
    /// Of the path, from the tunnel before.
    pub(super) breaker: Mutex<Option<Breaker>>,
}

impl Inner {
    /// Keeps a tunnel to a relay that invited us.
    pub(super) async fn connect(self: Arc<Self>, joined: Joined) {
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
                    let breaker = driver.with(|core| core.breaker(peer).cloned());
                    *locked(&joined.breaker) = breaker;
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
        let breaker = locked(&joined.breaker).clone();
        let begun = driver.with(|core| {
            if let Some(breaker) = breaker {
                core.set_breaker(joined.fingerprint, breaker);
            }
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
                Event::Joined { .. }
                | Event::Incoming { .. }
                | Event::Breaker { .. }
                | Event::Flow(_) => {}
            }
        }
        Err("its thread ended".to_owned())
    }
}
