//! Who comes and does not say who it is: little memory, for little time.

use super::network::{FAR, NEAR, Network, Path, slow};
use crate::core::*;
use crate::frame::Frame;
use ekiden_model::units::Span;
use quinn_proto::{StreamId, VarInt};
use std::net::{IpAddr, SocketAddr};

/// Both lanes are there, and nobody has said hello.
fn silent() -> Network {
    let mut network = Network::new(&Path::default());
    let control = StreamId::from(VarInt::from_u32(2));
    // as if it had
    network.tunnel(NEAR).lanes.iter_mut().flatten().for_each(|lane| lane.control = Some(control));
    network.run_for(Span::from_millis(500));
    assert_eq!(network.ends[FAR].pending.len(), 2);
    network
}

#[test]
fn connections_without_hello_are_closed() {
    let mut network = silent();
    network.run_for(Span::from_secs(9));
    assert_eq!(network.down(NEAR), None);
    network.run_for(Span::from_secs(2));
    assert_eq!(network.down(NEAR), Some("the peer ended it: no hello came in time"));
    network.run_for(Span::from_secs(2));
    assert!(network.ends[FAR].pending.is_empty());
}

#[test]
fn streams_without_end_are_not_kept() {
    let mut network = silent();
    for _ in 0..20 {
        if network.down(NEAR).is_some() {
            break;
        }
        for lane in network.tunnel(NEAR).lanes.iter_mut().flatten() {
            for _ in 0..100 {
                let stream = lane.open().unwrap();
                lane.write(stream, Frame::Attach(2).to_bytes());
                lane.finish(stream);
            }
        }
        network.run_for(Span::from_millis(100));
    }
    assert_eq!(network.down(NEAR), Some("the peer ended it: a hello comes first"));
}

#[test]
fn bytes_without_end_are_not_kept() {
    let mut network = silent();
    for _ in 0..30 {
        if network.down(NEAR).is_some() {
            break;
        }
        for lane in network.tunnel(NEAR).lanes.iter_mut().flatten() {
            let stream = lane.open().unwrap();
            let packet = Bytes::from(vec![0; 16_000]);
            (0..2).for_each(|_| lane.write(stream, Frame::Packet(packet.clone()).to_bytes()));
        }
        network.run_for(Span::from_millis(100));
    }
    assert_eq!(network.down(NEAR), Some("the peer ended it: a hello comes first"));
}

#[test]
fn many_pending_connections_require_address_validation() {
    let mut network = Network::new(&Path::default());
    network.ends[FAR].limits.tunnels = 1;
    network.ends[FAR].address.set_places(2);
    let mut buf = Vec::new();
    for ms in 0..20 {
        let now = network.now + Span::from_millis(ms);
        while let Some(out) = network.ends[NEAR].transmit(now, &mut buf) {
            let claimed: SocketAddr = "100.64.0.7:7".parse().unwrap();
            network.ends[FAR].receive(now, claimed, BytesMut::from(&buf[..out.size]));
            network.ends[FAR].on_deadline(now);
        }
    }
    assert_eq!(network.ends[FAR].pending.len(), 1);
    assert_eq!(network.ends[FAR].replies.len(), 1, "a retry");
    // one that is there shows it
    let mut network = Network::new(&Path::default());
    network.ends[FAR].limits.tunnels = 1;
    network.ends[FAR].address.set_places(2);
    network.set_up();
    network.run_for(Span::from_secs(1));
    assert!(network.tunnel(FAR).lanes.iter().all(Option::is_some));
}

/// Initials of as many connections, valid all.
fn initials(network: &Network, count: usize) -> Vec<Vec<u8>> {
    let far = network.ends[FAR].credentials.fingerprint();
    let credentials = Credentials::generate().unwrap();
    let limits = Limits { datagram: 1_472, ..Limits::default() };
    let mut crowd = Endpoint::new(credentials, limits, false, Instant::now(), None);
    let mut made = Vec::new();
    let mut buf = Vec::new();
    for session in 0.. {
        let (to, key) = (network.addresses[FAR], (session, false));
        crowd.connect(Time::ZERO, to, far, Bytes::new(), slow(), key).unwrap();
        while let Some(out) = crowd.transmit(Time::ZERO, &mut buf) {
            assert!(is_initial(&buf[..out.size]));
            made.push(buf[..out.size].to_vec());
        }
        crowd.tunnels.clear();
        if made.len() >= count {
            break;
        }
    }
    made
}

