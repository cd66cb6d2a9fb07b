//! The door without its sockets: datagrams and packets go in, and come out by an [`Outbox`].
//!
//! What costs little is asked first. A datagram of data must name a session. One that begins a handshake must know
//! the relay's public key (`mac1`), under load prove its address (`mac2`), and be within the limits; only then is a
//! multiplication on the curve spent on it. So must one that answers a handshake. Whoever is no peer gets no answer.

mod counts;

pub use counts::Counts;

use crate::inspect::{Header, inspect};
use crate::keys::{PrivateKey, PublicKey};
use crate::limits::SourceLimits;
use crate::peer::{Peer, PeerSettings, PeerSnapshot};
use boringtun::noise::errors::WireGuardError;
use boringtun::noise::handshake::parse_handshake_anon;
use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::noise::{Packet, Tunn, TunnResult};
use ekiden_model::units::Time;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// The longest packet, and what WireGuard puts around it.
const LONGEST: usize = 65_535 + 32;
/// Packets that may wait in a session for its handshake (boringtun's).
const WAITING: usize = 256;
/// The first bytes of messages (the protocol's §5.4).
const INITIATION: u8 = 1;
const DATA: u8 = 4;
/// The most peers: a session is named by 24 bits.
const MOST_PEERS: usize = 1 << 20;

/// Where a datagram came from, which is where its answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// Which of the door's sockets.
    pub socket: usize,
    /// The peer's address.
    pub to: SocketAddr,
    /// The address here that it was sent to.
    pub here: Option<IpAddr>,
}

/// What leaves the engine.
pub trait Outbox {
    /// Room for the next datagram, at least 65,567 bytes.
    fn room(&mut self) -> &mut [u8];
    /// Sends the first `length` bytes of [`Outbox::room`].
    fn send(&mut self, way: Way, length: usize);
    /// Gives a packet to the kernel.
    fn deliver(&mut self, packet: &[u8]);
}

/// Decides about packets whose sender is known, and counts them.
pub trait Gate: Send {
    /// Whether a packet from a peer, or to it, may pass. `header` is of a packet whose address on the peer's side is its
    /// own.
    fn passes(&mut self, now: Time, peer: &PeerSettings, from_peer: bool, header: &Header) -> bool;

    /// Four times a second, with or without packets.
    fn on_tick(&mut self, now: Time);
}

/// The door; see the module.
pub struct Engine {
    key: PrivateKey,
    public: PublicKey,
    /// Tells who has proved an address, and makes cookies.
    proofs: RateLimiter,
    /// For sessions, which look at each handshake again.
    unlimited: Arc<RateLimiter>,
    sources: SourceLimits,
    /// Messages of handshakes that were worked on.
    worked_on: u64,
    peers: Vec<Option<Peer>>,
    by_key: HashMap<PublicKey, usize>,
    by_address: HashMap<IpAddr, usize>,
    /// Peers that are not served, in order of their address.
    barred: BTreeMap<Ipv4Addr, PeerSnapshot>,
    plain: Vec<u8>,
    is_open: bool,
    counts: Counts,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("public", &self.public).finish_non_exhaustive()
    }
}

impl Engine {
    /// A door with this key, closed and without peers.
    pub fn new(key: PrivateKey) -> Self {
        let public = key.public();
        Self {
            // asks each message for a proof; the limits say which may come without
            proofs: RateLimiter::new(&public.half(), 0),
            unlimited: Arc::new(RateLimiter::new(&public.half(), u64::MAX)),
            key,
            public,
            sources: SourceLimits::default(),
            worked_on: 0,
            peers: Vec::new(),
            by_key: HashMap::new(),
            by_address: HashMap::new(),
            barred: BTreeMap::new(),
            plain: vec![0; LONGEST],
            is_open: false,
            counts: Counts::default(),
        }
    }

    /// The relay's public key.
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    /// Lets packets pass, or none: while the kernel has no rules for them.
    pub const fn set_open(&mut self, is_open: bool) {
        self.is_open = is_open;
    }

