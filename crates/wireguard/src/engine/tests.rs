use super::*;
use crate::segments::testing::{tcp, udp};
use boringtun::x25519;
use ekiden_model::units::Span;

/// What came out.
#[derive(Default)]
struct Kept {
    room: Vec<u8>,
    sent: Vec<(Way, Vec<u8>)>,
    delivered: Vec<Vec<u8>>,
}

impl Outbox for Kept {
    fn room(&mut self) -> &mut [u8] {
        self.room.resize(LONGEST, 0);
        &mut self.room
    }
    fn send(&mut self, way: Way, length: usize) {
        self.sent.push((way, self.room[..length].to_vec()));
    }
    fn deliver(&mut self, packet: &[u8]) {
        self.delivered.push(packet.to_vec());
    }
}

/// A gate that lets all pass but UDP to port 25.
struct Usual;

impl Gate for Usual {
    fn passes(&mut self, _: Time, _: &PeerSettings, _: bool, header: &Header) -> bool {
        header.ports.is_none_or(|(_, to)| to != 25)
    }

    fn on_tick(&mut self, _: Time) {}
}

/// A phone.
struct Client {
    settings: PeerSettings,
    session: Tunn,
    way: Way,
}

const NOW: Time = Time::from_nanos(1_000_000_000_000);

fn way(text: &str) -> Way {
    Way { socket: 0, to: text.parse().unwrap(), here: None }
}

impl Client {
    fn new(n: u8, relay: PublicKey) -> Self {
        let key = PrivateKey::generate().unwrap();
        let settings = PeerSettings {
            key: key.public(),
            v4: Ipv4Addr::new(10, 77, 0, n),
            v6: format!("fd77::{n}").parse().unwrap(),
            account: format!("a{n}"),
            device: "phone".into(),
            barred: None,
        };
        let session = Tunn::new(key.secret(), relay.half(), None, None, 7, None);
        Self { settings, session, way: way(&format!("192.0.2.{n}:4000")) }
    }