#[test]
fn established_connections_are_served_before_initials() {
    let mut network = Network::up(&Path::default());
    network.run_for(Span::from_millis(500));
    let flow = network.flow(80);
    network.settle(300);
    let there = network.twin(flow, FAR);
    let crowd = initials(&network, 40);
    let (now, mut buf) = (network.now, Vec::new());
    let flood: SocketAddr = "100.64.0.7:7".parse().unwrap();
    for initial in &crowd {
        network.ends[FAR].receive(now, flood, BytesMut::from(&initial[..]));
    }
    network.ends[NEAR].write(now, flow, Bytes::from_static(b"a GET"));
    let out = network.ends[NEAR].transmit(now, &mut buf).unwrap();
    let near = network.addresses[NEAR];
    network.ends[FAR].receive(now, near, BytesMut::from(&buf[..out.size]));
    assert_eq!(network.read(FAR, there).0, b"a GET");
    let far = &mut network.ends[FAR];
    assert_eq!(far.pending.len(), 0, "no handshake began before");
    // one at a time, until the address has used its burst
    for turn in 1..=40 {
        assert_eq!(far.deadline(now), now);
        far.on_deadline(now);
        assert_eq!(far.pending.len(), turn.min(32));
        while far.transmit(now, &mut buf).is_some() {}
    }
    assert!(far.deadline(now) > now);
}

#[test]
fn a_flood_of_initials_does_not_stop_a_flow() {
    let mut network = Network::up(&Path::default());
    network.run_for(Span::from_millis(500));
    let flow = network.flow(80);
    network.settle(300);
    let there = network.twin(flow, FAR);
    let crowd = initials(&network, 2_600);
    let (mut written, mut read, mut nth) = (0, 0, 0);
    // 26 each 10 ms, from the same address and from others
    for round in 0..100 {
        for initial in crowd.iter().skip(round * 26).take(26) {
            nth += 1;
            let from = if nth % 2 == 0 { 7 } else { nth };
            let from = SocketAddr::from(([100, 65, (from >> 8) as u8, from as u8], 7));
            let now = network.now;
            network.ends[FAR].receive(now, from, BytesMut::from(&initial[..]));
        }
        written = network.fill(FAR, there, written);
        network.run_for(Span::from_millis(10));
        read += network.read(NEAR, flow).0.len() as u64;
        // places are left for those who show their address
        assert!(network.ends[FAR].pending.len() <= network.ends[FAR].limits.tunnels);
        assert!(network.ends[FAR].strangers.len() <= STRANGERS);
    }
    assert!(network.down(NEAR).is_none() && network.down(FAR).is_none());
    // 20 Mbit/s for a second, but for the round trip that it began with
    assert!(read > 1_500_000, "{read}");
    // and another relay gets in beside it
    let far = network.ends[FAR].credentials.fingerprint();
    let (now, to) = (network.now, network.addresses[FAR]);
    network.ends[NEAR].connect(now, to, far, Bytes::new(), slow(), (5, false)).unwrap();
    network.run_for(Span::from_secs(2));
    assert_eq!(network.ends[FAR].snapshots().iter().filter(|seen| seen.up).count(), 2);
}

#[test]
fn connections_that_are_being_closed_are_few() {
    let network = &mut Network::new(&Path::default());
    network.ends[FAR].limits.tunnels = 4;
    let crowd = initials(network, 40);
    let (now, far) = (network.now, &mut network.ends[FAR]);
    for (nth, initial) in crowd.iter().take(40).enumerate() {
        let from = SocketAddr::from(([100, 65, 0, nth as u8], 7));
        far.receive(now, from, BytesMut::from(&initial[..]));
        far.on_deadline(now);
    }
    assert_eq!(far.pending.len(), 40);
    far.on_deadline(now + Span::from_secs(10));
    assert_eq!(far.pending.len(), 8);
}

