//! The protocol without socket or clock: given received datagrams and the time, it returns the
//! datagrams to send.
//!
//! ```text
//! connect(now, to, …)             a tunnel to a relay that invited this one
//! receive(now, way, datagram)     a datagram arrived
//! transmit(now, buf)              the next datagram that is due; call until there is none
//! left(now, tunnel)               the datagrams were sent, perhaps later than their `now`
//! deadline(now)                   when to call on_deadline and transmit again
//! on_deadline(now)
//! event()                         the next event: call after each of the above
//! admit, settle_join             who may open tunnels here
//! open, accept, refuse, room, write, end, read, answer, abort      flows
//! ```
//! `now` never decreases. A tunnel is two QUIC connections, its *lanes*, for interactive data and
//! for bulk. Each has its own DSCP, and a loss on one never delays the other. quinn-proto
//! retransmits, but never decides when a packet leaves. At each slot of
//! [`ekiden_model::control::pacing`] the interactive lane's own frames and retransmissions go
//! first, then an interactive flow's bytes, then the bulk lane's own, then a bulk flow's bytes. One
//! packet's worth is written and one datagram taken out, so nothing waits inside the library.
//! [`ekiden_model::control::rate_hold`] sets the rate and the bytes in flight.
//!
//! **Copies.** The first bytes of an interactive burst, and frames that open, answer and end a
//! flow, are sent again a little later as a datagram. Offsets let the receiver drop duplicates. A
//! lost keystroke is late by a sixteenth of a round trip, not by a whole one.
//!
//! **Memory.** Each flow has a credit, and so have all flows together; reading grants more. A flow
//! whose bytes nobody reads holds at most its window, and is abandoned when others need the memory.

mod ack_tap;
mod address;
mod config;
mod connections;
mod events;
mod flow;
#[cfg(any(test, feature = "fuzzing"))]
pub mod heard;
mod lane;
mod packet_queue;
mod pending_connections;
mod reassembly;
mod receive;
#[cfg(test)]
mod tests;
mod tunnel;

pub(crate) use crate::core::events::is_carrier;
pub use crate::core::events::{
    Event, FlowStatus, OutgoingDatagram, Read, Snapshot, TunnelEnd, Way,
};
pub use crate::trust::Fingerprint;
pub use config::{AdmittedPeer, Invited, Limits, Terms};
pub use flow::End;

use crate::core::ack_tap::AckTap;
use crate::core::pending_connections::PendingConnection;
pub(crate) use crate::core::pending_connections::{STRANGER, is_initial};
use crate::trust::Credentials;
use address::Address;
pub(crate) use address::{AddressThread, MOST_THREADS, Owners};
use bytes::{Bytes, BytesMut};
use config::{quic_window, transport};
use ekiden_linux::host::sync::locked;
use ekiden_model::control::rate_hold::Breaker;
use ekiden_model::units::Time;
use lane::{Lane, Polled};
use quinn_proto::{
    ClientConfig, ConnectionError, ConnectionHandle, DatagramEvent, EndpointConfig, ServerConfig,
};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tunnel::Tunnel;
pub(crate) use tunnel::peer_memory::PeersMemory;

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

/// Answers to strangers that wait to be sent.
const REPLIES: usize = 64;

/// One UDP socket's worth of tunnels.
#[derive(Debug)]
pub struct Endpoint {
    /// The instant of [`Time::ZERO`]: quinn-proto counts in instants.
    origin: Instant,
    quinn: quinn_proto::Endpoint,
    credentials: Credentials,
    token_key: Arc<ring::hkdf::Prk>,
    limits: Limits,
    listens: bool,
    /// Whether each lane's packets have a DSCP of their own.
    marked: [bool; 2],
    tunnels: BTreeMap<TunnelId, Tunnel>,
    next_tunnel: u64,
    /// Connections of no tunnel: not identified yet, or being closed.
    pending: BTreeMap<usize, PendingConnection>,
    /// Initials of unknown addresses, met one at a time after what established connections sent.
    strangers: VecDeque<(Way, BytesMut)>,
    /// Its place among the threads of its address, and what it shares with the others.
    thread: AddressThread,
    address: Arc<Address>,
    /// The tunnel and lane of a connection.
    lanes: HashMap<usize, (TunnelId, usize)>,
    /// Connections that datagrams came for, and that are still to be looked at.
    touched: Vec<ConnectionHandle>,
    peers: BTreeMap<Fingerprint, Terms>,
    invited: BTreeMap<[u8; 32], Terms>,
    /// Invitations that were shown, and by whom, while it is not known whether that relay is kept.
    joining: BTreeMap<[u8; 32], Fingerprint>,
    replies: VecDeque<(Way, Vec<u8>)>,
    events: VecDeque<Event>,
    /// The tunnel that is asked first for a datagram.
    turn: TunnelId,
}