    /// The peers from now on. Those that stay keep their sessions. Of several with one key or one address the first
    /// counts. Returns the addresses that a served peer had and has no longer: what goes on under them is not for the next.
    pub fn set_peers(&mut self, wanted: Vec<PeerSettings>) -> Vec<IpAddr> {
        let before = self.owners();
        let (mut keys, mut addresses) = (HashSet::new(), HashSet::new());
        let mut is_first = |one: &PeerSettings| {
            let ips = [IpAddr::V4(one.v4), IpAddr::V6(one.v6)];
            let free = !keys.contains(&one.key) && ips.iter().all(|ip| !addresses.contains(ip));
            free && keys.insert(one.key) && ips.into_iter().all(|ip| addresses.insert(ip))
        };
        let mut left = std::mem::take(&mut self.by_key);
        self.by_address.clear();
        self.barred.clear();
        let mut fresh = Vec::new();
        for settings in wanted.into_iter().filter(|one| is_first(one)).take(MOST_PEERS) {
            if settings.barred.is_some() {
                let (endpoint, handshake) = (None, None);
                let none = PeerSnapshot { settings, endpoint, handshake, received: 0, sent: 0 };
                self.barred.insert(none.settings.v4, none);
                continue;
            }
            let index = left.remove(&settings.key);
            match index.and_then(|index| Some((index, self.peers.get_mut(index)?.as_mut()?))) {
                Some((index, peer)) => {
                    peer.settings = settings;
                    self.place(index);
                }
                None => fresh.push(settings),
            }
        }
        // order does not matter: each of them leaves
        #[allow(clippy::iter_over_hash_type)]
        for index in left.into_values() {
            if let Some(slot) = self.peers.get_mut(index) {
                *slot = None;
            }
        }
        let mut free: Vec<usize> = (0..self.peers.len() + fresh.len())
            .filter(|index| self.peers.get(*index).is_none_or(Option::is_none))
            .take(fresh.len())
            .collect();
        for settings in fresh {
            let Some(index) = free.pop() else { break };
            if self.peers.len() <= index {
                self.peers.resize_with(index + 1, || None);
            }
            let session = self.session(&settings, index);
            if let Some(slot) = self.peers.get_mut(index) {
                *slot = Some(Peer::new(settings, session));
            }
            self.place(index);
        }
        let after = self.owners();
        let has_left =
            |(ip, key): (IpAddr, PublicKey)| (after.get(&ip) != Some(&key)).then_some(ip);
        before.into_iter().filter_map(has_left).collect()
    }

    /// Who has each address.
    fn owners(&self) -> BTreeMap<IpAddr, PublicKey> {
        let key = |index: usize| Some(self.peers.get(index)?.as_ref()?.settings.key);
        let pairs = self.by_address.iter().filter_map(|(ip, index)| Some((*ip, key(*index)?)));
        pairs.collect()
    }

    fn session(&self, settings: &PeerSettings, index: usize) -> Tunn {
        let (own, theirs) = (self.key.secret(), settings.key.half());
        Tunn::new(own, theirs, None, None, index as u32, Some(Arc::clone(&self.unlimited)))
    }

    /// Enters a peer of this slot into the tables.
    fn place(&mut self, index: usize) {
        let Some(Some(peer)) = self.peers.get(index) else { return };
        let PeerSettings { key, v4, v6, .. } = peer.settings;
        self.by_key.insert(key, index);
        self.by_address.insert(v4.into(), index);
        self.by_address.insert(v6.into(), index);
    }

