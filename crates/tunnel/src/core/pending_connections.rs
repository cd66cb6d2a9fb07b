//! Connections that belong to no tunnel yet.

use super::config::{STRANGER_WINDOW, quic_window, transport};
use super::lane::{Lane, LaneEvent, NO_DATAGRAMS};
use super::tunnel::Tunnel;
use super::{Endpoint, Event, Way, code};
use crate::core::ack_tap::AckTap;
use crate::core::address::Place;
use crate::frame::{Frame, Hello};
use crate::trust::{Fingerprint, fingerprint};
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::initial_rate::Attempt;
use ekiden_model::units::{Span, Time};
use quinn_proto::{Connection, ConnectionHandle, EndpointEvent, Incoming, ServerConfig};
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Frames and datagrams that a pending connection may send before it is identified.
const EARLY: usize = 4_096;
/// Time for a connection to send HELLO. Over 600 ms with 15 % loss one handshake in four takes
/// longer than 5 s, one in a hundred longer than 9 s (in the simulation).
const PATIENCE: Span = Span::from_secs(10);

/// To relays that are not known.
pub(crate) const STRANGER: &str =
    "your relay is not a peer of this one; its operator can invite it";

/// To a peer that shows an invitation which nobody has used: it would stay good for whoever has read it.
const PEER_ALREADY: &str = "your relay is a peer of this one already; its operator can revoke it, or invite it again with --renew";

/// To a lane whose tunnel is another thread's: the kernel chooses the thread by the sender's address.
const ELSEWHERE: &str =
    "the two connections of the tunnel came from two addresses; connecting again may help";

#[derive(Debug)]
pub(super) struct PendingConnection {
    pub(super) lane: Lane,
    pub(super) early: Vec<LaneEvent>,
    /// The invitation that it showed, while it is not known whether its relay is kept.
    joins: Option<[u8; 32]>,
    /// `None` while it is being closed.
    place: Option<Place>,
    pub(super) since: Time,
}

impl PendingConnection {
    /// One that is being closed.
    pub(super) const fn closing(now: Time, lane: Lane) -> Self {
        Self { lane, early: Vec::new(), joins: None, place: None, since: now }
    }

    /// When it is closed unless it has sent HELLO.
    pub(super) fn deadline(&self) -> Time {
        if self.place.is_some() { self.since + PATIENCE } else { Time::NEVER }
    }

    fn gives_way(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.is_lost.load(Relaxed))
    }
}

