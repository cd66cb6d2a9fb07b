//! Connecting to relays that invited us, and again when a tunnel is lost.

use super::Inner;
use super::listening::{limits_for_path, open};
use crate::core::{Endpoint, Event, Fingerprint, Terms, TunnelEnd, TunnelId};
use crate::driver::peers::peer::PeerState;
use crate::driver::peers::tcp_fallback::{self, Outgoing, TransportMode};
use crate::driver::{Driver, locked};
use crate::trust::{self, Peer, PeerKind};
use bytes::Bytes;
use ekiden_linux::host::clock;
use ekiden_model::connect::reconnect::{AttemptEnd, Reconnect};
use ekiden_model::control::rate_hold::Breaker;
use ekiden_model::units::Time;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Addresses of a relay that are tried, and how long after each other.
pub(super) const MOST_ADDRESSES: usize = 4;
const APART: Duration = Duration::from_millis(250);
/// UDP is tried alone for this long: a handshake over a satellite, with a loss.
const UDP_FIRST: Duration = Duration::from_secs(3);
/// A tunnel over TCP without flows for this long makes way for UDP; doubled each time.
const ON_TCP: Duration = Duration::from_secs(60);
const LONGEST_ON_TCP: Duration = Duration::from_secs(3_600);

#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) driver: Arc<Driver>,
    events: mpsc::UnboundedReceiver<Event>,
    pub(super) tunnel: TunnelId,
    peer: Fingerprint,
    carrier: Option<Outgoing>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Underlay {
    Udp,
    Tcp,
}

impl fmt::Display for Underlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
        })
    }
}

/// A relay that invited us.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) name: String,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) address: String,
    pub(crate) secret: String,
    pub(crate) terms: Terms,
    /// Of the path, from the tunnel before.
    pub(crate) breaker: Mutex<Option<Breaker>>,
    /// How long a tunnel over TCP must be without flows before UDP is tried again.
    pub(crate) on_tcp: Mutex<Duration>,
    /// Pauses between attempts.
    pub(crate) reconnect: Mutex<Reconnect>,
}

impl Joined {
    /// As the store has it; `None` for one that did not invite us.
    pub(crate) fn of(peer: &Peer) -> Option<Self> {
        let PeerKind::Joined { fingerprint, address, secret } = &peer.kind else { return None };
        Some(Self {
            name: peer.name.clone(),
            fingerprint: *fingerprint,
            address: address.clone(),
            secret: secret.clone(),
            terms: peer.terms,
            breaker: Mutex::default(),
            on_tcp: Mutex::new(ON_TCP),
            reconnect: Mutex::default(),
        })
    }
}

impl Inner {
    /// Keeps a tunnel to a relay that invited us.
    pub(crate) async fn connect(self: Arc<Self>, joined: Arc<Joined>) {
        self.leave_unattended(&joined.name);
        // a peer that ended a tunnel itself may not know this relay any more
        let mut hasty = true;
        loop {
            self.on_attempt(&joined.name, None);
            let TunnelEnd { reason: why, by_peer } =
                self.connect_once(&joined, hasty).await.unwrap_or_else(|end| end);
            if let Some(known) = locked(&self.known).get(&joined.name) {
                *locked(&known.last_error) = Some(why.clone());
            }
            let AttemptEnd { pause, lasted } = locked(&joined.reconnect).on_end(clock::now());
            hasty = lasted && !by_peer;
            tracing::debug!(peer = %joined.name, why, %pause, "connecting again after a pause");
            self.on_attempt(&joined.name, Some(clock::now() + pause));
            tokio::time::sleep(pause.into()).await;
        }
    }

    /// A tunnel from before a panic, to which nobody attends.
    fn leave_unattended(&self, name: &str) {
        if let Some(known) = locked(&self.known).get(name)
            && known.ready.send_if_modified(|ready| ready.take().is_some())
        {
            locked(&known.outage).on_lost(clock::now());
        }
    }

    /// Logs about a peer where it is due.
    fn log_line(&self, name: &str, log: impl FnOnce(Option<u64>)) {
        let due = locked(&self.known).get(name).and_then(PeerState::log_line);
        if let Some(left_out) = due {
            log(left_out);
        }
    }

    fn on_attempt(&self, name: &str, next: Option<Time>) {
        if let Some(known) = locked(&self.known).get(name) {
            locked(&known.outage).on_attempt(next);
        }
    }

    async fn connect_once(
        self: &Arc<Self>,
        joined: &Arc<Joined>,
        hasty: bool,
    ) -> Result<TunnelEnd, TunnelEnd> {
        let resolved = tokio::net::lookup_host(&joined.address).await;
        let addresses: Vec<_> = resolved
            .map_err(|error| format!("{} cannot be resolved: {error}", joined.address))?
            .take(MOST_ADDRESSES)
            .collect();
        // a little after one another, as RFC 8305 does for TCP; the first that answers is kept
        let mut attempts = JoinSet::new();
        let start = |attempts: &mut JoinSet<_>, over: Underlay| {
            for (nth, to) in (0..).zip(addresses.iter().copied()) {
                let (inner, joined) = (Arc::clone(self), Arc::clone(joined));
                attempts.spawn(async move {
                    tokio::time::sleep(APART * nth).await;
                    inner.attempt(&joined, (to, over), hasty).await
                });
            }
        };
        let (first, both) = match self.settings.carrier {
            TransportMode::Auto => (Underlay::Udp, true),
            TransportMode::Udp => (Underlay::Udp, false),
            TransportMode::Tcp => (Underlay::Tcp, false),
        };
        start(&mut attempts, first);
        let mut other = both.then(|| Box::pin(tokio::time::sleep(UDP_FIRST)));
        let (mut why, mut by_peer) = (Vec::new(), false);
        loop {
            let attempt = match &mut other {
                // too long, or all have failed: TCP as well
                Some(late) => tokio::select! {
                    attempt = attempts.join_next() => attempt,
                    () = late => None,
                },
                None => attempts.join_next().await,
            };
            match attempt {
                Some(Ok(Ok(up))) => {
                    attempts.shutdown().await;
                    return Ok(self.keep(joined, up).await);
                }
                Some(Ok(Err(end))) => {
                    why.push(end.reason);
                    by_peer |= end.by_peer;
                }
                Some(Err(error)) => why.push(format!("the attempt ended: {error}")),
                None if other.take().is_some() => start(&mut attempts, Underlay::Tcp),
                None if why.is_empty() => {
                    return Err(format!("{} has no address", joined.address).into());
                }
                None => return Err(TunnelEnd { reason: why.join("; "), by_peer }),
            }
        }
    }