/// Error codes in CONNECTION_CLOSE (`docs/book/src/design/protocol.md`).
mod code {
    pub(super) const PROTOCOL: u32 = 1;
    pub(super) const NOT_KNOWN: u32 = 2;
    pub(super) const OTHER_LANE: u32 = 3;
    pub(super) const CLOSED: u32 = 4;
    pub(super) const REVOKED: u32 = 5;
}

/// QUIC without connections, for one of the threads of an address.
fn quinn(
    credentials: &Credentials,
    limits: &Limits,
    (listens, seed): (bool, Option<[u8; 32]>),
    thread: AddressThread,
) -> quinn_proto::Endpoint {
    let mut config = EndpointConfig::new(credentials.reset_key(&thread.address.salt));
    // identifiers that a restarted relay knows for its own: only then does it answer with a reset
    let own = credentials.clone();
    config.cid_generator(move || Box::new(thread.owners(&own)));
    // cannot fail: it is above 1,200 (RFC 9000 §18.2)
    let _ = config.max_udp_payload_size(limits.datagram.max(1_472));
    let server = || ServerConfig::new(credentials.server(), credentials.token_key());
    let server = listens.then(|| Arc::new(server()));
    quinn_proto::Endpoint::new(Arc::new(config), server, true, seed)
}

/// Initials that wait to be met; an eighth of a second of them at the rate of all.
const STRANGERS: usize = 64;

impl Endpoint {
    /// Without peers. With `listens` they may open tunnels here, and the relay listens at no other address. `origin`
    /// is the instant of [`Time::ZERO`]; `seed` makes identifiers repeatable, for tests alone.
    pub fn new(
        credentials: Credentials,
        limits: Limits,
        listens: bool,
        origin: Instant,
        seed: Option<[u8; 32]>,
    ) -> Self {
        let alone = AddressThread::alone(&limits, listens);
        Self::of_thread(credentials, limits, (listens, origin, seed), alone)
    }

    /// The same, for one of the threads that listen on an address.
    pub(crate) fn of_thread(
        credentials: Credentials,
        limits: Limits,
        (listens, origin, seed): (bool, Instant, Option<[u8; 32]>),
        thread: AddressThread,
    ) -> Self {
        let address = Arc::clone(&thread.address);
        Self {
            origin,
            quinn: quinn(&credentials, &limits, (listens, seed), thread.clone()),
            token_key: credentials.token_key(),
            credentials,
            limits,
            listens,
            marked: [true; 2],
            tunnels: BTreeMap::new(),
            next_tunnel: 0,
            pending: BTreeMap::new(),
            strangers: VecDeque::new(),
            thread,
            address,
            lanes: HashMap::new(),
            touched: Vec::new(),
            peers: BTreeMap::new(),
            invited: BTreeMap::new(),
            joining: BTreeMap::new(),
            replies: VecDeque::new(),
            events: VecDeque::new(),
            turn: TunnelId(0),
        }
    }

    /// Sets the DSCP of each lane, before there are tunnels: one of 0 leaves its packets unmarked.
    pub(crate) fn set_dscp(&mut self, dscp: [u8; 2]) {
        self.marked = dscp.map(|dscp| dscp != 0);
    }

    fn instant(&self, now: Time) -> Instant {
        self.origin + Duration::from_nanos(now.as_nanos())
    }

    /// Sets the peers that may open tunnels here. Tunnels of others end.
    pub fn admit(&mut self, now: Time, peers: &[AdmittedPeer], invited: &[Invited]) {
        self.peers = peers.iter().map(|peer| (peer.fingerprint, peer.terms)).collect();
        self.invited = invited.iter().map(|invited| (invited.secret, invited.terms)).collect();
        let mut breakers = locked(&self.address.breakers);
        breakers.retain(|peer, _| !self.listens || self.peers.contains_key(peer));
        drop(breakers);
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
        self.on_admitted(now);
    }

