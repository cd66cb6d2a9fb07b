//! Connecting to relays that invited us, and again when a tunnel is lost.

use super::Inner;
use super::listening::{limits_for_path, open};
use crate::core::{Endpoint, Event, Fingerprint, Terms, TunnelEnd, TunnelId};
use crate::driver::peers::peer::{PeerState, Ready};
use crate::driver::peers::tcp_fallback::{self, Outgoing, TransportMode};
use crate::driver::{Driver, locked};
use crate::trust::{self, Peer, PeerKind};
use bytes::Bytes;
use ekiden_linux::host::clock;
use ekiden_model::connect::failover::{self, Health};
use ekiden_model::connect::reconnect::{AttemptEnd, Reconnect};
use ekiden_model::control::rate_hold::Breaker;
use ekiden_model::units::{Span, Time};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Addresses of a relay that are tried, and how long after each other.
const MOST_ADDRESSES: usize = 4;
const APART: Duration = Duration::from_millis(250);
/// UDP is tried alone for this long: a handshake over a satellite, with a loss.
const UDP_FIRST: Duration = Duration::from_secs(3);
/// When UDP is tried again beside a tunnel over TCP.
const UDP_AGAIN: failover::Config =
    failover::Config { first_rest: Span::from_secs(30), longest_rest: Span::from_secs(600) };
/// A tunnel over UDP that was up for longer than this was no failure: the next rest is the first again.
const LASTING: Duration = Duration::from_secs(60);
/// A tunnel over TCP beside one over UDP ends after so long without flows: one may still be on its way.
const DRAINED: Duration = Duration::from_secs(5);

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
    /// Of UDP: when it is tried again beside a tunnel over TCP.
    pub(crate) udp: Mutex<Health>,
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
            udp: Mutex::new(Health::new(UDP_AGAIN)),
            reconnect: Mutex::default(),
        })
    }
}

impl Inner {
    /// Keeps a tunnel to a relay that invited us.
    pub(crate) async fn connect(self: Arc<Self>, joined: Arc<Joined>) {
        self.leave_unattended(&joined);
        // a peer that ended a tunnel itself may not know this relay any more
        let mut hasty = true;
        loop {
            self.on_attempt(&joined, None);
            let end = match self.reach(&joined, self.settings.carrier, hasty).await {
                Ok(up) => self.keep(&joined, up).await,
                Err(end) => end,
            };
            let TunnelEnd { reason: why, by_peer } = end;
            self.as_known(&joined, |known| *locked(&known.last_error) = Some(why.clone()));
            let AttemptEnd { pause, lasted } = locked(&joined.reconnect).on_end(clock::now());
            hasty = lasted && !by_peer;
            tracing::debug!(peer = %joined.name, why, %pause, "connecting again after a pause");
            self.on_attempt(&joined, Some(clock::now() + pause));
            tokio::time::sleep(pause.into()).await;
        }
    }

    /// What is known of it, unless it was revoked or replaced.
    fn as_known<T>(&self, joined: &Joined, then: impl FnOnce(&PeerState) -> T) -> Option<T> {
        self.find(joined.fingerprint, Some(joined), then)
    }

    /// A tunnel from before a panic, to which nobody attends.
    fn leave_unattended(&self, joined: &Joined) {
        self.set_draining(joined, None);
        self.as_known(joined, |known| {
            if known.ready.send_if_modified(|ready| ready.take().is_some()) {
                locked(&known.outage).on_lost(clock::now());
            }
        });
    }

    /// A stop ends it, too.
    fn set_draining(&self, joined: &Joined, tunnel: Option<Ready>) {
        self.as_known(joined, |known| *locked(&known.draining) = tunnel);
    }

    /// Logs about a peer where it is due.
    fn log_line(&self, joined: &Joined, log: impl FnOnce(Option<u64>)) {
        let due = self.as_known(joined, PeerState::log_line);
        if let Some(left_out) = due.flatten() {
            log(left_out);
        }
    }