    /// A tunnel that is up, until its end.
    async fn keep(self: &Arc<Self>, joined: &Joined, up: Attempt) -> TunnelEnd {
        let Attempt { driver, mut events, tunnel, peer, carrier } = up;
        self.on_up(&driver, tunnel, peer, Some(&joined.name));
        locked(&joined.reconnect).on_up(clock::now());
        let second_best = carrier.is_some() && self.settings.carrier == TransportMode::Auto;
        let attending = self.attend(&driver, &mut events, Some(&joined.name));
        let mut attending = std::pin::pin!(attending);
        let end = if second_best {
            self.log_line(&joined.name, |left_out| tracing::warn!(
                peer = %joined.name,
                left_out,
                "no answer over UDP: using TLS on TCP, which cannot hold the rate across losses; retrying UDP when the tunnel is unused"
            ));
            let pause = *locked(&joined.on_tcp);
            tokio::select! {
                end = &mut attending => end,
                () = unused(&driver, tunnel, pause) => {
                    *locked(&joined.on_tcp) = (pause * 2).min(LONGEST_ON_TCP);
                    driver.close(tunnel, "UDP is tried again");
                    attending.await
                }
            }
        } else {
            *locked(&joined.on_tcp) = ON_TCP;
            attending.await
        };
        *locked(&joined.breaker) = driver.with(|core| core.breaker(peer));
        end.unwrap_or_else(|| "its thread ended".to_owned().into())
    }

    pub(super) async fn attempt(
        &self,
        joined: &Joined,
        (to, over): (SocketAddr, Underlay),
        hasty: bool,
    ) -> Result<Attempt, TunnelEnd> {
        let any: SocketAddr = match (over, to.is_ipv6()) {
            (Underlay::Tcp, _) => (Ipv4Addr::LOCALHOST, 0).into(),
            (Underlay::Udp, true) => (Ipv6Addr::UNSPECIFIED, 0).into(),
            (Underlay::Udp, false) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        };
        let no_socket = |error: io::Error| format!("no UDP socket: {error}");
        let socket = open(any).map_err(no_socket)?;
        let dialled = match over {
            Underlay::Udp => None,
            Underlay::Tcp => {
                let made = tcp_fallback::connect(&self.credentials, joined.fingerprint, to);
                Some(made.await.map_err(|error| format!("TCP {to}: {error}"))?)
            }
        };
        let limits = limits_for_path(self.settings.limits, Some(to));
        let core = Endpoint::new(self.credentials.clone(), limits, false, self.origin, None);
        let (driver, mut events) = Driver::start(core, socket, self.settings.dscp)
            .map_err(|error| format!("no thread for the tunnel: {error}"))?;
        let carrier = dialled.map(|dialled| dialled.carry(&driver, Arc::clone(&self.carried)));
        let session = trust::random::<8>().map_err(|error| error.to_string())?;
        let secret = trust::decode(&joined.secret).map_err(|error| error.to_string())?;
        let now: Time = clock::now();
        let breaker = locked(&joined.breaker).clone();
        let at = carrier.as_ref().map_or(to, |carrier| carrier.end);
        let begun = driver.with(|core| {
            if let Some(breaker) = breaker {
                core.set_breaker(joined.fingerprint, breaker);
            }
            let secret = Bytes::copy_from_slice(&secret);
            let session = u64::from_be_bytes(session);
            core.connect(now, at, joined.fingerprint, secret, joined.terms, (session, hasty))
        });
        begun.map_err(|error| error.to_string())?;
        while let Some(event) = events.recv().await {
            match event {
                Event::Up { tunnel, peer } => {
                    return Ok(Attempt { driver: Arc::new(driver), events, tunnel, peer, carrier });
                }
                Event::Down { end: TunnelEnd { reason, by_peer }, .. } => {
                    let reason = format!("{over} {to}: {reason}");
                    return Err(TunnelEnd { reason, by_peer });
                }
                Event::Joining { .. }
                | Event::Incoming { .. }
                | Event::Breaker { .. }
                | Event::Restrained { .. }
                | Event::SendMemory { .. }
                | Event::OrphansReset { .. }
                | Event::Unmarked { .. }
                | Event::Flow(_) => {}
            }
        }
        Err("its thread ended".to_owned().into())
    }
}

async fn unused(driver: &Driver, tunnel: TunnelId, pause: Duration) {
    let mut since = Instant::now();
    while since.elapsed() < pause {
        tokio::time::sleep(pause.min(Duration::from_secs(1))).await;
        let seen = locked(&driver.shared.core).snapshot(tunnel);
        if seen.is_some_and(|seen| seen.flows > 0) {
            since = Instant::now();
        }
    }
}
