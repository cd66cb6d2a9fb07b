//! Who is let in, and what becomes of tunnels that end.

use super::network::{FAR, NEAR, Network, Path, SECRET, pattern, slow};
use super::pending::{Crowd, exchange, junk};
use crate::core::*;
use ekiden_model::units::Span;

#[test]
fn an_invitation_is_good_for_one_relay() {
    let mut network = Network::new(&Path::default());
    network.run_for(Span::from_secs(1));
    let joined = network.events[FAR].iter().find_map(|event| match event {
        Event::Joining { peer, invitation } => Some((*peer, *invitation)),
        _ => None,
    });
    let (peer, invitation) = joined.unwrap();
    assert_eq!(invitation, crate::trust::hash(SECRET));
    // another one with the same token
    let other = Credentials::generate().unwrap();
    assert_ne!(peer, other.fingerprint());
    join(&mut network, &other);
    network.run_for(Span::from_secs(2));
    let reason = network.down(NEAR).unwrap();
    assert!(reason.contains("is not a peer of this one"), "{reason}");
}

/// NEAR shows the invitation with this certificate.
fn join(network: &mut Network, credentials: &Credentials) {
    let far = network.ends[FAR].credentials.fingerprint();
    let (origin, to) = (network.ends[NEAR].origin, network.addresses[FAR]);
    let near = Endpoint::new(credentials.clone(), Limits::default(), false, origin, None);
    network.ends[NEAR] = near;
    network.events = [Vec::new(), Vec::new()];
    let secret = Bytes::from_static(SECRET);
    network.ends[NEAR].connect(network.now, to, far, secret, slow(), (5, false)).unwrap();
}

#[test]
fn an_invitation_stays_good_until_the_relay_that_joins_is_kept() {
    let mut network = Network::new(&Path::default());
    let [one, other] = [(); 2].map(|()| Credentials::generate().unwrap());
    network.keeps = Some(Err("the disk is full"));
    join(&mut network, &one);
    network.run_for(Span::from_secs(2));
    let end = network.end_of_tunnel(NEAR).unwrap();
    assert!(end.by_peer && end.reason.contains("the disk is full"), "{end:?}");
    assert!(network.ends[FAR].peers.is_empty() && network.ends[FAR].snapshots().is_empty());
    // another one, which waits
    network.keeps = None;
    join(&mut network, &other);
    network.run_for(Span::from_secs(2));
    let asked = |event: &&Event| matches!(event, Event::Joining { .. });
    assert_eq!(network.events[FAR].iter().filter(asked).count(), 1, "both lanes ask once");
    assert!(!network.is_up(NEAR) && network.down(NEAR).is_none());
    // a list without news leaves it waiting
    let (terms, secret) = (slow(), crate::trust::hash(SECRET));
    network.ends[FAR].admit(network.now, &[], &[Invited { secret, terms }]);
    network.run_for(Span::from_millis(500));
    assert!(!network.is_up(NEAR) && network.down(NEAR).is_none());
    let peer = AdmittedPeer { fingerprint: other.fingerprint(), terms };
    network.ends[FAR].admit(network.now, &[peer], &[]);
    network.run_for(Span::from_secs(1));
    assert!(network.is_up(NEAR) && network.is_up(FAR));
    assert!(network.ends[FAR].joining.is_empty());
}

#[test]
fn a_peer_is_refused_with_an_invitation_that_nobody_has_used() {
    const SECOND: &[u8] = b"the secret of a second invitation";
    let mut network = Network::up(&Path::default());
    let terms = slow();
    let peer = AdmittedPeer { fingerprint: network.ends[NEAR].credentials.fingerprint(), terms };
    let invited = Invited { secret: crate::trust::hash(SECOND), terms };
    network.ends[FAR].admit(network.now, &[peer], &[invited]);
    let far = network.ends[FAR].credentials.fingerprint();
    // its own, used before, is shown each time
    for (session, secret, is_taken) in [(5, SECRET, true), (6, SECOND, false)] {
        let (now, to, key) = (network.now, network.addresses[FAR], (session, false));
        let secret = Bytes::from_static(secret);
        let id = network.ends[NEAR].connect(now, to, far, secret, terms, key).unwrap();
        network.run_for(Span::from_secs(1));
        let seen = network.ends[NEAR].snapshot(id);
        assert_eq!(seen.is_some_and(|seen| seen.up), is_taken, "{session}");
    }
    let reason = network.down(NEAR).unwrap();
    assert!(reason.contains("is a peer of this one already"), "{reason}");
    assert_eq!(network.ends[FAR].snapshots().len(), 2, "and its tunnels stay");
}