    fn on_attempt(&self, joined: &Joined, next: Option<Time>) {
        self.as_known(joined, |known| locked(&known.outage).on_attempt(next));
    }

    /// The first tunnel that is up, of all addresses and carriers.
    async fn reach(
        self: &Arc<Self>,
        joined: &Arc<Joined>,
        carriers: TransportMode,
        hasty: bool,
    ) -> Result<Attempt, TunnelEnd> {
        let addresses = resolve(&joined.address).await?;
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
        let (first, both) = match carriers {
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
                    return Ok(up);
                }
                Some(Ok(Err(end))) => {
                    why.push(end.reason);
                    by_peer |= end.by_peer;
                }
                Some(Err(error)) => why.push(format!("the attempt ended: {error}")),
                None if other.take().is_some() => start(&mut attempts, Underlay::Tcp),
                None => return Err(TunnelEnd { reason: why.join("; "), by_peer }),
            }
        }
    }

    /// A tunnel that is up, until its end. Where one over TCP is second best, UDP is tried again beside it, and new flows go
    /// over that. Flows stay in the tunnel that has them.
    async fn keep(self: &Arc<Self>, joined: &Arc<Joined>, up: Attempt) -> TunnelEnd {
        locked(&joined.reconnect).on_up(clock::now());
        if up.carrier.is_none() || self.settings.carrier != TransportMode::Auto {
            return self.attend_until_end(joined, up).await;
        }
        let (driver, tunnel, peer) = (Arc::clone(&up.driver), up.tunnel, up.peer);
        let mut over_tcp = std::pin::pin!(self.attend_until_end(joined, up));
        loop {
            self.log_line(joined, |left_out| tracing::warn!(
                peer = %joined.name,
                left_out,
                "no answer over UDP: using TLS on TCP, which cannot hold the rate across losses; trying UDP again beside it"
            ));
            locked(&joined.udp).on_failure(clock::now());
            let up = tokio::select! {
                end = &mut over_tcp => return end,
                up = self.udp_again(joined) => up,
            };
            self.log_line(joined, |left_out| {
                tracing::info!(
                    peer = %joined.name,
                    left_out,
                    "UDP answers again: new flows go over it, those there are end over TCP"
                )
            });
            self.set_draining(joined, Some(Ready { driver: Arc::clone(&driver), tunnel }));
            let mut over_udp = std::pin::pin!(self.attend_until_end(joined, up));
            let lost = tokio::select! {
                end = &mut over_udp => Some(end),
                () = drained(&driver, tunnel, &mut over_tcp) => None,
            };
            self.set_draining(joined, None);
            match lost {
                // it does not know the one over TCP either, which would notice much later
                Some(end) if end.is_restart() => return end,
                Some(_) if locked(&driver.shared.core).snapshot(tunnel).is_none() => {
                    return over_tcp.await;
                }
                Some(_) => self.on_up(&driver, tunnel, peer, Some(joined)),
                None => {
                    drop(driver);
                    return over_udp.await;
                }
            }
        }
    }

    /// Flows go over this tunnel from now on, until its end.
    async fn attend_until_end(self: &Arc<Self>, joined: &Joined, up: Attempt) -> TunnelEnd {
        let Attempt { driver, mut events, tunnel, peer, carrier } = up;
        self.on_up(&driver, tunnel, peer, Some(joined));
        let begun = Instant::now();
        let end = self.attend(&driver, &mut events, Some(joined)).await;
        // over TCP nothing is learnt about the path of UDP
        if carrier.is_none() {
            *locked(&joined.breaker) = driver.with(|core| core.breaker(peer));
            if begun.elapsed() > LASTING {
                locked(&joined.udp).on_success();
            }
        }
        end.unwrap_or_else(|| "its thread ended".to_owned().into())
    }

    /// Tries UDP whenever that is due, until a tunnel is up over it.
    async fn udp_again(self: &Arc<Self>, joined: &Arc<Joined>) -> Attempt {
        loop {
            let due = locked(&joined.udp).deadline();
            tokio::time::sleep(due.since(clock::now()).into()).await;
            // not hasty: the answer shows that both directions are open
            match self.reach(joined, TransportMode::Udp, false).await {
                Ok(up) => return up,
                Err(TunnelEnd { reason: why, .. }) => {
                    tracing::debug!(peer = %joined.name, why, "no answer over UDP yet");
                    locked(&joined.udp).on_failure(clock::now());
                }
            }
        }
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

/// The first addresses of a relay, at least one. Errors: there is none, in words.
pub(super) async fn resolve(name: &str) -> Result<Vec<SocketAddr>, String> {
    let found = tokio::net::lookup_host(name).await;
    destinations(name, found.map_err(|error| format!("{name} cannot be resolved: {error}"))?)
}

/// Without those that nobody can be at: some name servers answer so for what they block.
fn destinations(
    name: &str,
    found: impl Iterator<Item = SocketAddr>,
) -> Result<Vec<SocketAddr>, String> {
    let is_one = |at: &SocketAddr| at.port() != 0 && !at.ip().to_canonical().is_unspecified();
    let (mut usable, others): (Vec<_>, Vec<_>) = found.partition(is_one);
    usable.truncate(MOST_ADDRESSES);
    match others.first() {
        Some(at) if usable.is_empty() => Err(format!(
            "{name} leads to {at}, where no relay can be: look at the name server, or at the invitation"
        )),
        None if usable.is_empty() => Err(format!("{name} has no address")),
        _ => Ok(usable),
    }
}

/// Waits for the end of a tunnel that gets no new flows here, and ends it once it has none.
async fn drained(driver: &Driver, tunnel: TunnelId, ended: impl Future<Output = TunnelEnd>) {
    let mut ended = std::pin::pin!(ended);
    tokio::select! {
        _ = &mut ended => {}
        () = unused(driver, tunnel, DRAINED) => {
            driver.close(tunnel, "UDP is used again");
            ended.await;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_at_which_no_relay_can_be_is_not_tried() {
        let of = |found: &[&str]| {
            destinations("a.example:1", found.iter().map(|at| at.parse().unwrap()))
        };
        for at in ["0.0.0.0:1", "[::]:1", "[::ffff:0.0.0.0]:1", "192.0.2.1:0"] {
            let why = of(&[at]).unwrap_err();
            assert!(why.starts_with(&format!("a.example:1 leads to {at}, ")), "{why}");
            let [one, other] = ["192.0.2.1:1", "[2001:db8::1]:1"];
            let kept = [one, other].map(|at| at.parse::<SocketAddr>().unwrap());
            assert_eq!(of(&[one, at, other]).unwrap(), kept);
        }
        assert_eq!(of(&["0.0.0.0:1", "[::]:1"]).unwrap_err(), of(&["0.0.0.0:1"]).unwrap_err());
        assert_eq!(of(&[]).unwrap_err(), "a.example:1 has no address");
        assert_eq!(of(&["192.0.2.1:1"; MOST_ADDRESSES + 1]).unwrap().len(), MOST_ADDRESSES);
    }

    #[test]
    fn udp_is_tried_again_after_30_s_and_then_after_twice_as_long_up_to_10_min() {
        let (mut udp, mut now) = (Health::new(UDP_AGAIN), Time::ZERO);
        let rests = [(); 7].map(|()| {
            udp.on_failure(now);
            let rest = udp.deadline().since(now).as_secs();
            // a tunnel over TCP that is lost meanwhile and comes again changes nothing
            udp.on_failure(now + Span::from_secs(rest / 2));
            now = udp.deadline();
            rest
        });
        assert_eq!(rests, [30, 60, 120, 240, 480, 600, 600]);
    }
}