/// A program that begins connections and says nothing on them.
pub(super) struct Crowd {
    endpoint: Endpoint,
    way: Way,
}

impl Crowd {
    /// At an address of its own.
    pub(super) fn new(nth: u8) -> Self {
        Self::at(SocketAddr::from(([100, 64, 1, nth], 7)).into())
    }

    fn at(way: Way) -> Self {
        let credentials = Credentials::generate().unwrap();
        let limits = Limits { datagram: 1_472, ..Limits::default() };
        let endpoint = Endpoint::new(credentials, limits, false, Instant::now(), None);
        Self { endpoint, way }
    }

    /// Two more.
    pub(super) fn begin(&mut self, network: &Network, session: u64) {
        let far = network.ends[FAR].credentials.fingerprint();
        let (to, key) = (network.addresses[FAR], (session, false));
        let id = self.endpoint.connect(network.now, to, far, Bytes::new(), slow(), key).unwrap();
        let control = StreamId::from(VarInt::from_u32(2));
        let tunnel = self.endpoint.tunnels.get_mut(&id).unwrap();
        tunnel.lanes.iter_mut().flatten().for_each(|lane| lane.control = Some(control));
    }
}

/// Lets all of the crowds and FAR say to each other what they have to, at once.
pub(super) fn exchange(network: &mut Network, crowds: &mut [Crowd]) {
    let (now, mut buf, mut busy) = (network.now, Vec::new(), true);
    while busy {
        busy = false;
        for crowd in crowds.iter_mut() {
            crowd.endpoint.on_deadline(now);
            while let Some(out) = crowd.endpoint.transmit(now, &mut buf) {
                network.ends[FAR].receive(now, crowd.way, BytesMut::from(&buf[..out.size]));
                busy = true;
            }
        }
        network.ends[FAR].on_deadline(now);
        while let Some(out) = network.ends[FAR].transmit(now, &mut buf) {
            let datagram = BytesMut::from(&buf[..out.size]);
            let from = network.addresses[FAR];
            match crowds.iter_mut().find(|crowd| crowd.way.peer == out.to) {
                Some(crowd) => crowd.endpoint.receive(now, from, datagram),
                None => network.ends[NEAR].receive(now, from, datagram),
            }
            busy = true;
        }
    }
}

/// One of the TCP connections of a single address.
fn carrier(nth: u8) -> Way {
    let peer = SocketAddr::from(([0, 0, 1, nth], 7));
    Way { peer, here: None, tcp: Some([100, 64, 2, 1].into()) }
}

/// FAR with crowds that begin 32 connections a second each, and go on meanwhile; `share` is the most that wait.
fn joins_beside(mut crowds: Vec<Crowd>, share: usize) {
    let mut network = Network::new(&Path::default());
    let start = network.now;
    let (mut joined, mut most) = (Time::NEVER, 0);
    network.cut = [true; 2];
    for round in 0..300_u64 {
        for crowd in crowds.iter_mut().filter(|_| round % 4 == 0) {
            crowd.begin(&network, round);
        }
        exchange(&mut network, &mut crowds);
        let pending = &network.ends[FAR].pending;
        most = most.max(pending.values().filter(|it| it.deadline() < Time::NEVER).count());
        assert!(pending.len() <= 257, "{}", pending.len());
        // places are filled, and then the relay comes
        if round == 200 {
            let far = network.ends[FAR].credentials.fingerprint();
            let (now, to) = (network.now, network.addresses[FAR]);
            let secret = Bytes::from_static(super::network::SECRET);
            let near = &mut network.ends[NEAR];
            near.tunnels.clear();
            near.lanes.clear();
            near.connect(now, to, far, secret, slow(), (9, false)).unwrap();
            network.cut = [false; 2];
        }
        network.run_for(Span::from_millis(16));
        if network.ends[FAR].snapshots().iter().any(|seen| seen.up) {
            joined = joined.min(network.now);
        }
    }
    assert_eq!(most, share);
    let took = joined.since(start + Span::from_millis(200 * 16));
    assert!(took < Span::from_secs(1), "{took:?}");
}

