//! Datagrams that came, given to their connections.

use super::*;
use crate::frame::number;
use quinn_proto::crypto::HandshakeTokenKey;
use ring::hkdf;
use std::net::IpAddr;

/// Bytes of the shortest datagram that may begin a connection (RFC 9000 §14.1).
const LEAST_INITIAL: usize = 1_200;

/// Tokens of this relay are shorter.
const LONGEST_TOKEN: usize = 128;

impl Endpoint {
    /// A datagram came. An Initial of an unknown address waits until [`Endpoint::on_deadline`], or is dropped where
    /// there are too many (`docs/book/src/design/protocol.md`).
    pub fn receive(&mut self, now: Time, way: impl Into<Way>, datagram: BytesMut) {
        self.receive_all(now, [(way.into(), datagram)]);
    }

    /// Several came: what they brought is looked at once for each connection, which costs less.
    pub fn receive_all(&mut self, now: Time, datagrams: impl IntoIterator<Item = (Way, BytesMut)>) {
        for (way, datagram) in datagrams {
            self.take(now, way, datagram);
        }
        self.settle_touched(now);
    }

    fn take(&mut self, now: Time, way: Way, datagram: BytesMut) {
        if !self.listens || !is_initial(&datagram) {
            return self.handle(now, way, datagram);
        }
        let known = self.is_known(way.peer);
        // QUIC drops it as well, but too late: it would have used up the rates of others. Of a known address the rest of
        // the datagram may be for its connection
        if !known && datagram.len() < LEAST_INITIAL {
            return;
        }
        let source = way.source();
        let counts_alone = known || self.address.is_remembered(now, source);
        let proven = way.tcp.is_some()
            || token(&datagram).is_some_and(|token| is_for(&self.token_key, token, way.peer));
        let mut initials = locked(&self.address.initials);
        let looked_at = match proven {
            true => initials.on_proven_initial(now, source, counts_alone),
            false => initials.on_initial(now, source, counts_alone),
        };
        drop(initials);
        if !looked_at {
            return;
        }
        if known {
            self.handle(now, way, datagram);
        } else if self.strangers.len() < STRANGERS {
            self.strangers.push_back((way, datagram));
        }
    }

    pub(super) fn settle_touched(&mut self, now: Time) {
        while let Some(handle) = self.touched.pop() {
            self.settle(now, handle);
        }
    }

    /// Gives a datagram to its connection, which is to be settled afterwards.
    pub(super) fn handle(&mut self, now: Time, way: Way, datagram: BytesMut) {
        let clock = self.instant(now);
        let length = datagram.len();
        let mut reply = Vec::new();
        match self.quinn.handle(clock, way.peer, way.here, None, datagram, &mut reply) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(lane) = self.lane(handle) {
                    lane.receive(event, length);
                }
                if !self.touched.contains(&handle) {
                    self.touched.push(handle);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.meet(now, incoming, way),
            Some(DatagramEvent::Response(transmit)) => {
                self.reply(way, reply, transmit.size);
            }
            None => {}
        }
    }

    /// Answers a datagram of no connection, or drops the answer where many wait: they go before all tunnels' packets, and
    /// a server may limit them (RFC 9000 §5.2.2).
    pub(super) fn reply(&mut self, way: Way, mut bytes: Vec<u8>, length: usize) {
        if self.replies.len() < REPLIES {
            bytes.truncate(length);
            self.replies.push_back((way, bytes));
        }
    }
}

/// The token of an Initial (RFC 9000 §17.2.2); `None` where it has none, or is cut.
fn token(initial: &[u8]) -> Option<&[u8]> {
    // behind the flags, the version and both identifiers
    let mut rest = initial.get(5..)?;
    for _ in 0..2 {
        let (length, identifier) = rest.split_first()?;
        rest = identifier.get(usize::from(*length)..)?;
    }
    let length = usize::try_from(number::get(&mut rest)?).ok()?;
    rest.get(..length).filter(|token| !token.is_empty())
}

/// Whether a Retry gave this token to this address. It costs one AEAD, where QUIC would first derive the packet's keys.
/// QUIC looks later whether it is too old. The form is quinn-proto's: the kind, the address and the port come first.
fn is_for(key: &hkdf::Prk, token: &[u8], peer: SocketAddr) -> bool {
    let Some((sealed, nonce)) = token.split_last_chunk::<16>() else { return false };
    if token.len() > LONGEST_TOKEN {
        return false;
    }
    let mut wanted = vec![0];
    match peer.ip() {
        IpAddr::V4(ip) => {
            wanted.push(0);
            wanted.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            wanted.push(1);
            wanted.extend(ip.octets());
        }
    }
    wanted.extend(peer.port().to_be_bytes());
    let mut opened = sealed.to_vec();
    let opened = key.aead_from_hkdf(nonce).open(&mut opened, &[]);
    opened.is_ok_and(|opened| opened.starts_with(&wanted))
}