    /// Starts a tunnel to the relay at `to` with this certificate; `secret` is the invitation's.
    /// [`Event::Up`] or [`Event::Down`] follows. A `hasty` tunnel is up before it is known whether
    /// the relay accepts this one, which saves a round trip. Fails where the address cannot be
    /// used.
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
        let mut tunnel = self.new_tunnel(now, (id, peer, session, true), terms, to);
        tunnel.secret = secret;
        tunnel.hasty = hasty;
        let clock = self.instant(now);
        for nth in 0..2 {
            let ear = AckTap::default();
            let tls = self.credentials.client(peer);
            let tls = tls.map_err(|error| CannotConnect(error.to_string()))?;
            let mut config = ClientConfig::new(tls);
            let window = quic_window(&self.limits).into_inner();
            config.transport_config(Arc::new(transport(&self.limits, &ear, window)));
            // the name is not checked, the fingerprint is
            let (handle, connection) =
                self.quinn.connect(clock, config, to, "relay.ekiden").map_err(|error| {
                    CannotConnect(format!("cannot begin a tunnel to {to}: {error}"))
                })?;
            let mut lane = Lane::new(handle, connection, ear);
            lane.known = true;
            tunnel.set_lane(now, nth, lane);
        }
        let lanes = tunnel.lanes.iter().flatten().enumerate();
        self.lanes.extend(lanes.map(|(nth, lane)| (lane.handle.0, (id, nth))));
        self.insert_tunnel(id, tunnel);
        Ok(id)
    }

    fn insert_tunnel(&mut self, id: TunnelId, tunnel: Tunnel) {
        self.address.tunnels.fetch_add(1, Relaxed);
        self.tunnels.insert(id, tunnel);
    }

    fn new_tunnel(
        &self,
        now: Time,
        key: (TunnelId, Fingerprint, u64, bool),
        terms: Terms,
        at: SocketAddr,
    ) -> Tunnel {
        let memory = self.address.memory.tunnel(key.1);
        let mut tunnel = Tunnel::new(now, key, terms, (self.limits, memory));
        tunnel.set_marked(self.marked);
        if let Some(breaker) = self.address.breaker(now, key.1, at) {
            *tunnel.hold.breaker() = breaker;
        }
        tunnel
    }

    /// The circuit breaker of the path to a peer, if it ever opened: for the endpoint that connects
    /// next.
    pub fn breaker(&self, peer: Fingerprint) -> Option<Breaker> {
        locked(&self.address.breakers).get(&peer).cloned()
    }

    /// Takes over another endpoint's knowledge of the path to a peer; before [`Endpoint::connect`].
    pub fn set_breaker(&mut self, peer: Fingerprint, breaker: Breaker) {
        locked(&self.address.breakers).insert(peer, breaker);
    }

    fn new_id(&mut self) -> TunnelId {
        self.next_tunnel += 1;
        TunnelId(self.next_tunnel)
    }

    /// Ends a tunnel.
    pub fn close(&mut self, now: Time, tunnel: TunnelId, reason: &str) {
        self.end(now, tunnel, code::CLOSED, reason.to_owned());
    }

    /// The tunnel that goes to this address, if one does that is up.
    pub fn tunnel_at(&self, at: SocketAddr) -> Option<TunnelId> {
        let lanes = |tunnel: &Tunnel| {
            tunnel.lanes.iter().flatten().any(|lane| lane.quinn.remote_address() == at)
        };
        self.tunnels.values().find(|tunnel| tunnel.up && lanes(tunnel)).map(|tunnel| tunnel.id)
    }

    /// The next datagram that is due, into `buf`.
    pub fn transmit(&mut self, now: Time, buf: &mut Vec<u8>) -> Option<OutgoingDatagram> {
        if let Some((way, bytes)) = self.replies.pop_front() {
            buf.clear();
            buf.extend_from_slice(&bytes);
            let (to, from, size) = (way.peer, way.here, bytes.len());
            return Some(OutgoingDatagram { to, from, mark: None, size, tunnel: None });
        }
        let clock = self.instant(now);
        for stranger in self.pending.values_mut().filter(|stranger| stranger.lane.busy) {
            if let Some(polled) = stranger.lane.poll_transmit(clock, buf) {
                let Polled { to, from, size, .. } = polled;
                return Some(OutgoingDatagram { to, from, mark: None, size, tunnel: None });
            }
        }
        // each tunnel has its own schedule; the first one asked rotates
        let mut from = self.turn;
        for _ in 0..self.tunnels.len() {
            let next = self.tunnels.range(from..).next().or_else(|| self.tunnels.first_key_value());
            let Some(id) = next.map(|(id, _)| *id) else { break };
            from = TunnelId(id.0 + 1);
            let Some(tunnel) = self.tunnels.get_mut(&id) else { continue };
            let out = tunnel.transmit(now, clock, buf);
            self.events.append(&mut tunnel.events);
            if let Some(broken) = tunnel.broken.take() {
                self.end(now, id, code::PROTOCOL, broken);
            }
            if out.is_some() {
                self.turn = from;
                return out;
            }
        }
        None
    }

    /// A tunnel's datagrams from [`Endpoint::transmit`] were sent now; its schedule continues from
    /// here.
    pub fn left(&mut self, now: Time, tunnel: TunnelId) {
        if let Some(tunnel) = self.tunnels.get_mut(&tunnel) {
            tunnel.left(now);
        }
    }

    /// When something is due: [`Endpoint::on_deadline`] and [`Endpoint::transmit`] are to be called then.
    pub fn deadline(&mut self, now: Time) -> Time {
        if !self.strangers.is_empty() || !self.replies.is_empty() {
            return now;
        }
        if self.pending.values().any(|stranger| stranger.lane.busy) {
            return now;
        }
        let mut earliest = Time::NEVER;
        for tunnel in self.tunnels.values_mut() {
            earliest = earliest.min(tunnel.deadline(now));
        }
        let hellos = self.pending.values().map(PendingConnection::deadline);
        earliest = hellos.fold(earliest, Time::min);
        let origin = self.origin;
        let pending = self.pending.values_mut().map(|stranger| &mut stranger.lane);
        let lanes = self.tunnels.values_mut().flat_map(|tunnel| tunnel.lanes.iter_mut().flatten());
        for lane in lanes.chain(pending) {
            if let Some(at) = lane.quinn.poll_timeout() {
                let nanos = at.saturating_duration_since(origin).as_nanos();
                earliest = earliest.min(Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
            }
        }
        earliest.max(now)
    }

    /// Whether [`Endpoint::event`] has something, now or after the next [`Endpoint::transmit`].
    pub fn has_happened(&self) -> bool {
        !self.events.is_empty() || self.tunnels.values().any(|tunnel| !tunnel.events.is_empty())
    }

    /// The time has come, or more.
    pub fn on_deadline(&mut self, now: Time) {
        let clock = self.instant(now);
        let pending = self.pending.values_mut().map(|stranger| &mut stranger.lane);
        let lanes = self.tunnels.values_mut().flat_map(|tunnel| tunnel.lanes.iter_mut().flatten());
        let mut due = Vec::new();
        for lane in lanes.chain(pending) {
            if lane.quinn.poll_timeout().is_some_and(|at| at <= clock) {
                lane.quinn.handle_timeout(clock);
                lane.busy = true;
                due.push(lane.handle);
            }
        }
        due.into_iter().for_each(|handle| self.settle(now, handle));
        self.probe_and_close(now);
        self.close_silent(now);
        // one handshake between two looks at the socket: established connections wait for no more
        if let Some((way, datagram)) = self.strangers.pop_front() {
            self.handle(now, way, datagram);
            self.settle_touched(now);
        }
    }
}

/// Both connections of a tunnel are silent.
const UNREACHABLE: &str = "no packet arrived for 7 s: the peer is unreachable, or UDP is blocked";

fn words(error: &ConnectionError) -> String {
    match error {
        // silence of both is noticed long before
        ConnectionError::TimedOut => {
            "no packet of one of the tunnel's two connections arrived for 120 s, while the other works".to_owned()
        }
        ConnectionError::Reset => events::RESTARTED.to_owned(),
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