#[test]
fn a_relay_joins_while_one_address_floods() {
    // with the relay's own
    joins_beside(vec![Crowd::new(0)], 32 + 2);
}

#[test]
fn a_relay_joins_while_all_places_are_taken() {
    joins_beside((0..8).map(Crowd::new).collect(), 128);
}

#[test]
fn tcp_connections_of_one_address_share_its_places() {
    joins_beside((0..8).map(|nth| Crowd::at(carrier(nth))).collect(), 32 + 2);
}

/// An Initial packet of so many bytes that no key opens.
pub(super) fn junk(length: u16) -> BytesMut {
    let mut datagram = BytesMut::zeroed(length.into());
    let head = [0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0];
    datagram[..16].copy_from_slice(&head);
    // of the rest (RFC 9000 §16)
    datagram[16..18].copy_from_slice(&(0x4000 | (length - 18)).to_be_bytes());
    datagram
}

/// How long a relay takes to join over UDP, or over TCP from this address, while so many junk Initials of these bytes
/// come by each of 32 ways whenever anything happens; at most 5 s.
fn joins_beside_junk(length: u16, way: impl Fn(u8) -> Way, tcp: Option<IpAddr>) -> Span {
    let mut network = Network::new(&Path::default());
    network.tcp = tcp;
    let limit = network.now + Span::from_secs(5);
    while !network.ends[FAR].snapshots().iter().any(|seen| seen.up) && network.now < limit {
        // more than come back until the next time
        for nth in (0..32).flat_map(|nth| [nth; 32]) {
            network.ends[FAR].receive(network.now, way(nth), junk(length));
            network.ends[FAR].on_deadline(network.now);
        }
        network.step(network.now + Span::from_millis(10));
    }
    network.now.since(Time::ZERO)
}

#[test]
fn junk_over_tcp_connections_of_one_address_keeps_no_relay_from_joining() {
    let took = joins_beside_junk(1_200, carrier, None);
    assert!(took < Span::from_millis(500), "{took:?}");
}

#[test]
fn junk_that_bears_a_relay_s_address_does_not_keep_it_from_joining_over_tcp() {
    let forged = |nth: u8| SocketAddr::from(([100, 64, 0, 1], 1_000 + u16::from(nth))).into();
    let took = joins_beside_junk(1_200, forged, Some([100, 64, 0, 1].into()));
    assert!(took < Span::from_millis(500), "{took:?}");
}

#[test]
fn initials_that_are_too_short_use_up_nothing() {
    let from = |nth| SocketAddr::from(([100, 64, 3, nth], 7)).into();
    let took = joins_beside_junk(1_199, from, None);
    assert!(took < Span::from_millis(500), "{took:?}");
    // those of an address with a connection reach it
    let mut network = silent();
    let near = network.addresses[NEAR];
    assert!(network.ends[FAR].is_known(near));
    network.ends[FAR].receive(network.now, near, junk(1_199));
    network.run_for(Span::from_millis(100));
    assert_eq!((network.ends[FAR].pending.len(), network.down(NEAR)), (2, None));
}

#[test]
fn one_relay_does_not_take_all_places() {
    let mut network = Network::up(&Path::default());
    network.ends[FAR].limits.tunnels = 8;
    let far = network.ends[FAR].credentials.fingerprint();
    for session in 1..=2 {
        let (now, to) = (network.now, network.addresses[FAR]);
        let key = (session, false);
        network.ends[NEAR].connect(now, to, far, Bytes::new(), slow(), key).unwrap();
        network.run_for(Span::from_secs(1));
    }
    assert_eq!(network.down(NEAR), Some("the peer ended it: too many tunnels of yours"));
    let up = network.ends[FAR].snapshots();
    assert_eq!(up.iter().filter(|seen| seen.up).count(), 2, "and those that are there stay");
}

