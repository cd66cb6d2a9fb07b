//! Who comes and is not known yet: connections that belong to no tunnel.

use super::config::{STRANGER_WINDOW, quic_window, transport};
use super::controller::Ear;
use super::lane::{Heard, Lane, NO_DATAGRAMS};
use super::tunnel::Tunnel;
use super::{Endpoint, Event, code};
use crate::frame::{Frame, Hello};
use crate::trust::{Fingerprint, fingerprint};
use ekiden_model::units::{Span, Time};
use quinn_proto::{Connection, ConnectionHandle, Incoming, ServerConfig};
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::sync::Arc;

/// Frames and datagrams a stranger may say before it is known who it is.
const EARLY: usize = 4_096;
/// A stranger says hello within so long. Over 600 ms with 15 % loss one handshake of four takes longer than 5 s, one of
/// a hundred longer than 9 (on virtual time).
const PATIENCE: Span = Span::from_secs(10);

#[derive(Debug)]
pub(super) struct Stranger {
    pub(super) lane: Lane,
    pub(super) early: Vec<Heard>,
    pub(super) closing: bool,
    /// When it came.
    pub(super) since: Time,
}

impl Stranger {
    /// When it is sent away if it has not said hello.
    pub(super) fn deadline(&self) -> Time {
        if self.closing { Time::NEVER } else { self.since + PATIENCE }
    }
}

impl Endpoint {
    pub(super) fn meet(&mut self, now: Time, incoming: Incoming, from: SocketAddr) {
        let clock = self.instant(now);
        let mut reply = Vec::new();
        if !self.listens || self.strangers.len() >= 2 * self.limits.tunnels {
            let transmit = self.quinn.refuse(incoming, &mut reply);
            reply.truncate(transmit.size);
            return self.replies.push_back((from, reply));
        }
        // many are here already: it has to show first that it is where it says
        if self.strangers.len() >= self.limits.tunnels && !incoming.remote_address_validated() {
            if let Ok(transmit) = self.quinn.retry(incoming, &mut reply) {
                reply.truncate(transmit.size);
                self.replies.push_back((transmit.destination, reply));
            }
            return;
        }
        let ear = Ear::default();
        let mut config = ServerConfig::with_crypto(self.credentials.server());
        let transport = transport(&self.limits, &ear, STRANGER_WINDOW.into());
        config.transport_config(Arc::new(transport));
        match self.quinn.accept(incoming, clock, &mut reply, Some(Arc::new(config))) {
            Ok((handle, connection)) => {
                let lane = Lane::new(handle, connection, ear);
                let stranger = Stranger { lane, early: Vec::new(), closing: false, since: now };
                self.strangers.insert(handle.0, stranger);
                self.settle(now, handle);
            }
            Err(error) => {
                if let Some(transmit) = error.response {
                    reply.truncate(transmit.size);
                    self.replies.push_back((transmit.destination, reply));
                }
            }
        }
    }

    pub(super) fn attend_stranger(&mut self, now: Time, handle: ConnectionHandle) {
        let Some(stranger) = self.strangers.get_mut(&handle.0) else { return };
        if stranger.lane.drained {
            self.strangers.remove(&handle.0);
            return;
        }
        if stranger.closing || !stranger.lane.connected || stranger.lane.lost.is_some() {
            return;
        }
        if stranger.lane.deaf() {
            return self.send_away(now, handle, code::PROTOCOL, NO_DATAGRAMS);
        }
        match stranger.lane.hear() {
            Ok(heard) => stranger.early.extend(heard),
            Err(_) => return self.send_away(now, handle, code::PROTOCOL, "that is no frame"),
        }
        let hello = stranger.early.iter().find_map(|heard| match heard {
            Heard::Frame(_, Frame::Hello(hello)) => Some(hello.clone()),
            _ => None,
        });
        match hello {
            Some(hello) => self.recognise(now, handle, &hello),
            None if stranger.early.len() > EARLY || stranger.lane.said_too_much() => {
                self.send_away(now, handle, code::PROTOCOL, "a hello comes first");
            }
            None => {}
        }
    }

