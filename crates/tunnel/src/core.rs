//! The protocol without a socket or a clock: told what arrived and when, it answers what leaves.
//!
//! ```text
//! connect(now, to, …)             a tunnel to a relay that invited us
//! receive(now, from, datagram)    one came
//! transmit(now, buf)              the next one that is due; ask until there is none
//! left(now, tunnel)               they have left, maybe later than `now` was when they were asked for
//! deadline(now)                   when to call on_deadline and transmit again
//! on_deadline(now)
//! event()                         what happened: ask after each of the above
//! open, accept, refuse, room, write, end, read, answer, abort      flows
//! ```
//! `now` never goes back. A tunnel is two QUIC connections, its *lanes*: one for what is interactive, one
//! for bulk, so that each has its own DSCP and a loss on one never delays the other. quinn-proto carries
//! and repairs; it never decides when a packet leaves. At each slot of [`ekiden_model::pacing`] something
//! that the interactive lane has to say (also repeat) goes first, then an interactive flow's bytes, then the
//! bulk lane's own, then a bulk flow's: one packet's worth of them is written and one datagram taken out.
//! So nothing waits inside the library. What was sent, arrived and was lost is told to
//! [`ekiden_model::rate_hold`], which says what rate to keep and how much may be under way.
//!
//! **Copies.** The first bytes of an interactive burst, and what opens, answers and ends a flow, go once on
//! a stream and once more a little later as a datagram. Bytes carry offsets, so the receiver drops what it
//! has. A lost keystroke then comes a sixteenth of a round trip late, and not a whole one.
//!
//! **Memory.** Each flow may be sent as far as its credit, and all of them as far as the tunnel's; both are
//! given when bytes are taken. A flow whose bytes nobody takes holds no more than its window, and is given
//! up when others need the memory.

mod assembly;
mod calls;
mod config;
mod controller;
mod flow;
mod lane;
mod packets;
mod seen;
mod strangers;
#[cfg(test)]
mod tests;
mod tunnel;

pub use crate::trust::Fingerprint;
pub(crate) use config::text as rate_text;
pub use config::{Invited, Limits, Peer, Terms};
pub use flow::End;
pub use seen::{Event, Out, Read, Snapshot};

use crate::trust::Credentials;
use bytes::{Bytes, BytesMut};
use config::{quic_window, transport};
use controller::Ear;
use ekiden_model::rate_hold::Breaker;
use ekiden_model::units::Time;
use lane::Lane;
use quinn_proto::{
    ClientConfig, ConnectionError, ConnectionHandle, DatagramEvent, EndpointConfig,
    HashedConnectionIdGenerator, ServerConfig,
};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strangers::Stranger;
use tunnel::Tunnel;

/// A tunnel at this end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TunnelId(u64);

/// A flow of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId {
    /// Its tunnel.
    pub tunnel: TunnelId,
    /// Its number there.
    pub flow: u64,
}

/// Why a tunnel could not be begun.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CannotConnect(String);

/// One UDP socket's worth of tunnels.
#[derive(Debug)]
pub struct Endpoint {
    /// The instant of [`Time::ZERO`]: quinn-proto counts in instants.
    origin: Instant,
    quinn: quinn_proto::Endpoint,
    credentials: Credentials,
    limits: Limits,
    listens: bool,
    tunnels: BTreeMap<TunnelId, Tunnel>,
    next_tunnel: u64,
    /// Lanes that belong to no tunnel: not known yet, or being closed.
    strangers: BTreeMap<usize, Stranger>,
    /// Which tunnel's a connection is, and which lane of it.
    lanes: HashMap<usize, (TunnelId, usize)>,
    peers: BTreeMap<Fingerprint, Terms>,
    invited: BTreeMap<[u8; 32], Terms>,
    /// Of paths that had to be restrained once: a tunnel's successor is, too.
    breakers: BTreeMap<Fingerprint, Breaker>,
    replies: VecDeque<(SocketAddr, Vec<u8>)>,
    events: VecDeque<Event>,
    /// The tunnel that is asked first for a datagram.
    turn: TunnelId,
}

/// Error codes in CONNECTION_CLOSE (`docs/protocol.md`).
mod code {
    pub(super) const PROTOCOL: u32 = 1;
    pub(super) const NOT_KNOWN: u32 = 2;
    pub(super) const OTHER_LANE: u32 = 3;
    pub(super) const CLOSED: u32 = 4;
    pub(super) const REVOKED: u32 = 5;
}