#[test]
fn a_peer_without_datagrams_is_sent_away() {
    let mut network = Network::odd(&Path::default(), |transport| {
        transport.datagram_receive_buffer_size(None);
    });
    network.run_for(Span::from_secs(1));
    assert_eq!(
        network.down(NEAR),
        Some("the peer ended it: QUIC's DATAGRAM frames must be enabled (RFC 9221)")
    );
}

/// NEAR and two threads of an address, at no distance, for 2 s. Each lane's packets come to a thread.
fn meet_threads(near: &mut Endpoint, threads: &mut [Endpoint], start: Time, of: [usize; 2]) {
    let [from, to]: [SocketAddr; 2] =
        ["100.64.0.1:1", "100.64.0.2:4433"].map(|text| text.parse().unwrap());
    let mut buf = Vec::new();
    for ms in 0..2_000 {
        let now = start + Span::from_millis(ms);
        near.on_deadline(now);
        while let Some(out) = near.transmit(now, &mut buf) {
            let lane = out.mark.map(|lane| of[usize::from(lane)]);
            for (nth, thread) in threads.iter_mut().enumerate() {
                // a connection that is being closed has no mark; threads know their own
                if lane.is_none_or(|lane| lane == nth) {
                    thread.receive(now, from, BytesMut::from(&buf[..out.size]));
                }
            }
        }
        for thread in threads.iter_mut() {
            thread.on_deadline(now);
            while let Some(out) = thread.transmit(now, &mut buf) {
                near.receive(now, to, BytesMut::from(&buf[..out.size]));
            }
        }
    }
}

#[test]
fn lanes_that_come_to_two_threads_make_no_two_tunnels() {
    let Network { now, ends: [mut near, far], addresses, .. } = Network::new(&Path::default());
    let peer = AdmittedPeer { fingerprint: near.credentials.fingerprint(), terms: slow() };
    let memory = Arc::default();
    let mut threads: Vec<Endpoint> = AddressThread::all(addresses[FAR], 2, &far.limits, &memory)
        .map(|thread| {
            let way = (true, far.origin, None);
            Endpoint::of_thread(far.credentials.clone(), far.limits, way, thread)
        })
        .collect();
    threads.iter_mut().for_each(|thread| thread.admit(now, std::slice::from_ref(&peer), &[]));
    meet_threads(&mut near, &mut threads, now, [0, 1]);
    let ends = std::iter::from_fn(|| near.event());
    let ends: Vec<_> = ends.filter(|event| matches!(event, Event::Down { .. })).collect();
    let [Event::Down { end, .. }] = &ends[..] else { panic!("{ends:?}") };
    assert!(end.by_peer && end.reason.contains(" two addresses"), "{end:?}");
    let count = |threads: &[Endpoint]| [0, 1].map(|nth| threads[nth].tunnels.len());
    assert_eq!(count(&threads), [0, 0], "each was told");
    // nothing stays of it: its session may come again, to any thread
    for (thread, seconds) in [(1, 2), (0, 6)] {
        let start = now + Span::from_secs(seconds);
        let far = far.credentials.fingerprint();
        let to = "100.64.0.2:4433".parse().unwrap();
        let id = near.connect(start, to, far, Bytes::new(), slow(), (77, false)).unwrap();
        meet_threads(&mut near, &mut threads, start, [thread; 2]);
        assert!(threads[thread].tunnels.values().all(|it| it.lanes.iter().all(Option::is_some)));
        assert_eq!(count(&threads), [0, 1].map(|nth| usize::from(nth == thread)));
        near.close(start + Span::from_secs(2), id, "over");
        meet_threads(&mut near, &mut threads, start + Span::from_secs(2), [thread; 2]);
        assert_eq!(count(&threads), [0, 0]);
    }
}