    /// Takes in a datagram from the network.
    pub fn on_datagram(
        &mut self,
        now: Time,
        way: Way,
        datagram: &[u8],
        gate: &mut dyn Gate,
        out: &mut dyn Outbox,
    ) {
        let index = match Tunn::parse_incoming_packet(datagram) {
            Err(_) => None,
            Ok(Packet::HandshakeInit(_)) => {
                let Some(index) = self.on_handshake(now, way, datagram, out) else { return };
                Some(index)
            }
            Ok(Packet::HandshakeResponse(packet)) => {
                let index = packet.receiver_idx as usize >> 8;
                let is_known = self.peers.get(index).is_some_and(Option::is_some);
                // anybody who knows the relay's key can write one, and it costs as much as what begins a handshake
                if is_known && self.admitted(now, way, datagram, out).is_none() {
                    return;
                }
                Some(index)
            }
            Ok(Packet::PacketCookieReply(packet)) => Some(packet.receiver_idx as usize >> 8),
            Ok(Packet::PacketData(packet)) => Some(packet.receiver_idx as usize >> 8),
        };
        let peer = index.and_then(|index| self.peers.get_mut(index)?.as_mut());
        let Some(peer) = peer.filter(|_| datagram.len() <= LONGEST) else {
            self.counts.invalid += 1;
            return;
        };
        let is_data = datagram.first() == Some(&DATA);
        match peer.session.decapsulate(None, datagram, &mut self.plain) {
            // it is its peer's, and no packet of IP
            TunnResult::Err(WireGuardError::InvalidPacket) if is_data => {
                self.counts.unreadable += 1;
                return;
            }
            TunnResult::Err(_) => {
                self.counts.invalid += 1;
                return;
            }
            TunnResult::Done if is_data => self.counts.keepalives += 1,
            // a cookie: what it changes is the next handshake
            TunnResult::Done => return,
            TunnResult::WriteToNetwork(answer) => {
                if let Some(room) = out.room().get_mut(..answer.len()) {
                    room.copy_from_slice(answer);
                    out.send(way, answer.len());
                }
                self.counts.handshakes += 1;
                peer.is_active = true;
                // who begins may be anybody who repeats what a peer once sent: data proves that it is the peer
                if datagram.first() == Some(&INITIATION) {
                    return;
                }
            }
            TunnResult::WriteToTunnelV4(packet, _) | TunnResult::WriteToTunnelV6(packet, _) => {
                let own = [IpAddr::V4(peer.settings.v4), IpAddr::V6(peer.settings.v6)];
                match inspect(packet) {
                    None => self.counts.unreadable += 1,
                    Some(header) if !own.contains(&header.source) => self.counts.forged += 1,
                    Some(_) if !self.is_open => self.counts.undelivered += 1,
                    Some(header) if !gate.passes(now, &peer.settings, true, &header) => {
                        self.counts.refused += 1;
                    }
                    Some(header) => {
                        peer.received += header.length as u64;
                        self.counts.received += header.length as u64;
                        out.deliver(packet);
                    }
                }
            }
        }
        peer.way = Some(way);
        if peer.has_queue {
            peer.has_queue = false;
            for _ in 0..=WAITING {
                let TunnResult::WriteToNetwork(packet) =
                    peer.session.decapsulate(None, &[], out.room())
                else {
                    break;
                };
                let length = packet.len();
                out.send(way, length);
            }
        }
    }

