//! Who comes and is not known yet: connections that belong to no tunnel.

use super::config::{STRANGER_WINDOW, quic_window, transport};
use super::controller::Ear;
use super::lane::{Heard, Lane};
use super::tunnel::Tunnel;
use super::{Endpoint, Event, code};
use crate::frame::{Frame, Hello};
use crate::trust::{Fingerprint, fingerprint};
use ekiden_model::units::Time;
use quinn_proto::{Connection, ConnectionHandle, Incoming, ServerConfig};
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::sync::Arc;

/// What a stranger may say before it is known who it is.
const EARLY: usize = 4_096;

#[derive(Debug)]
pub(super) struct Stranger {
    pub(super) lane: Lane,
    pub(super) early: Vec<Heard>,
    pub(super) closing: bool,
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
        let ear = Ear::default();
        let mut config = ServerConfig::with_crypto(self.credentials.server());
        let transport = transport(&self.limits, &ear, STRANGER_WINDOW.into());
        config.transport_config(Arc::new(transport));
        match self.quinn.accept(incoming, clock, &mut reply, Some(Arc::new(config))) {
            Ok((handle, connection)) => {
                let lane = Lane::new(handle, connection, ear);
                let stranger = Stranger { lane, early: Vec::new(), closing: false };
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
            None if stranger.early.len() > EARLY => {
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
        let nth = usize::from(hello.lane);
        let id = match self.tunnels.values().find(same) {
            Some(tunnel) if tunnel.lanes[nth].is_some() => {
                return self.send_away(now, handle, code::PROTOCOL, "that lane is there already");
            }
            Some(tunnel) => tunnel.id,
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
        lane.quinn.set_receive_window(quic_window(&self.limits));
        lane.busy = true;
        self.lanes.insert(handle.0, (id, nth));
        if let Some(tunnel) = self.tunnels.get_mut(&id) {
            tunnel.lanes[nth] = Some(lane);
            early.into_iter().for_each(|heard| tunnel.on_heard(now, nth, heard));
        }
        self.attend(now, id);
    }

    fn send_away(&mut self, now: Time, handle: ConnectionHandle, code: u32, why: &str) {
        let clock = self.instant(now);
        if let Some(stranger) = self.strangers.get_mut(&handle.0) {
            stranger.lane.close(clock, code, why);
            stranger.closing = true;
            stranger.early.clear();
        }
    }
}

/// The fingerprint of the certificate the other side has shown.
fn certificate(connection: &Connection) -> Option<Fingerprint> {
    let identity = connection.crypto_session().peer_identity()?;
    let certificates = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    certificates.first().map(|certificate| fingerprint(certificate))
}