    /// A stranger has said hello.
    fn recognise(&mut self, now: Time, handle: ConnectionHandle, hello: &Hello) {
        let Some(stranger) = self.strangers.get_mut(&handle.0) else { return };
        let Some(peer) = certificate(&stranger.lane.quinn) else {
            return self.send_away(now, handle, code::NOT_KNOWN, "no certificate was shown");
        };
        if !self.peers.contains_key(&peer) {
            let invitation: [u8; 32] = Sha256::digest(&hello.secret).into();
            let Some(terms) = self.invited.remove(&invitation) else {
                let words = "this relay does not know yours; its operator can invite it";
                return self.send_away(now, handle, code::NOT_KNOWN, words);
            };
            self.peers.insert(peer, terms);
            self.events.push_back(Event::Joined { peer, invitation });
        }
        let Some(terms) = self.peers.get(&peer).copied() else { return };
        let same = |tunnel: &&Tunnel| {
            !tunnel.opener && tunnel.peer == peer && tunnel.session == hello.session
        };
        // a relay tries up to four addresses over UDP and TCP at once and keeps the tunnel that is up first: so
        // several are no mistake, none of them may end another, and those it has lost go by themselves
        let theirs = |tunnel: &&Tunnel| !tunnel.opener && tunnel.peer == peer;
        let of_this_peer = self.tunnels.values().filter(theirs).count();
        let nth = usize::from(hello.lane);
        let id = match self.tunnels.values().find(same) {
            Some(tunnel) if tunnel.lanes[nth].is_some() => {
                return self.send_away(now, handle, code::PROTOCOL, "that lane is there already");
            }
            Some(tunnel) => tunnel.id,
            None if of_this_peer >= (self.limits.tunnels / 4).max(2) => {
                return self.send_away(now, handle, code::NOT_KNOWN, "too many tunnels of yours");
            }
            None if self.tunnels.len() >= self.limits.tunnels => {
                return self.send_away(now, handle, code::NOT_KNOWN, "too many tunnels");
            }
            None => {
                let id = self.new_id();
                let key = (id, peer, hello.session, false);
                let tunnel = self.new_tunnel(now, key, terms);
                self.tunnels.insert(id, tunnel);
                id
            }
        };
        let Some(Stranger { mut lane, early, .. }) = self.strangers.remove(&handle.0) else {
            return;
        };
        lane.known = true;
        lane.quinn.set_receive_window(quic_window(&self.limits));
        lane.busy = true;
        self.lanes.insert(handle.0, (id, nth));
        if let Some(tunnel) = self.tunnels.get_mut(&id) {
            tunnel.lanes[nth] = Some(lane);
            early.into_iter().for_each(|heard| tunnel.on_heard(now, nth, heard));
        }
        self.attend(now, id);
    }

    /// Sends those away who have not said hello in time.
    pub(super) fn lose_patience(&mut self, now: Time) {
        let late = |(_, stranger): &(&usize, &Stranger)| stranger.deadline() <= now;
        let late: Vec<_> =
            self.strangers.iter().filter(late).map(|(_, it)| it.lane.handle).collect();
        for handle in late {
            self.send_away(now, handle, code::PROTOCOL, "no hello came in time");
        }
    }

    fn send_away(&mut self, now: Time, handle: ConnectionHandle, code: u32, why: &str) {
        let clock = self.instant(now);
        if let Some(stranger) = self.strangers.get_mut(&handle.0) {
            stranger.lane.close(clock, code, why);
            stranger.closing = true;
            stranger.early = Vec::new();
            stranger.lane.forget();
        }
    }
}

/// The fingerprint of the certificate the other side has shown.
fn certificate(connection: &Connection) -> Option<Fingerprint> {
    let identity = connection.crypto_session().peer_identity()?;
    let certificates = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    certificates.first().map(|certificate| fingerprint(certificate))
}