    /// A message of a handshake on which multiplications may be spent; `None`: it does not know the relay's key, or its
    /// source must prove its address first, or it is beyond a limit.
    fn admitted<'a>(
        &mut self,
        now: Time,
        way: Way,
        datagram: &'a [u8],
        out: &mut dyn Outbox,
    ) -> Option<Packet<'a>> {
        let from = way.to.ip();
        let packet = match self.proofs.verify_packet(Some(from), datagram, out.room()) {
            Ok(packet) => {
                if !self.sources.on_proven(now, from) {
                    self.counts.limited += 1;
                    return None;
                }
                packet
            }
            Err(TunnResult::WriteToNetwork(cookie)) => {
                let length = cookie.len();
                if !self.sources.on_unproven(now, from) {
                    out.send(way, length);
                    self.counts.cookies += 1;
                    return None;
                }
                Tunn::parse_incoming_packet(datagram).ok()?
            }
            Err(_) => {
                self.counts.invalid += 1;
                return None;
            }
        };
        self.worked_on += 1;
        Some(packet)
    }

    /// Whose handshake a datagram begins; `None`: nobody's, or one that is dropped.
    fn on_handshake(
        &mut self,
        now: Time,
        way: Way,
        datagram: &[u8],
        out: &mut dyn Outbox,
    ) -> Option<usize> {
        let Packet::HandshakeInit(packet) = self.admitted(now, way, datagram, out)? else {
            return None;
        };
        let half = parse_handshake_anon(&self.key.secret(), &self.public.half(), &packet);
        let Ok(half) = half else {
            self.counts.invalid += 1;
            return None;
        };
        let index = self.by_key.get(&PublicKey::from(half.peer_static_public)).copied();
        let Some(index) = index else {
            self.counts.unknown += 1;
            return None;
        };
        let peer = self.peers.get_mut(index)?.as_mut()?;
        if !peer.is_active {
            // its clock stood still; else its session would seem to be as old as that
            let _ = peer.session.update_timers(out.room());
        }
        Some(index)
    }

    /// Takes in a packet from the kernel.
    pub fn on_packet(
        &mut self,
        now: Time,
        packet: &[u8],
        gate: &mut dyn Gate,
        out: &mut dyn Outbox,
    ) {
        let Some(header) = inspect(packet) else {
            self.counts.unreadable += 1;
            return;
        };
        let index = self.by_address.get(&header.destination).copied();
        let peer = index.and_then(|index| self.peers.get_mut(index)?.as_mut());
        let Some((peer, way)) = peer.and_then(|peer| peer.way.map(|way| (peer, way))) else {
            self.counts.undelivered += 1;
            return;
        };
        if !self.is_open {
            self.counts.undelivered += 1;
            return;
        }
        if !gate.passes(now, &peer.settings, false, &header) {
            self.counts.refused += 1;
            return;
        }
        if !peer.is_active {
            let _ = peer.session.update_timers(out.room());
            peer.is_active = true;
        }
        let waits = peer.session.time_since_last_handshake().is_none();
        peer.has_queue |= waits;
        if let TunnResult::WriteToNetwork(datagram) = peer.session.encapsulate(packet, out.room()) {
            let length = datagram.len();
            out.send(way, length);
            if !waits {
                peer.sent += header.length as u64;
                self.counts.sent += header.length as u64;
            }
        }
    }

    /// Four times a second: sessions grow old, and handshakes are repeated.
    pub fn on_tick(&mut self, now: Time, gate: &mut dyn Gate, out: &mut dyn Outbox) {
        gate.on_tick(now);
        let ways = self.peers.iter().flatten().filter_map(|peer| peer.way);
        self.sources.set_present(ways.map(|way| way.to.ip()));
        for peer in self.peers.iter_mut().flatten().filter(|peer| peer.is_active) {
            peer.handshake = peer.agreed(now);
            match peer.session.update_timers(out.room()) {
                TunnResult::WriteToNetwork(datagram) => {
                    let length = datagram.len();
                    if let Some(way) = peer.way {
                        out.send(way, length);
                    }
                }
                TunnResult::Err(WireGuardError::ConnectionExpired) => {
                    (peer.is_active, peer.has_queue) = (false, false);
                }
                _ => {}
            }
        }
    }

    /// Messages of handshakes that multiplications were spent on, since the start.
    pub(crate) const fn worked_on(&self) -> u64 {
        self.worked_on
    }

    /// What became of all.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Every peer, by its address.
    pub fn snapshot(&self, now: Time) -> Vec<PeerSnapshot> {
        let of = |peer: &Peer| PeerSnapshot {
            settings: peer.settings.clone(),
            endpoint: peer.way.map(|way| way.to),
            handshake: peer.agreed(now),
            received: peer.received,
            sent: peer.sent,
        };
        let mut all: Vec<PeerSnapshot> = self.peers.iter().flatten().map(of).collect();
        all.extend(self.barred.values().cloned());
        all.sort_by_key(|peer| peer.settings.v4);
        all
    }
}

#[cfg(test)]
mod tests;