#[test]
fn a_peer_gets_in_where_others_have_taken_all_places() {
    let mut network = Network::new(&Path::default());
    network.ends[FAR].limits.tunnels = 12;
    let relays = [(); 5].map(|()| Credentials::generate().unwrap());
    let peer =
        |relay: &Credentials| AdmittedPeer { fingerprint: relay.fingerprint(), terms: slow() };
    network.ends[FAR].admit(network.now, &relays.each_ref().map(peer), &[]);
    let far = network.ends[FAR].credentials.fingerprint();
    let counts = relays.each_ref().map(|relay| {
        join(&mut network, relay);
        for session in 6..8 {
            let (now, to, key) = (network.now, network.addresses[FAR], (session, false));
            network.ends[NEAR].connect(now, to, far, Bytes::new(), slow(), key).unwrap();
        }
        network.run_for(Span::from_millis(600));
        let of_relay = |tunnel: &&Tunnel| tunnel.peer == relay.fingerprint();
        network.ends[FAR].tunnels.values().filter(of_relay).count()
    });
    // a quarter each, and two where all are taken
    assert_eq!(counts, [3, 3, 3, 3, 2]);
    assert_eq!(network.down(NEAR), Some("the peer ended it: too many tunnels of yours"));
}

#[test]
fn a_relay_that_waits_to_join_is_refused_once_its_invitation_is_revoked() {
    let mut network = Network::new(&Path::default());
    network.keeps = None;
    network.run_for(Span::from_secs(1));
    network.ends[FAR].admit(network.now, &[], &[]);
    network.run_for(Span::from_secs(1));
    assert!(network.down(NEAR).unwrap().contains("is not a peer of this one"));
    assert!(network.ends[FAR].joining.is_empty());
}

#[test]
fn another_certificate_is_not_taken() {
    let mut network = Network::new(&Path::default());
    let other = Credentials::generate().unwrap().fingerprint();
    let to = network.addresses[FAR];
    network.ends[NEAR].connect(network.now, to, other, Bytes::new(), slow(), (5, false)).unwrap();
    network.run_for(Span::from_secs(2));
    let reason = network.down(NEAR).unwrap();
    assert!(reason.contains("another certificate"), "{reason}");
}

#[test]
fn revocation_ends_a_tunnel() {
    let mut network = Network::up(&Path::default());
    let flow = network.flow(80);
    network.run_for(Span::from_millis(300));
    network.ends[FAR].admit(network.now, &[], &[]);
    network.run_for(Span::from_millis(300));
    let end = network.end_of_tunnel(NEAR).unwrap();
    assert!(end.reason.contains("revoked") && end.by_peer, "{end:?}");
    assert_eq!(network.ends[NEAR].read(network.now, flow), Read::Gone);
    assert!(network.ends[NEAR].answer(flow).unwrap().is_err());
}

#[test]
fn silence_ends_a_tunnel_within_ten_seconds() {
    let mut network = Network::up(&Path::default());
    let flow = network.flow(80);
    network.ends[NEAR].write(network.now, flow, pattern(0, 100_000));
    network.run_for(Span::from_secs(1));
    network.cut = [true; 2];
    let begun = network.now;
    while network.down(NEAR).is_none() || network.down(FAR).is_none() {
        let until = begun + Span::from_secs(10);
        assert!(network.now < until, "not noticed");
        network.step(until);
    }
    let end = network.end_of_tunnel(NEAR).unwrap();
    assert!(end.reason.contains("no packet arrived") && !end.by_peer, "{end:?}");
}

#[test]
fn a_relay_that_was_restarted_is_noticed_at_once() {
    let mut network = Network::up(&Path::default());
    network.run_for(Span::from_secs(3));
    let credentials = network.ends[FAR].credentials.clone();
    network.ends[FAR] =
        Endpoint::new(credentials, Limits::default(), true, network.ends[FAR].origin, None);
    network.events[NEAR].clear();
    let flow = network.flow(80);
    network.ends[NEAR].write(network.now, flow, pattern(0, 100_000));
    network.run_for(Span::from_secs(1));
    assert_eq!(network.down(NEAR), Some("the peer was restarted"));
}

/// One that listens at this address with FAR's certificate.
fn listening(network: &Network, at: &str) -> Endpoint {
    let far = &network.ends[FAR];
    let at = at.parse().unwrap();
    let thread = AddressThread::all(at, 1, &far.limits, &Arc::default()).next().unwrap();
    Endpoint::of_thread(far.credentials.clone(), far.limits, (true, far.origin, None), thread)
}

/// The identifier that a packet from NEAR to FAR bears for all to read.
fn identifier_of_a_packet(network: &mut Network) -> [u8; 8] {
    let flow = network.flow(80);
    let near = &mut network.ends[NEAR];
    near.write(network.now, flow, pattern(0, 1_000));
    let mut buf = Vec::new();
    while near.transmit(network.now, &mut buf).is_none() {
        network.now += Span::from_millis(1);
        near.on_deadline(network.now);
    }
    assert_eq!(buf[0] & 0x80, 0, "of no handshake");
    buf[1..9].try_into().unwrap()
}

