//! Connections that belong to no tunnel yet.

use super::config::{STRANGER_WINDOW, quic_window, transport};
use super::lane::{Lane, LaneEvent, NO_DATAGRAMS};
use super::tunnel::Tunnel;
use super::{Endpoint, Event, Way, code};
use crate::core::ack_tap::AckTap;
use crate::frame::{Frame, Hello};
use crate::trust::{Fingerprint, fingerprint};
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::initial_rate::Attempt;
use ekiden_model::units::{Span, Time};
use quinn_proto::{Connection, ConnectionHandle, Incoming, ServerConfig};
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

#[derive(Debug)]
pub(super) struct PendingConnection {
    pub(super) lane: Lane,
    pub(super) early: Vec<LaneEvent>,
    pub(super) closing: bool,
    pub(super) since: Time,
}

impl PendingConnection {
    /// When it is closed unless it has sent HELLO.
    pub(super) fn deadline(&self) -> Time {
        if self.closing { Time::NEVER } else { self.since + PATIENCE }
    }
}

impl Endpoint {
    pub(super) fn meet(&mut self, now: Time, incoming: Incoming, way: Way) {
        let clock = self.instant(now);
        let mut reply = Vec::new();
        let pending = self.address.pending.load(Relaxed);
        if !self.listens || pending >= 2 * self.limits.tunnels {
            let transmit = self.quinn.refuse(incoming, &mut reply);
            return self.reply(way, reply, transmit.size);
        }
        let validated = incoming.remote_address_validated();
        // many are pending: it must validate its address first
        let attempt = match pending >= self.limits.tunnels && !validated {
            true => Attempt::Retry,
            false => locked(&self.address.initials).on_attempt(now, way.peer, validated),
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
        let ear = AckTap::default();
        let mut config = ServerConfig::with_crypto(self.credentials.server());
        let transport = transport(&self.limits, &ear, STRANGER_WINDOW.into());
        config.transport_config(Arc::new(transport));
        match self.quinn.accept(incoming, clock, &mut reply, Some(Arc::new(config))) {
            Ok((handle, connection)) => {
                let lane = Lane::new(handle, connection, ear);
                let pending =
                    PendingConnection { lane, early: Vec::new(), closing: false, since: now };
                self.insert_pending(handle, pending);
                self.settle(now, handle);
            }
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.reply(way, reply, transmit.size);
                }
            }
        }
    }

    pub(super) fn insert_pending(&mut self, handle: ConnectionHandle, pending: PendingConnection) {
        self.address.pending.fetch_add(1, Relaxed);
        self.pending.insert(handle.0, pending);
    }

    fn remove_pending(&mut self, handle: ConnectionHandle) -> Option<PendingConnection> {
        let removed = self.pending.remove(&handle.0)?;
        self.address.pending.fetch_sub(1, Relaxed);
        Some(removed)
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
            self.remove_pending(handle);
            return;
        }
        if pending.closing || !pending.lane.connected || pending.lane.lost.is_some() {
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
        if !self.peers.contains_key(&peer) {
            let invitation: [u8; 32] = Sha256::digest(&hello.secret).into();
            let Some(terms) = self.invited.remove(&invitation) else {
                let words = "your relay is not a peer of this one; its operator can invite it";
                return self.reject(now, handle, code::NOT_KNOWN, words);
            };
            self.peers.insert(peer, terms);
            self.events.push_back(Event::Joined { peer, invitation });
        }
        let Some(terms) = self.peers.get(&peer).copied() else { return };
        let same = |tunnel: &&Tunnel| {
            !tunnel.opener && tunnel.peer == peer && tunnel.session == hello.session
        };
        // a relay tries four addresses over UDP and TCP at once and keeps the first tunnel that is
        // up: none may end another, and those it abandons end by themselves
        let of_this_peer = self.address.memory.tunnels(peer);
        let nth = usize::from(hello.lane);
        let id = match self.tunnels.values().find(same) {
            Some(tunnel) if tunnel.lanes[nth].is_some() => {
                return self.reject(now, handle, code::PROTOCOL, "that lane is there already");
            }
            Some(tunnel) => tunnel.id,
            None if of_this_peer >= (self.limits.tunnels / 4).max(2) => {
                return self.reject(now, handle, code::NOT_KNOWN, "too many tunnels of yours");
            }
            None if self.address.tunnels.load(Relaxed) >= self.limits.tunnels => {
                return self.reject(now, handle, code::NOT_KNOWN, "too many tunnels");
            }
            None => {
                let id = self.new_id();
                let key = (id, peer, hello.session, false);
                let tunnel = self.new_tunnel(now, key, terms);
                self.insert_tunnel(id, tunnel);
                id
            }
        };
        let Some(PendingConnection { mut lane, early, .. }) = self.remove_pending(handle) else {
            return;
        };
        lane.known = true;
        lane.quinn.set_receive_window(quic_window(&self.limits));
        lane.busy = true;
        self.lanes.insert(handle.0, (id, nth));
        if let Some(tunnel) = self.tunnels.get_mut(&id) {
            tunnel.lanes[nth] = Some(lane);
            early.into_iter().for_each(|heard| tunnel.on_lane_event(now, nth, heard));
        }
        self.attend(now, id);
    }

    pub(super) fn close_silent(&mut self, now: Time) {
        let late = |(_, pending): &(&usize, &PendingConnection)| pending.deadline() <= now;
        let late: Vec<_> = self.pending.iter().filter(late).map(|(_, it)| it.lane.handle).collect();
        for handle in late {
            self.reject(now, handle, code::PROTOCOL, "no hello came in time");
        }
    }

    fn reject(&mut self, now: Time, handle: ConnectionHandle, code: u32, why: &str) {
        let clock = self.instant(now);
        if let Some(pending) = self.pending.get_mut(&handle.0) {
            pending.lane.close(clock, code, why);
            pending.closing = true;
            pending.early = Vec::new();
            pending.lane.forget();
        }
    }
}

/// Whether a datagram begins with an Initial packet of QUIC version 1 (RFC 9000 §17.2.2) or of a draft.
pub(super) fn is_initial(datagram: &[u8]) -> bool {
    matches!(datagram, [first, version @ ..] if first & 0xb0 == 0x80 && version.len() >= 4)
}

/// The fingerprint of the certificate the other side has shown.
fn certificate(connection: &Connection) -> Option<Fingerprint> {
    let identity = connection.crypto_session().peer_identity()?;
    let certificates = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    certificates.first().map(|certificate| fingerprint(certificate))
}