    fn begin(&mut self) -> Vec<u8> {
        let mut room = vec![0; 2_000];
        match self.session.format_handshake_initiation(&mut room, true) {
            TunnResult::WriteToNetwork(bytes) => bytes.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    fn seal(&mut self, packet: &[u8]) -> Vec<u8> {
        let mut room = vec![0; 2_000];
        match self.session.encapsulate(packet, &mut room) {
            TunnResult::WriteToNetwork(bytes) => bytes.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    /// Takes in a datagram; what it is answered with, or what is in it.
    fn open(&mut self, datagram: &[u8]) -> Vec<u8> {
        let mut room = vec![0; 2_000];
        match self.session.decapsulate(None, datagram, &mut room) {
            TunnResult::WriteToNetwork(bytes)
            | TunnResult::WriteToTunnelV4(bytes, _)
            | TunnResult::WriteToTunnelV6(bytes, _) => bytes.to_vec(),
            TunnResult::Done => Vec::new(),
            TunnResult::Err(error) => panic!("{error:?}"),
        }
    }

    /// Begins a handshake, and once more with the cookie that it gets.
    fn proves_itself(&mut self, relay: &mut Engine, now: Time, out: &mut Kept) {
        for _ in 0..2 {
            let begin = self.begin();
            relay.on_datagram(now, self.way, &begin, &mut Usual, out);
            let Some((_, answer)) = out.sent.pop() else { break };
            self.open(&answer);
        }
    }

    /// A whole handshake.
    fn join(&mut self, relay: &mut Engine) {
        let mut out = Kept::default();
        let begin = self.begin();
        relay.on_datagram(NOW, self.way, &begin, &mut Usual, &mut out);
        let (to, answer) = out.sent.pop().expect("an answer");
        assert_eq!(to, self.way);
        let keepalive = self.open(&answer);
        relay.on_datagram(NOW, self.way, &keepalive, &mut Usual, &mut out);
        assert!(out.sent.is_empty() && out.delivered.is_empty());
    }
}

/// An open relay with so many phones.
fn relay(clients: u8) -> (Engine, Vec<Client>) {
    let mut relay = Engine::new(PrivateKey::generate().unwrap());
    relay.set_open(true);
    let clients: Vec<Client> = (2..2 + clients).map(|n| Client::new(n, relay.public())).collect();
    relay.set_peers(clients.iter().map(|client| client.settings.clone()).collect());
    (relay, clients)
}

fn sends(relay: &mut Engine, client: &mut Client, packet: &[u8]) -> Kept {
    let mut out = Kept::default();
    let datagram = client.seal(packet);
    relay.on_datagram(NOW, client.way, &datagram, &mut Usual, &mut out);
    out
}

fn packet(from: &str, to: &str, port: u16) -> Vec<u8> {
    udp((from.parse().unwrap(), 4_000), (to.parse().unwrap(), port), b"hello")
}

#[test]
fn packets_pass_both_ways_and_are_counted() {
    let (mut relay, mut clients) = relay(1);
    let client = &mut clients[0];
    client.join(&mut relay);
    for (own, other) in [("10.77.0.2", "192.0.2.9"), ("fd77::2", "2001:db8::9")] {
        let up = packet(own, other, 443);
        assert_eq!(sends(&mut relay, client, &up).delivered, [up]);
        let down = packet(other, own, 4_000);
        let mut out = Kept::default();
        relay.on_packet(NOW, &down, &mut Usual, &mut out);
        assert_eq!((out.sent.len(), out.sent[0].0), (1, client.way));
        assert_eq!(client.open(&out.sent[0].1), down);
    }
    let peers = relay.snapshot(NOW);
    assert_eq!((peers[0].received, peers[0].sent), (33 + 53, 33 + 53));
    assert!(peers[0].handshake.is_some_and(|at| NOW.since(at) < Span::from_secs(60)));
    assert_eq!(
        relay.counts(),
        Counts { handshakes: 1, keepalives: 1, received: 86, sent: 86, ..Counts::default() }
    );
}

#[test]
fn keepalives_and_packets_that_cannot_be_read_are_counted_as_such() {
    let (mut relay, mut clients) = relay(1);
    let client = &mut clients[0];
    client.join(&mut relay);
    for _ in 0..3 {
        assert!(sends(&mut relay, client, &[]).delivered.is_empty());
    }
    let fine = packet("fd77::2", "2001:db8::9", 443);
    // the first names a head that is not there, and boringtun does not take the others
    let mut routed = fine.clone();
    routed[6] = 43;
    for bytes in [&routed[..], &fine[..fine.len() - 1], &fine[..7], &[0x70; 60]] {
        assert!(sends(&mut relay, client, bytes).delivered.is_empty());
    }
    let expected = Counts { handshakes: 1, keepalives: 4, unreadable: 4, ..Counts::default() };
    assert_eq!(relay.counts(), expected);
    assert_eq!(sends(&mut relay, client, &fine).delivered, [fine]);
}

#[test]
fn a_peer_sends_from_its_own_addresses_alone() {
    let (mut relay, mut clients) = relay(2);
    for client in &mut clients {
        client.join(&mut relay);
    }
    for forged in ["10.77.0.3", "192.168.1.1", "127.0.0.1", "fd77::3", "::1"] {
        let to = if forged.contains(':') { "2001:db8::9" } else { "192.0.2.9" };
        let out = sends(&mut relay, &mut clients[0], &packet(forged, to, 443));
        assert!(out.delivered.is_empty(), "{forged}");
    }
    assert_eq!(relay.counts().forged, 5);
    // nor does it get what is for another
    let mut out = Kept::default();
    relay.on_packet(NOW, &packet("192.0.2.9", "10.77.0.3", 1), &mut Usual, &mut out);
    assert_eq!(out.sent[0].0, clients[1].way);
    relay.on_packet(NOW, &packet("192.0.2.9", "10.77.0.4", 1), &mut Usual, &mut out);
    assert_eq!((out.sent.len(), relay.counts().undelivered), (1, 1));
}

#[test]
fn the_gate_and_a_closed_door_stop_packets() {
    let (mut relay, mut clients) = relay(1);
    clients[0].join(&mut relay);
    let mail = packet("10.77.0.2", "192.0.2.9", 25);
    assert!(sends(&mut relay, &mut clients[0], &mail).delivered.is_empty());
    let web = packet("10.77.0.2", "192.0.2.9", 443);
    relay.set_open(false);
    assert!(sends(&mut relay, &mut clients[0], &web).delivered.is_empty());
    assert_eq!((relay.counts().refused, relay.counts().undelivered), (1, 1));
}

#[test]
fn a_peer_that_moves_is_followed_by_data_and_not_by_a_repeated_handshake() {
    let (mut relay, mut clients) = relay(1);
    let client = &mut clients[0];
    let first = client.begin();
    let mut out = Kept::default();
    relay.on_datagram(NOW, client.way, &first, &mut Usual, &mut out);
    let keepalive = client.open(&out.sent[0].1);
    relay.on_datagram(NOW, client.way, &keepalive, &mut Usual, &mut out);
    // somebody repeats what was seen on the way
    let elsewhere = way("198.51.100.6:9");
    let mut out = Kept::default();
    relay.on_datagram(NOW, elsewhere, &first, &mut Usual, &mut out);
    relay.on_datagram(NOW, elsewhere, &keepalive, &mut Usual, &mut out);
    assert!(out.sent.is_empty() && relay.counts().invalid == 2, "{:?}", relay.counts());
    assert_eq!(relay.snapshot(NOW)[0].endpoint, Some(client.way.to));
    // the phone leaves the house
    client.way = way("203.0.113.5:77");
    sends(&mut relay, client, &packet("10.77.0.2", "192.0.2.9", 443));
    let mut out = Kept::default();
    relay.on_packet(NOW, &packet("192.0.2.9", "10.77.0.2", 4_000), &mut Usual, &mut out);
    assert_eq!(out.sent[0].0, client.way);
}

#[test]
fn a_stranger_gets_no_answer() {
    let (mut relay, _) = relay(1);
    let mut stranger = Client::new(9, relay.public());
    let mut out = Kept::default();
    let begin = stranger.begin();
    relay.on_datagram(NOW, stranger.way, &begin, &mut Usual, &mut out);
    assert_eq!(relay.counts().unknown, 1);
    // one that does not know the relay's key, and noise
    let mut lost = Client::new(9, PrivateKey::generate().unwrap().public());
    let noise =
        [vec![], vec![0; 3], vec![4; 200], vec![1, 0, 0, 0], vec![4, 0, 0, 0], lost.begin()];
    for bytes in &noise {
        relay.on_datagram(NOW, stranger.way, bytes, &mut Usual, &mut out);
    }
    let mut data = vec![0; 80];
    data[0] = 4;
    relay.on_datagram(NOW, stranger.way, &data, &mut Usual, &mut out);
    assert_eq!(relay.counts().invalid, noise.len() as u64 + 1);
    assert!(out.sent.is_empty() && out.delivered.is_empty());
}

#[test]
fn under_load_a_source_proves_its_address_and_keeps_within_its_limit() {
    let (mut relay, mut clients) = relay(1);
    let mut out = Kept::default();
    // one source alone is stopped by its own limit first
    for _ in 0..100 {
        let begin = clients[0].begin();
        relay.on_datagram(NOW, clients[0].way, &begin, &mut Usual, &mut out);
    }
    assert_eq!((relay.counts().handshakes, relay.counts().cookies), (20, 80));
    // from many addresses, which nobody has proved
    let mut lost = Client::new(9, relay.public());
    let begin = lost.begin();
    let mut answers = Kept::default();
    for n in 0..1_000_u32 {
        let from = way(&format!("198.51.{}.{}:7", n / 256, n % 256));
        relay.on_datagram(NOW, from, &begin, &mut Usual, &mut answers);
    }
    assert_eq!((relay.counts().unknown, relay.counts().cookies), (80, 1_000));
    assert_eq!(answers.sent.len(), 920);
    assert!(
        answers.sent.iter().all(|(_, answer)| answer.len() < begin.len()),
        "nothing is amplified"
    );
    // a peer with its cookie comes in all the same
    let client = &mut clients[0];
    client.way = way("203.0.113.5:77");
    for _ in 0..2 {
        let begin = client.begin();
        let mut out = Kept::default();
        relay.on_datagram(NOW, client.way, &begin, &mut Usual, &mut out);
        client.open(&out.sent.pop().unwrap().1);
    }
    let up = packet("10.77.0.2", "192.0.2.9", 443);
    assert_eq!(sends(&mut relay, client, &up).delivered, [up]);
}

#[test]
fn many_networks_have_few_handshakes_and_peers_come_in_from_where_they_are() {
    let (mut relay, mut clients) = relay(2);
    clients[0].join(&mut relay);
    // where it is counts from here on
    relay.on_tick(NOW, &mut Usual, &mut Kept::default());
    // a client that was removed, who has a /56 and returns each cookie
    let mut lost = Client::new(9, relay.public());
    let mut out = Kept::default();
    for tenth in 0..10 {
        let now = NOW + Span::from_millis(tenth * 100);
        for n in 0..256 {
            lost.way = way(&format!("[2001:db8:0:{n:x}::1]:7"));
            lost.proves_itself(&mut relay, now, &mut out);
        }
    }
    // of a hundred without a proof one was the first client's
    let counts = relay.counts();
    assert_eq!((counts.unknown, relay.worked_on()), (99 + 45 + 100 + 45, 290), "{counts:?}");
    assert!(counts.limited > 2_000, "{counts:?}");
    let now = NOW + Span::from_millis(900);
    for (n, comes_in) in [(0, true), (1, false)] {
        let before = relay.counts();
        clients[n].proves_itself(&mut relay, now, &mut out);
        assert_eq!(relay.counts().handshakes - before.handshakes, u64::from(comes_in));
        assert_eq!(relay.counts().limited - before.limited, u64::from(!comes_in));
    }
    let up = packet("10.77.0.2", "192.0.2.9", 443);
    assert_eq!(sends(&mut relay, &mut clients[0], &up).delivered, [up]);
}

#[test]
fn answers_to_handshakes_are_limited_as_handshakes_are() {
    let (mut relay, mut clients) = relay(1);
    let client = &mut clients[0];
    client.join(&mut relay);
    // the relay begins, and somebody who knows its public key alone answers in place of the client
    let session = relay.session(&client.settings, 0);
    if let Some(Some(peer)) = relay.peers.get_mut(0) {
        peer.session = session;
        peer.is_active = false;
    }
    let mut out = Kept::default();
    relay.on_packet(NOW, &packet("192.0.2.9", "10.77.0.2", 1), &mut Usual, &mut out);
    let answer = client.open(&out.sent.pop().expect("a handshake").1);
    let mut stranger = Client::new(9, relay.public());
    let mut room = vec![0; 2_000];
    let TunnResult::WriteToNetwork(begin) =
        relay.session(&stranger.settings, 0).format_handshake_initiation(&mut room, true)
    else {
        panic!("no handshake");
    };
    let forged = stranger.open(begin);
    assert_eq!(forged[..12][8..], answer[..12][8..], "it names the same session");
    for _ in 0..100 {
        relay.on_datagram(NOW, stranger.way, &forged, &mut Usual, &mut out);
    }
    assert_eq!((relay.counts().cookies, relay.counts().invalid), (80, 20));
    for n in 0..1_000_u32 {
        let from = way(&format!("198.51.{}.{}:7", n / 256, n % 256));
        relay.on_datagram(NOW, from, &forged, &mut Usual, &mut out);
    }
    // one of a hundred was the client's
    assert_eq!((relay.counts().cookies, relay.counts().invalid), (80 + 921, 99));
    assert!(out.sent.iter().all(|(_, cookie)| cookie.len() < forged.len()));
    // when the load is over, the true answer completes the handshake
    let mut out = Kept::default();
    relay.on_datagram(NOW + Span::from_secs(2), client.way, &answer, &mut Usual, &mut out);
    let opened: Vec<Vec<u8>> = out.sent.iter().map(|(_, bytes)| client.open(bytes)).collect();
    assert!(opened.iter().any(|bytes| bytes.ends_with(b"hello")), "{opened:?}");
}

#[test]
fn peers_come_and_go_and_those_that_stay_keep_their_sessions() {
    let (mut relay, mut clients) = relay(3);
    for client in &mut clients {
        client.join(&mut relay);
    }
    let all: Vec<PeerSettings> = clients.iter().map(|client| client.settings.clone()).collect();
    // the first leaves, the second is barred, another takes the first one's address
    let mut fresh = Client::new(2, relay.public());
    let barred = PeerSettings { barred: Some("disabled".into()), ..all[1].clone() };
    let left =
        relay.set_peers(vec![barred, all[2].clone(), fresh.settings.clone(), all[0].clone()]);
    let expected: [IpAddr; 4] =
        ["10.77.0.2", "10.77.0.3", "fd77::2", "fd77::3"].map(|ip| ip.parse().unwrap());
    assert_eq!(left, expected, "one has another peer now, and one has none");
    let stays = packet("10.77.0.4", "192.0.2.9", 443);
    assert_eq!(sends(&mut relay, &mut clients[2], &stays).delivered, [stays]);
    for n in [0, 1] {
        let own = clients[n].settings.v4.to_string();
        let out = sends(&mut relay, &mut clients[n], &packet(&own, "192.0.2.9", 443));
        assert!(out.delivered.is_empty() && out.sent.is_empty());
        let begin = clients[n].begin();
        let mut out = Kept::default();
        relay.on_datagram(NOW, clients[n].way, &begin, &mut Usual, &mut out);
        assert!(out.sent.is_empty(), "no service, so no answer");
    }
    fresh.join(&mut relay);
    let up = packet("10.77.0.2", "192.0.2.9", 443);
    assert_eq!(sends(&mut relay, &mut fresh, &up).delivered, [up]);
    let keys: Vec<PublicKey> = relay.snapshot(NOW).iter().map(|peer| peer.settings.key).collect();
    assert_eq!(keys, [fresh.settings.key, all[1].key, all[2].key]);
    // it may come in again
    assert_eq!(relay.set_peers(all.clone()).len(), 2);
    assert!(relay.set_peers(all.clone()).is_empty());
    assert_eq!(relay.snapshot(NOW).len(), 3);
    clients[1].join(&mut relay);
    relay.set_peers(Vec::new());
    assert!(relay.snapshot(NOW).is_empty());
}

#[test]
fn packets_for_a_peer_whose_session_is_over_wait_for_the_next() {
    let (mut relay, mut clients) = relay(1);
    let client = &mut clients[0];
    client.join(&mut relay);
    // its session is gone, and where it was is known
    let settings = client.settings.clone();
    let session = relay.session(&settings, 0);
    if let Some(Some(peer)) = relay.peers.get_mut(0) {
        peer.session = session;
        peer.is_active = false;
    }
    let ends = ("192.0.2.9".parse().unwrap(), 443);
    let down = tcp(ends, (IpAddr::V4(client.settings.v4), 5_000), 7, b"news");
    let mut out = Kept::default();
    relay.on_packet(NOW, &down, &mut Usual, &mut out);
    let (to, begin) = out.sent.pop().expect("a handshake");
    assert_eq!((to, begin[0]), (client.way, INITIATION));
    let answer = client.open(&begin);
    relay.on_datagram(NOW, client.way, &answer, &mut Usual, &mut out);
    let received: Vec<Vec<u8>> = out.sent.iter().map(|(_, bytes)| client.open(bytes)).collect();
    assert!(received.contains(&down), "{received:?}");
}

#[test]
fn a_secret_is_a_scalar_of_the_curve() {
    let key = PrivateKey::generate().unwrap();
    let again = x25519::StaticSecret::from(*key.secret().as_bytes());
    assert_eq!(PublicKey::from(x25519::PublicKey::from(&again).to_bytes()), key.public());
}