impl Endpoint {
    /// Nobody yet. With `listens`, peers may open tunnels here. `origin` is the instant of [`Time::ZERO`];
    /// `seed` makes identifiers repeatable, for tests alone.
    #[must_use]
    pub fn new(
        credentials: Credentials,
        limits: Limits,
        listens: bool,
        origin: Instant,
        seed: Option<[u8; 32]>,
    ) -> Self {
        let mut config = EndpointConfig::new(credentials.reset_key());
        // identifiers that a restarted relay knows for its own: only then does it answer with a reset
        let key = credentials.identifier_key();
        config.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(key)));
        // cannot fail: it is above 1,200 (RFC 9000 §18.2)
        let _ = config.max_udp_payload_size(limits.datagram.max(1_472));
        let server = listens.then(|| Arc::new(ServerConfig::with_crypto(credentials.server())));
        let quinn = quinn_proto::Endpoint::new(Arc::new(config), server, true, seed);
        Self {
            origin,
            quinn,
            credentials,
            limits,
            listens,
            tunnels: BTreeMap::new(),
            next_tunnel: 0,
            strangers: BTreeMap::new(),
            lanes: HashMap::new(),
            peers: BTreeMap::new(),
            invited: BTreeMap::new(),
            breakers: BTreeMap::new(),
            replies: VecDeque::new(),
            events: VecDeque::new(),
            turn: TunnelId(0),
        }
    }

    fn instant(&self, now: Time) -> Instant {
        self.origin + Duration::from_nanos(now.as_nanos())
    }

    // ---- who

    /// Who may open tunnels here from now on. Tunnels of others end.
    pub fn admit(&mut self, now: Time, peers: &[Peer], invited: &[Invited]) {
        self.peers = peers.iter().map(|peer| (peer.fingerprint, peer.terms)).collect();
        self.invited = invited.iter().map(|invited| (invited.secret, invited.terms)).collect();
        self.breakers.retain(|peer, _| !self.listens || self.peers.contains_key(peer));
        let mut revoked = Vec::new();
        for tunnel in self.tunnels.values_mut().filter(|tunnel| !tunnel.opener) {
            match self.peers.get(&tunnel.peer) {
                Some(terms) => tunnel.set_terms(now, *terms),
                None => revoked.push(tunnel.id),
            }
        }
        for id in revoked {
            self.end(now, id, code::REVOKED, "the invitation was revoked".to_owned());
        }
    }

    /// Begins a tunnel to the relay at `to` whose certificate has this fingerprint. `secret` is the
    /// invitation's. [`Event::Up`] or [`Event::Down`] follows; with `hasty`, up as soon as the relay has shown
    /// its certificate and before it is known whether it knows us, which saves a round trip.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn connect(
        &mut self,
        now: Time,
        to: SocketAddr,
        peer: Fingerprint,
        secret: Bytes,
        terms: Terms,
        (session, hasty): (u64, bool),
    ) -> Result<TunnelId, CannotConnect> {
        let id = self.new_id();
        let session = session & crate::frame::MOST;
        let mut tunnel = self.new_tunnel(now, (id, peer, session, true), terms);
        tunnel.secret = secret;
        tunnel.hasty = hasty;
        let clock = self.instant(now);
        let mut handles = Vec::new();
        for nth in 0..2 {
            let ear = Ear::default();
            let tls = self.credentials.client(peer);
            let tls = tls.map_err(|error| CannotConnect(error.to_string()))?;
            let mut config = ClientConfig::new(tls);
            let window = quic_window(&self.limits).into_inner();
            config.transport_config(Arc::new(transport(&self.limits, &ear, window)));
            // the name goes into nothing: the fingerprint is what is checked
            let (handle, connection) =
                self.quinn.connect(clock, config, to, "relay.ekiden").map_err(|error| {
                    CannotConnect(format!("cannot begin a tunnel to {to}: {error}"))
                })?;
            let mut lane = Lane::new(handle, connection, ear);
            lane.known = true;
            tunnel.lanes[nth] = Some(lane);
            handles.push(handle);
        }
        for (nth, handle) in handles.into_iter().enumerate() {
            self.lanes.insert(handle.0, (id, nth));
        }
        self.tunnels.insert(id, tunnel);
        Ok(id)
    }

    fn new_tunnel(
        &self,
        now: Time,
        key: (TunnelId, Fingerprint, u64, bool),
        terms: Terms,
    ) -> Tunnel {
        let mut tunnel = Tunnel::new(now, key, terms, self.limits);
        if let Some(breaker) = self.breakers.get(&key.1) {
            *tunnel.hold.breaker() = breaker.clone();
        }
        tunnel
    }

    /// The circuit breaker of the path to a peer whose tunnel has ended, if it ever opened: for the endpoint
    /// that connects to it next.
    #[must_use]
    pub fn breaker(&self, peer: Fingerprint) -> Option<&Breaker> {
        self.breakers.get(&peer)
    }

    /// Takes over what another endpoint knew of the path to a peer; before [`Endpoint::connect`].
    pub fn set_breaker(&mut self, peer: Fingerprint, breaker: Breaker) {
        self.breakers.insert(peer, breaker);
    }

    fn new_id(&mut self) -> TunnelId {
        self.next_tunnel += 1;
        TunnelId(self.next_tunnel)
    }

    /// Ends a tunnel.
    pub fn close(&mut self, now: Time, tunnel: TunnelId, reason: &str) {
        self.end(now, tunnel, code::CLOSED, reason.to_owned());
    }

    /// Whether a tunnel that is up goes to this address.
    #[must_use]
    pub fn has_tunnel_at(&self, at: SocketAddr) -> bool {
        let lanes = |tunnel: &Tunnel| {
            tunnel.lanes.iter().flatten().any(|lane| lane.quinn.remote_address() == at)
        };
        self.tunnels.values().any(|tunnel| tunnel.up && lanes(tunnel))
    }

    // ---- time and datagrams

    /// A datagram came.
    pub fn receive(&mut self, now: Time, from: SocketAddr, datagram: BytesMut) {
        let clock = self.instant(now);
        let mut reply = Vec::new();
        match self.quinn.handle(clock, from, None, None, datagram, &mut reply) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(lane) = self.lane(handle) {
                    lane.quinn.handle_event(event);
                    lane.busy = true;
                }
                self.settle(now, handle);
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.meet(now, incoming, from),
            Some(DatagramEvent::Response(transmit)) => {
                reply.truncate(transmit.size);
                self.replies.push_back((transmit.destination, reply));
            }
            None => {}
        }
    }

    /// The next datagram that is due, into `buf`.
    pub fn transmit(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<Out> {
        if let Some((to, bytes)) = self.replies.pop_front() {
            buf.clear();
            buf.extend_from_slice(&bytes);
            return Some(Out { to, lane: 0, size: bytes.len(), tunnel: None });
        }
        let clock = self.instant(now);
        for stranger in self.strangers.values_mut().filter(|stranger| stranger.lane.busy) {
            if let Some(polled) = stranger.lane.poll_transmit(clock, buf) {
                return Some(Out { to: polled.to, lane: 0, size: polled.size, tunnel: None });
            }
        }
        // each tunnel has a schedule of its own; who is asked first changes
        let first = self.turn;
        let ids = self.tunnels.range(first..).chain(self.tunnels.range(..first));
        let ids: Vec<TunnelId> = ids.map(|(id, _)| *id).collect();
        for id in ids {
            let Some(tunnel) = self.tunnels.get_mut(&id) else { continue };
            let out = tunnel.transmit(now, clock, buf);
            self.events.append(&mut tunnel.events);
            if let Some(broken) = tunnel.broken.take() {
                self.end(now, id, code::PROTOCOL, broken);
            }
            if out.is_some() {
                self.turn = TunnelId(id.0 + 1);
                return out;
            }
        }
        None
    }

    /// What [`Endpoint::transmit`] gave of a tunnel has left by now: its schedule goes by that.
    pub fn left(&mut self, now: Time, tunnel: TunnelId) {
        if let Some(tunnel) = self.tunnels.get_mut(&tunnel) {
            tunnel.left(now);
        }
    }

    /// When something is due: [`Endpoint::on_deadline`] and [`Endpoint::transmit`] are to be called then.
    pub fn deadline(&mut self, now: Time) -> Time {
        if !self.replies.is_empty() || self.strangers.values().any(|stranger| stranger.lane.busy) {
            return now;
        }
        let mut earliest = Time::NEVER;
        for tunnel in self.tunnels.values_mut() {
            earliest = earliest.min(tunnel.deadline(now));
        }
        let hellos = self.strangers.values().map(Stranger::deadline);
        earliest = hellos.fold(earliest, Time::min);
        let origin = self.origin;
        let strangers = self.strangers.values_mut().map(|stranger| &mut stranger.lane);
        let lanes = self.tunnels.values_mut().flat_map(|tunnel| tunnel.lanes.iter_mut().flatten());
        for lane in lanes.chain(strangers) {
            if let Some(at) = lane.quinn.poll_timeout() {
                let nanos = at.saturating_duration_since(origin).as_nanos();
                earliest = earliest.min(Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
            }
        }
        earliest.max(now)
    }

    /// Whether [`Endpoint::event`] has something, now or after the next [`Endpoint::transmit`].
    #[must_use]
    pub fn has_happened(&self) -> bool {
        !self.events.is_empty() || self.tunnels.values().any(|tunnel| !tunnel.events.is_empty())
    }

    /// The time has come, or more.
    pub fn on_deadline(&mut self, now: Time) {
        let clock = self.instant(now);
        let strangers = self.strangers.values_mut().map(|stranger| &mut stranger.lane);
        let lanes = self.tunnels.values_mut().flat_map(|tunnel| tunnel.lanes.iter_mut().flatten());
        let mut due = Vec::new();
        for lane in lanes.chain(strangers) {
            if lane.quinn.poll_timeout().is_some_and(|at| at <= clock) {
                lane.quinn.handle_timeout(clock);
                lane.busy = true;
                due.push(lane.handle);
            }
        }
        due.into_iter().for_each(|handle| self.settle(now, handle));
        self.lose_patience(now);
    }

    /// What happened, in order.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    // ---- connections

    fn lane(&mut self, handle: ConnectionHandle) -> Option<&mut Lane> {
        match self.lanes.get(&handle.0) {
            Some((id, nth)) => self.tunnels.get_mut(id)?.lanes[*nth].as_mut(),
            None => self.strangers.get_mut(&handle.0).map(|stranger| &mut stranger.lane),
        }
    }

    /// Takes note of what happened inside a connection.
    fn settle(&mut self, now: Time, handle: ConnectionHandle) {
        // one by one: what the endpoint answers is for the connection again
        while let Some(event) = self.lane(handle).and_then(|lane| lane.quinn.poll_endpoint_events())
        {
            let drained = event.is_drained();
            let answer = self.quinn.handle_event(handle, event);
            let Some(lane) = self.lane(handle) else { break };
            lane.drained |= drained;
            if let Some(answer) = answer {
                lane.quinn.handle_event(answer);
                lane.busy = true;
            }
        }
        let Some(lane) = self.lane(handle) else { return };
        lane.poll_events();
        match self.lanes.get(&handle.0).copied() {
            Some((id, _)) => self.attend(now, id),
            None => self.attend_stranger(now, handle),
        }
    }

    fn attend(&mut self, now: Time, id: TunnelId) {
        let clock = self.instant(now);
        let Some(tunnel) = self.tunnels.get_mut(&id) else { return };
        let lost = tunnel.lanes.iter().flatten().find_map(|lane| lane.lost.clone());
        if lost.is_none() {
            tunnel.listen(now, clock);
        }
        self.events.append(&mut tunnel.events);
        if let Some(lost) = lost {
            self.end(now, id, code::OTHER_LANE, words(&lost));
        } else if let Some(broken) = tunnel.broken.take() {
            self.end(now, id, code::PROTOCOL, broken);
        }
    }

    /// A tunnel ends; its connections are closed.
    fn end(&mut self, now: Time, id: TunnelId, code: u32, reason: String) {
        let clock = self.instant(now);
        let Some(mut tunnel) = self.tunnels.remove(&id) else { return };
        self.events.append(&mut tunnel.events);
        let breaker = tunnel.hold.breaker();
        if breaker.snapshot().trips > 0 {
            self.breakers.insert(tunnel.peer, breaker.clone());
        }
        let flows: Vec<FlowId> = tunnel.flows().collect();
        for mut lane in tunnel.lanes.into_iter().flatten() {
            let handle = lane.handle;
            self.lanes.remove(&handle.0);
            if lane.lost.is_none() {
                lane.close(clock, code, &reason);
            }
            if !lane.drained {
                lane.busy = true;
                lane.forget();
                let stranger = Stranger { lane, early: Vec::new(), closing: true, since: now };
                self.strangers.insert(handle.0, stranger);
            }
        }
        self.events.push_back(Event::Down { tunnel: id, peer: tunnel.peer, reason });
        self.events.extend(flows.into_iter().map(Event::Flow));
    }

    /// What there is to see.
    #[must_use]
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.tunnels.values().map(Tunnel::snapshot).collect()
    }

    /// Nothing is held for flows that are no more.
    #[cfg(test)]
    fn assert_balanced(&self) {
        self.tunnels.values().for_each(Tunnel::assert_balanced);
    }
}

/// Why a connection was lost, for people.
fn words(error: &ConnectionError) -> String {
    match error {
        ConnectionError::TimedOut => {
            "nothing was heard for 7 s: the peer is not there, or UDP does not pass".to_owned()
        }
        ConnectionError::Reset => "the peer was restarted".to_owned(),
        ConnectionError::ApplicationClosed(close) => {
            let reason = String::from_utf8_lossy(&close.reason);
            let reason: String = reason.chars().filter(|c| !c.is_control()).collect();
            format!("the peer ended it: {reason}")
        }
        ConnectionError::TransportError(error) if error.reason.contains("OtherCertificate") => {
            "the relay shows another certificate than the one in the invitation".to_owned()
        }
        ConnectionError::LocallyClosed => "it was ended here".to_owned(),
        other => other.to_string(),
    }
}