impl Endpoint {
    pub(super) fn meet(&mut self, now: Time, incoming: Incoming, way: Way) {
        let clock = self.instant(now);
        let mut reply = Vec::new();
        if !self.listens {
            let transmit = self.quinn.refuse(incoming, &mut reply);
            return self.reply(way, reply, transmit.size);
        }
        let validated = incoming.remote_address_validated();
        let attempt = match !validated && self.address.wants_proof(way.source()) {
            true => Attempt::Retry,
            false => locked(&self.address.initials).on_attempt(now, way.source(), validated),
        };
        if attempt == Attempt::Drop {
            return self.quinn.ignore(incoming);
        }
        if attempt == Attempt::Retry {
            if let Ok(transmit) = self.quinn.retry(incoming, &mut reply) {
                self.reply(way, reply, transmit.size);
            }
            return;
        }
        let Some(place) = self.address.place(now, way.source()) else {
            let transmit = self.quinn.refuse(incoming, &mut reply);
            return self.reply(way, reply, transmit.size);
        };
        let ear = AckTap::default();
        let mut config = ServerConfig::with_crypto(self.credentials.server());
        let transport = transport(&self.limits, &ear, STRANGER_WINDOW.into());
        config.transport_config(Arc::new(transport));
        match self.quinn.accept(incoming, clock, &mut reply, Some(Arc::new(config))) {
            Ok((handle, connection)) => {
                let lane = Lane::new(handle, connection, ear);
                let (early, place) = (Vec::new(), Some(place));
                let pending = PendingConnection { lane, early, joins: None, place, since: now };
                self.pending.insert(handle.0, pending);
                self.settle(now, handle);
            }
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.reply(way, reply, transmit.size);
                }
            }
        }
    }

    /// Whether a connection goes to this address.
    pub(super) fn is_known(&self, from: SocketAddr) -> bool {
        let tunnels = self.tunnels.values().flat_map(|tunnel| tunnel.lanes.iter().flatten());
        let mut lanes = self.pending.values().map(|pending| &pending.lane).chain(tunnels);
        lanes.any(|lane| lane.quinn.remote_address() == from)
    }

    pub(super) fn poll_pending(&mut self, now: Time, handle: ConnectionHandle) {
        let Some(pending) = self.pending.get_mut(&handle.0) else { return };
        if pending.lane.drained {
            self.pending.remove(&handle.0);
            return;
        }
        if pending.place.is_none() || !pending.lane.connected || pending.lane.lost.is_some() {
            return;
        }
        if pending.lane.lacks_datagrams() {
            return self.reject(now, handle, code::PROTOCOL, NO_DATAGRAMS);
        }
        match pending.lane.poll_frames() {
            Ok(heard) => pending.early.extend(heard),
            Err(_) => return self.reject(now, handle, code::PROTOCOL, "that is no frame"),
        }
        let hello = pending.early.iter().find_map(|heard| match heard {
            LaneEvent::Frame(_, Frame::Hello(hello)) => Some(hello.clone()),
            _ => None,
        });
        match hello {
            Some(hello) => self.identify(now, handle, &hello),
            None if pending.early.len() > EARLY || pending.lane.said_too_much() => {
                self.reject(now, handle, code::PROTOCOL, "a hello comes first");
            }
            None => {}
        }
    }

    fn identify(&mut self, now: Time, handle: ConnectionHandle, hello: &Hello) {
        let Some(pending) = self.pending.get_mut(&handle.0) else { return };
        let Some(peer) = certificate(&pending.lane.quinn) else {
            return self.reject(now, handle, code::NOT_KNOWN, "no certificate was shown");
        };
        let invitation: [u8; 32] = Sha256::digest(&hello.secret).into();
        if !self.peers.contains_key(&peer) {
            // each of its connections shows it
            let by_another = self.joining.get(&invitation).is_some_and(|by| *by != peer);
            if by_another || !self.invited.contains_key(&invitation) {
                return self.reject(now, handle, code::NOT_KNOWN, STRANGER);
            }
            if pending.early.len() > EARLY || pending.lane.said_too_much() {
                return self.reject(now, handle, code::PROTOCOL, "too much before it is known");
            }
            pending.joins = Some(invitation);
            if self.joining.insert(invitation, peer).is_none() {
                self.events.push_back(Event::Joining { peer, invitation });
            }
            return;
        }
        if self.invited.contains_key(&invitation) {
            return self.reject(now, handle, code::NOT_KNOWN, PEER_ALREADY);
        }
        let Some(terms) = self.peers.get(&peer).copied() else { return };
        let at = pending.lane.quinn.remote_address();
        let same = |tunnel: &&Tunnel| {
            !tunnel.opener && tunnel.peer == peer && tunnel.session == hello.session
        };
        // a relay tries four addresses over UDP and TCP at once and keeps the first tunnel that is
        // up: none may end another, and those it abandons end by themselves
        let of_this_peer = self.address.memory.tunnels(peer);
        // where others have taken all places: one that is lost and not given up yet, and the one after it
        let full = self.address.tunnels.load(Relaxed) >= self.limits.tunnels;
        let most = if full { 2 } else { (self.limits.tunnels / 4).max(2) };
        let nth = usize::from(hello.lane);
        let id = match self.tunnels.values().find(same) {
            Some(tunnel) if tunnel.lanes[nth].is_some() => {
                return self.reject(now, handle, code::PROTOCOL, "that lane is there already");
            }
            Some(tunnel) => tunnel.id,
            None if of_this_peer >= most => {
                return self.reject(now, handle, code::NOT_KNOWN, "too many tunnels of yours");
            }
            None => {
                let id = self.new_id();
                let key = (id, peer, hello.session, false);
                let tunnel = self.new_tunnel(now, key, terms, at);
                if !self.address.take_session((peer, hello.session), &tunnel.alive) {
                    return self.reject(now, handle, code::OTHER_LANE, ELSEWHERE);
                }
                self.insert_tunnel(id, tunnel);
                id
            }
        };
        let Some(pending) = self.pending.remove(&handle.0) else { return };
        let PendingConnection { mut lane, early, place, .. } = pending;
        place.into_iter().for_each(|place| place.identified(now));
        lane.known = true;
        lane.quinn.set_receive_window(quic_window(&self.limits));
        lane.busy = true;
        self.lanes.insert(handle.0, (id, nth));
        if let Some(tunnel) = self.tunnels.get_mut(&id) {
            tunnel.set_lane(now, nth, lane);
            early.into_iter().for_each(|heard| tunnel.on_lane_event(now, nth, heard));
        }
        self.attend(now, id);
    }

    /// The answer to [`Event::Joining`]: the relay is kept as a peer. Errors: it is not, for this reason in words, and
    /// the invitation stays good.
    pub fn settle_join(&mut self, now: Time, invitation: [u8; 32], kept: Result<(), &str>) {
        let Some(peer) = self.joining.remove(&invitation) else { return };
        let waiting = self.waiting(|shown| shown == invitation);
        match kept {
            Ok(()) => {
                let terms = self.invited.remove(&invitation);
                self.peers.extend(terms.map(|terms| (peer, terms)));
                waiting.into_iter().for_each(|handle| self.poll_pending(now, handle));
            }
            Err(why) => {
                for handle in waiting {
                    self.reject(now, handle, code::NOT_KNOWN, why);
                }
            }
        }
    }

    /// Other peers and invitations are known: those that wait are looked at again.
    pub(super) fn on_admitted(&mut self, now: Time) {
        self.joining.retain(|invitation, _| self.invited.contains_key(invitation));
        let waiting = self.waiting(|_| true);
        waiting.into_iter().for_each(|handle| self.poll_pending(now, handle));
    }

    /// Connections that showed such an invitation and wait.
    fn waiting(&self, is_such: impl Fn([u8; 32]) -> bool) -> Vec<ConnectionHandle> {
        let waits = |pending: &&PendingConnection| pending.joins.is_some_and(&is_such);
        self.pending.values().filter(waits).map(|pending| pending.lane.handle).collect()
    }

    pub(super) fn close_silent(&mut self, now: Time) {
        let late = |(_, pending): &(&usize, &PendingConnection)| pending.deadline() <= now;
        let late: Vec<_> = self.pending.iter().filter(late).map(|(_, it)| it.lane.handle).collect();
        for handle in late {
            self.reject(now, handle, code::PROTOCOL, "no hello came in time");
        }
        let gives_way = |(_, pending): &(&usize, &PendingConnection)| pending.gives_way();
        let given: Vec<_> =
            self.pending.iter().filter(gives_way).map(|(_, it)| it.lane.handle).collect();
        for handle in given {
            self.reject(now, handle, code::NOT_KNOWN, "too many connections");
        }
        self.forget_closing();
    }

    fn reject(&mut self, now: Time, handle: ConnectionHandle, code: u32, why: &str) {
        let clock = self.instant(now);
        if let Some(pending) = self.pending.get_mut(&handle.0) {
            pending.lane.close(clock, code, why);
            pending.place = None;
            pending.joins = None;
            pending.early = Vec::new();
            pending.lane.forget();
        }
        self.forget_closing();
    }

    /// Forgets the oldest of those that are being closed where they are many, or keep much and have said so. QUIC would
    /// answer them a little longer (RFC 9000 §10.2): three probe time-outs, which a peer can make a minute long. A late
    /// packet gets a stateless reset then.
    pub(super) fn forget_closing(&mut self) {
        let closing = self.pending.values().filter(|pending| pending.place.is_none());
        let (mut count, mut kept) = closing
            .clone()
            .fold((0_u64, 0), |(count, kept), closing| (count + 1, kept + closing.lane.keeps()));
        let (most, most_kept) = (self.limits.pending(), self.limits.closing());
        if count <= most && kept <= most_kept {
            return;
        }
        let mut oldest: Vec<_> = closing
            .map(|PendingConnection { lane, since, .. }| {
                (*since, lane.handle, lane.keeps(), lane.busy)
            })
            .collect();
        oldest.sort_unstable_by_key(|(since, ..)| *since);
        for (_, handle, keeps, busy) in oldest {
            if count > most || kept > most_kept && !busy {
                (count, kept) = (count - 1, kept - keeps);
                self.pending.remove(&handle.0);
                self.quinn.handle_event(handle, EndpointEvent::drained());
            }
        }
    }
}

/// Whether a datagram begins with an Initial packet of QUIC version 1 (RFC 9000 §17.2.2) or of a draft.
pub(crate) fn is_initial(datagram: &[u8]) -> bool {
    matches!(datagram, [first, version @ ..] if first & 0xb0 == 0x80 && version.len() >= 4)
}

/// The fingerprint of the certificate the other side has shown.
fn certificate(connection: &Connection) -> Option<Fingerprint> {
    let identity = connection.crypto_session().peer_identity()?;
    let certificates = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    certificates.first().map(|certificate| fingerprint(certificate))
}