/// Asks a socket with this identifier, and gives NEAR its answer as if it came from FAR.
fn forge_answer(network: &mut Network, socket: &mut Endpoint, identifier: [u8; 8]) {
    let mut packet = [0x40; 40];
    packet[1..9].copy_from_slice(&identifier);
    let asks = SocketAddr::from(([100, 64, 0, 9], 9));
    socket.receive(network.now, asks, BytesMut::from(&packet[..]));
    let mut buf = Vec::new();
    while let Some(out) = socket.transmit(network.now, &mut buf) {
        let answer = BytesMut::from(&buf[..out.size]);
        network.ends[NEAR].receive(network.now, network.addresses[FAR], answer);
    }
    network.run_for(Span::from_millis(500));
}

#[test]
fn no_other_socket_of_a_relay_answers_so_that_its_tunnels_end() {
    let mut network = Network::new(&Path::default());
    network.ends[FAR] = listening(&network, "0.0.0.0:4433");
    let invited = Invited { secret: crate::trust::hash(SECRET), terms: slow() };
    network.ends[FAR].admit(network.now, &[], &[invited]);
    network.set_up();
    network.run_for(Span::from_secs(3));
    let identifier = identifier_of_a_packet(&mut network);
    let far = &network.ends[FAR];
    let connects = Endpoint::new(far.credentials.clone(), far.limits, false, far.origin, None);
    for mut other in [listening(&network, "[::]:4433"), connects] {
        forge_answer(&mut network, &mut other, identifier);
        assert!(network.is_up(NEAR) && network.down(NEAR).is_none(), "{:?}", network.down(NEAR));
    }
    // the same address, as after a restart: what it answers is believed
    let mut same = listening(&network, "0.0.0.0:4433");
    forge_answer(&mut network, &mut same, identifier);
    assert_eq!(network.down(NEAR), Some("the peer was restarted"));
}

#[test]
fn an_address_that_changes_does_not_matter() {
    let mut network = Network::up(&Path::default());
    let flow = network.flow(80);
    network.ends[NEAR].write(network.now, flow, pattern(0, 200_000));
    network.run_for(Span::from_millis(60));
    network.addresses[NEAR] = "100.64.0.9:9".parse().unwrap();
    network.settle(2_000);
    let there = network.twin(flow, FAR);
    assert_eq!(network.read(FAR, there).0, pattern(0, 200_000).to_vec());
    let seen = network.ends[FAR].snapshots();
    assert_eq!(seen[0].address, Some(network.addresses[NEAR]));
    network.run_for(Span::from_secs(3));
    let in_flight = network.ends[NEAR].snapshots()[0].in_flight;
    assert_eq!(in_flight, 0);
}

/// How long until a relay is in at FAR, at most 5 s, while Initials of forged addresses use up the rate of all of them
/// whenever anything happens.
fn joins_beside_forged(network: &mut Network) -> Span {
    let (start, limit) = (network.now, network.now + Span::from_secs(5));
    while !network.is_up(FAR) && network.now < limit {
        for nth in (0..32_u8).flat_map(|nth| [nth; 32]) {
            let forged = SocketAddr::from(([100, 64, 4, nth], 7));
            network.ends[FAR].receive(network.now, forged, junk(1_200));
            network.ends[FAR].on_deadline(network.now);
        }
        network.step(network.now + Span::from_millis(10));
    }
    network.now.since(start)
}

#[test]
fn forged_addresses_keep_no_relay_from_joining_over_tcp() {
    let mut network = Network::new(&Path::default());
    network.tcp = Some([100, 64, 0, 1].into());
    let took = joins_beside_forged(&mut network);
    assert!(took < Span::from_millis(500), "{took:?}");
}

#[test]
fn forged_addresses_keep_no_relay_out_that_returned_a_token() {
    let mut network = Network::new(&Path::default());
    // half of the places are taken, so that it has to show its address
    network.ends[FAR].address.set_places(8);
    let mut crowds = [Crowd::new(0), Crowd::new(1)];
    crowds.iter_mut().for_each(|crowd| crowd.begin(&network, 1));
    exchange(&mut network, &mut crowds);
    network.run_for(Span::from_millis(60));
    assert_eq!(network.ends[FAR].pending.len(), 4, "it was answered with Retry");
    let took = joins_beside_forged(&mut network);
    assert!(took < Span::from_secs(1), "{took:?}");
}

#[test]
fn forged_addresses_keep_no_relay_out_that_was_here_before() {
    let mut network = Network::up(&Path::default());
    network.run_for(Span::from_millis(500));
    let tunnel = network.tunnel[NEAR].unwrap();
    network.ends[NEAR].close(network.now, tunnel, "an end");
    network.run_for(Span::from_secs(3));
    assert!(network.ends[FAR].pending.is_empty() && !network.is_up(FAR));
    // nearly a day later
    network.now += Span::from_secs(23 * 3_600);
    let far = network.ends[FAR].credentials.fingerprint();
    let (now, to) = (network.now, network.addresses[FAR]);
    network.ends[NEAR].connect(now, to, far, Bytes::new(), slow(), (5, false)).unwrap();
    let took = joins_beside_forged(&mut network);
    assert!(took < Span::from_secs(1), "{took:?}");
}
