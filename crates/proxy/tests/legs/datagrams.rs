//! UDP ASSOCIATE as a client, the servers it speaks to, and strangers see it.

use crate::harness::*;
use crate::name_server::{NameServer, SPECIAL, Say, addresses};
use crate::upstream;
use ekiden_model::units::Span;
use ekiden_proxy::observe::status::UdpStatus;
use ekiden_proxy::settings::{AccessLog, Family, HostPattern, Pattern, Rule, Settings, Udp};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

/// Silence after which nothing is taken to come: wrong, it would only come a little later.
const SILENCE: Duration = Duration::from_millis(200);

/// A client with an association.
struct Client {
    tcp: TcpStream,
    udp: UdpSocket,
    /// Where its datagrams go.
    port: SocketAddr,
}

/// The reply's code, and where datagrams are to go.
fn ask(relay: SocketAddr) -> (u8, SocketAddr, TcpStream) {
    asked(TcpStream::connect(relay).unwrap())
}

fn asked(mut tcp: TcpStream) -> (u8, SocketAddr, TcpStream) {
    tcp.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    tcp.write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    let mut head = [0; 6];
    tcp.read_exact(&mut head).unwrap();
    assert_eq!(head[..3], [5, 0, 5]);
    let mut rest = vec![0; if head[5] == 4 { 18 } else { 6 }];
    tcp.read_exact(&mut rest).unwrap();
    let (ip, port) = rest.split_at(rest.len() - 2);
    let ip: IpAddr = match <[u8; 4]>::try_from(ip) {
        Ok(four) => four.into(),
        Err(_) => <[u8; 16]>::try_from(ip).unwrap().into(),
    };
    (head[3], SocketAddr::new(ip, u16::from_be_bytes([port[0], port[1]])), tcp)
}

fn socket(ip: IpAddr) -> UdpSocket {
    let udp = UdpSocket::bind((ip, 0)).unwrap();
    udp.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    udp
}

impl Client {
    fn of(relay: &Relay) -> Self {
        let (reply, port, tcp) = ask(relay.address);
        assert_eq!(reply, 0);
        assert_eq!(port.ip(), relay.address.ip());
        let own = tcp.local_addr().unwrap().ip();
        Self { tcp, udp: socket(own), port }
    }

    fn send(&self, to: SocketAddr, payload: &[u8]) {
        self.send_raw(&[&head(to), payload].concat());
    }

    fn send_raw(&self, datagram: &[u8]) {
        self.udp.send_to(datagram, self.port).unwrap();
    }

    /// What comes, and from whom the header says.
    fn receive(&self) -> (SocketAddr, Vec<u8>) {
        let mut buffer = vec![0; 65_536];
        let (n, from) = self.udp.recv_from(&mut buffer).unwrap();
        assert_eq!(from, self.port);
        let (to, at) = ekiden_proxy::wire::socks::read_datagram(&buffer[..n]).unwrap();
        let from = to.to_string().parse().unwrap();
        (from, buffer[at..n].to_vec())
    }

    fn hears_nothing(&self) {
        self.udp.set_read_timeout(Some(SILENCE)).unwrap();
        let heard = self.udp.recv_from(&mut [0; 100]);
        assert!(matches!(&heard, Err(error) if error.kind() == ErrorKind::WouldBlock), "{heard:?}");
        self.udp.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    }
}

fn head(to: SocketAddr) -> Vec<u8> {
    ekiden_proxy::wire::socks::write_datagram_head(to)
}

fn named(name: &str, port: u16) -> Vec<u8> {
    let mut head = vec![0, 0, 0, 3, name.len() as u8];
    head.extend(name.as_bytes());
    head.extend(port.to_be_bytes());
    head
}

/// A server: what it receives, and from where.
struct Server(UdpSocket);

impl Server {
    fn new() -> Self {
        Self(socket([127, 0, 0, 1].into()))
    }

    fn at(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    fn receive(&self) -> (SocketAddr, Vec<u8>) {
        let mut buffer = vec![0; 65_536];
        let (n, from) = self.0.recv_from(&mut buffer).unwrap();
        (from, buffer[..n].to_vec())
    }

    fn answer(&self, to: SocketAddr, payload: &[u8]) {
        self.0.send_to(payload, to).unwrap();
    }

    fn hears_nothing(&self) {
        self.0.set_read_timeout(Some(SILENCE)).unwrap();
        assert!(self.0.recv_from(&mut [0; 100]).is_err());
        self.0.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    }
}

fn counts(relay: &Relay) -> UdpStatus {
    relay.status().udp
}

fn with(change: impl FnOnce(&mut Settings)) -> Relay {
    let mut settings = settings();
    change(&mut settings);
    Relay::start(settings)
}

/// A question and its answer by this association.
fn speaks(client: &Client, server: &Server) -> SocketAddr {
    client.send(server.at(), b"ask");
    let (from, asked) = server.receive();
    assert_eq!(asked, b"ask");
    server.answer(from, b"answer");
    assert_eq!(client.receive(), (server.at(), b"answer".to_vec()));
    from
}

#[test]
fn datagrams_flow_both_ways_until_the_connection_ends() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("access");
    let relay = with(|settings| {
        settings.access_log = AccessLog::File(log.clone());
        // where nobody else takes a port that was given back
        settings.listen = vec![([127, 0, 0, 77], 0).into()];
    });
    let (client, server) = (Client::of(&relay), Server::new());
    speaks(&client, &server);
    // empty and large ones, too
    for payload in [vec![], vec![7; 40_000]] {
        client.send(server.at(), &payload);
        let (from, got) = server.receive();
        assert!(got == payload);
        server.answer(from, &payload);
        assert!(client.receive().1 == payload);
    }
    // counted once it is sent
    wait_for("counts(&relay).datagrams_down == 3", || counts(&relay).datagrams_down == 3);
    let connection =
        eventually("the answer's bytes", || Some(relay.relayed()).filter(|one| one.bytes_down > 6));
    assert_eq!((connection.protocol.as_str(), connection.state.as_str()), ("udp", "relaying"));
    assert_eq!((connection.bytes_up, connection.bytes_down), (40_003, 40_006));
    assert_eq!(connection.destination, Some(format!("UDP at {}", client.port)));
    let status = counts(&relay);
    assert_eq!((status.associations, status.datagrams_up, status.datagrams_down), (1, 3, 3));
    let Client { tcp, udp, port } = client;
    drop(tcp);
    wait_for("counts(&relay).associations == 0", || counts(&relay).associations == 0);
    // the port is gone
    udp.connect(port).unwrap();
    eventually("the state", || {
        let _ = udp.send(b"x");
        std::thread::sleep(Duration::from_millis(5));
        matches!(udp.send(b"x"), Err(error) if error.kind() == ErrorKind::ConnectionRefused)
            .then_some(())
    });
    let line = eventually("the state", || {
        Some(std::fs::read_to_string(&log).ok()?).filter(|text| text.ends_with('\n'))
    });
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["protocol"], &line["status"]), (&"udp".into(), &0.into()));
    assert_eq!((&line["bytes_up"], &line["bytes_down"]), (&40_003.into(), &40_006.into()));
    assert_eq!(line["result"], "closed; 3 datagrams up, 3 down");
}

#[test]
fn ipv6_on_both_sides() {
    let Ok(server) = UdpSocket::bind("[::1]:0") else { return skip("no IPv6 here") };
    server.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let server = Server(server);
    // by IPv4 and by IPv6 to the relay
    for at in ["127.0.0.1:0", "[::1]:0"] {
        let relay = with(|settings| settings.listen = vec![at.parse().unwrap()]);
        let client = Client::of(&relay);
        speaks(&client, &server);
        speaks(&client, &Server::new());
        // an IPv4 address in an IPv6 one is that address
        let mapped = Server::new();
        let IpAddr::V4(v4) = mapped.at().ip() else { unreachable!() };
        let mut wrapped = vec![0, 0, 0, 4];
        wrapped.extend(v4.to_ipv6_mapped().octets());
        wrapped.extend(mapped.at().port().to_be_bytes());
        client.send_raw(&wrapped);
        mapped.answer(mapped.receive().0, b"x");
        assert_eq!(client.receive().0, mapped.at());
    }
}

#[test]
fn resolves_names_once_per_association() {
    let names = NameServer::start(&[
        ("there.example", addresses(&["127.0.0.1"]), addresses(&[])),
        ("inside.example", addresses(&["10.0.0.1"]), addresses(&[])),
        // the first of them may not be reached
        ("both.example", addresses(&["127.0.0.1"]), addresses(&["fe80::1"])),
    ]);
    let relay = with(|settings| {
        settings.dns.servers = vec![names.address.into()];
        settings.dns.max_ttl = Span::ZERO;
        let private = HostPattern::Net("10.0.0.0/8".parse().unwrap());
        let to = vec![Pattern { host: private, ports: None }];
        let (from, allow_destinations) = (vec![], vec![]);
        settings.access.rules =
            vec![Rule { from, peers: vec![], to, allow: false, allow_destinations }];
    });
    let (client, server) = (Client::of(&relay), Server::new());
    for n in 0..3 {
        client.send_raw(&[&named("there.example", server.at().port())[..], &[n]].concat());
        let (from, asked) = server.receive();
        assert_eq!(asked, [n]);
        server.answer(from, b"answer");
        // the header of an answer has the address
        assert_eq!(client.receive(), (server.at(), b"answer".to_vec()));
    }
    assert_eq!(names.asked("there.example", false), 1, "what follows goes to the same address");
    client.send_raw(&named("both.example", server.at().port()));
    server.receive();
    client.send_raw(&named("inside.example", 53));
    wait_for("counts(&relay).refused == 1", || counts(&relay).refused == 1);
    client.send_raw(&named("nowhere.example", 53));
    wait_for("counts(&relay).undelivered == 1", || counts(&relay).undelivered == 1);
    wait_for("counts(&relay).datagrams_up == 4", || counts(&relay).datagrams_up == 4);
    wait_for("relay.relayed().bytes_up == 3", || relay.relayed().bytes_up == 3);
}

#[test]
fn tries_the_next_address_when_one_does_not_answer() {
    let names =
        NameServer::start(&[("both.example", addresses(&["127.0.0.1"]), addresses(&["::1"]))]);
    let relay = with(|settings| settings.dns.servers = vec![names.address.into()]);
    // nobody is there on IPv6, which is tried first
    let (client, server) = (Client::of(&relay), Server::new());
    let datagram = [&named("both.example", server.at().port())[..], b"x"].concat();
    server.0.set_read_timeout(Some(SILENCE)).unwrap();
    let from = eventually("the state", || {
        client.send_raw(&datagram);
        Some(server.0.recv_from(&mut [0; 9]).ok()?.1)
    });
    server.answer(from, b"answer");
    assert_eq!(client.receive().0, server.at());
    // who has answered is spoken to for good
    std::thread::sleep(Duration::from_millis(1_200));
    for _ in 0..2 {
        client.send_raw(&datagram);
        server.receive();
    }
}

#[test]
fn rules_and_special_addresses_hold_for_datagrams() {
    let server = Server::new();
    let denied = HostPattern::Net("127.0.0.0/8".parse().unwrap());
    let port = server.at().port();
    let rule = Rule {
        from: vec![],
        peers: vec![],
        to: vec![Pattern { host: denied, ports: Some((port, port)) }],
        allow: false,
        allow_destinations: vec![],
    };
    let relay = with(|settings| settings.access.rules = vec![rule]);
    let client = Client::of(&relay);
    client.send(server.at(), b"x");
    speaks(&client, &Server::new());
    // this relay itself, and what nobody opened
    for to in [relay.address.to_string(), "169.254.169.254:53".into(), "224.0.0.251:5353".into()] {
        client.send(to.parse().unwrap(), b"x");
    }
    wait_for("counts(&relay).refused == 4", || counts(&relay).refused == 4);
    server.hears_nothing();
    // loopback, where it was not opened
    let closed = with(|settings| settings.access.allow_destinations = vec![]);
    let client = Client::of(&closed);
    client.send(server.at(), b"x");
    wait_for("counts(&closed).refused == 1", || counts(&closed).refused == 1);
    // and so at the door of HTTP, before anything is answered
    let (own, port) = (relay.address.port(), server.at().port());
    for (relay, host, port, status) in [
        (&relay, "127.0.0.1", port, "403 Forbidden"),
        (&relay, "::ffff:127.0.0.1", port, "403 Forbidden"),
        (&relay, "127.0.0.1", own, "508 Loop Detected"),
        (&closed, "127.0.0.1", port, "403 Forbidden"),
        (&closed, "::1", port, "403 Forbidden"),
        (&closed, "::ffff:127.0.0.1", port, "403 Forbidden"),
        (&closed, "0.0.0.0", port, "403 Forbidden"),
        (&closed, "169.254.169.254", 53, "403 Forbidden"),
        (&closed, "::ffff:169.254.169.254", 53, "403 Forbidden"),
        (&closed, "64:ff9b::a9fe:a9fe", 53, "403 Forbidden"),
        (&closed, "2002:7f00:1::1", 53, "403 Forbidden"),
        (&closed, "224.0.0.251", 5353, "403 Forbidden"),
        (&closed, "fe80::1", 53, "403 Forbidden"),
    ] {
        let (head, _) = connect_udp(relay.address, host, port);
        assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{host}:{port}: {head}");
        assert!(head.contains("\r\nProxy-Status: relay-"), "{head}");
    }
    server.hears_nothing();
}

#[test]
fn datagrams_to_names_of_special_addresses_are_refused() {
    let names = NameServer::of_special_addresses();
    let relay = with(|settings| {
        settings.access.allow_destinations = vec![];
        settings.dns.servers = vec![names.address.into()];
    });
    let (client, server) = (Client::of(&relay), Server::new());
    for name in SPECIAL {
        let head = named(&format!("{name}.test"), server.at().port());
        client.send_raw(&[&head[..], b"x"].concat());
    }
    wait_for("counts(&relay).refused == 6", || counts(&relay).refused == 6);
    server.hears_nothing();
}

#[test]
fn datagrams_to_a_translators_addresses_are_refused_as_those_to_ipv4() {
    let names = NameServer::start(&[
        ("metadata.test", addresses(&[]), addresses(&["100:0:0:2::169.254.169.254"])),
        ("denied.test", addresses(&[]), addresses(&["100:0:0:2::9.9.9.9"])),
    ]);
    let denied = HostPattern::Net("9.9.9.0/24".parse().unwrap());
    let to = vec![Pattern { host: denied, ports: None }];
    let relay = with(|settings| {
        settings.access.rules = vec![Rule { to, ..Rule::default() }];
        settings.dns.servers = vec![names.address.into()];
        settings.dns.nat64 = Some("100:0:0:2::/96".parse().unwrap());
    });
    let client = Client::of(&relay);
    for to in ["[100:0:0:2::a9fe:a9fe]:53", "[100:0:0:2::9.9.9.9]:53", "[64:ff9b::9.9.9.9]:53"] {
        client.send(to.parse().unwrap(), b"x");
    }
    for name in ["metadata.test", "denied.test"] {
        client.send_raw(&[named(name, 53), b"x".to_vec()].concat());
    }
    wait_for("counts(&relay).refused == 5", || counts(&relay).refused == 5);
}

#[test]
fn a_request_for_udp_names_what_is_wrong_with_a_name() {
    let names = NameServer::start(&[
        ("silent.example", Say::Nothing, Say::Nothing),
        ("broken.example", Say::ServerFailure, Say::ServerFailure),
        ("empty.example", addresses(&[]), addresses(&[])),
        // the first of them may not be reached
        ("both.example", addresses(&["127.0.0.1"]), addresses(&["fe80::1"])),
    ]);
    let relay = with(|settings| {
        settings.dns.servers = vec![names.address.into()];
        settings.timeouts.resolve = Span::from_secs(2);
    });
    for (name, status, error) in [
        ("nowhere.example", "502 Bad Gateway", "dns_error"),
        ("broken.example", "502 Bad Gateway", "dns_error"),
        ("empty.example", "502 Bad Gateway", "dns_error"),
    ] {
        let (head, _) = connect_udp(relay.address, name, 53);
        assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{name}: {head}");
        assert!(head.contains(&format!("; error={error}\r\n")), "{name}: {head}");
    }
    // the library may give up just before the limit
    let (head, _) = connect_udp(relay.address, "silent.example", 53);
    let (late, gave_up) = ("504 Gateway Timeout", "502 Bad Gateway");
    assert!(head.contains(late) || head.contains(gave_up), "{head}");
    assert!(head.contains("error=dns_timeout") || head.contains("error=dns_error"), "{head}");
    wait_for("nothing is left", || counts(&relay).associations == 0);
    // the name is resolved once, for the answer
    let server = Server::new();
    let (head, mut stream) = connect_udp(relay.address, "both.example", server.at().port());
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    for _ in 0..2 {
        stream.write_all(b"\x00\x04\x00ask").unwrap();
        let (from, asked) = server.receive();
        assert_eq!(asked, b"ask");
        server.answer(from, b"answer");
        let mut answer = [0; 9];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"\x00\x07\x00answer");
    }
    assert_eq!(names.asked("both.example", false), 1);
}

#[test]
fn ever_new_names_of_datagrams_have_a_rate() {
    let names = NameServer::start(&[]);
    let relay = with(|settings| {
        settings.dns.servers = vec![names.address.into()];
        settings.dns.prefer = Family::Ipv4Only;
        // fifty at once
        settings.dns.rate = 1;
    });
    // by both doors
    let above = (0..1_000).find(|n| {
        let (head, _) = connect_udp(relay.address, &format!("n{n}.example"), 53);
        head.starts_with("HTTP/1.1 503 ")
    });
    assert!(above.is_some(), "no name was above the rate");
    let limited = || relay.status().dns.map_or(0, |dns| dns.names_limited);
    let (client, before) = (Client::of(&relay), limited());
    let mut sent = 0;
    wait_for("a datagram's name is above the rate", || {
        for _ in 0..10 {
            sent += 1;
            client.send_raw(&[named(&format!("m{sent}.example"), 53), b"x".to_vec()].concat());
        }
        limited() > before
    });
}

#[test]
fn drops_fragments_and_malformed_datagrams() {
    let (relay, server) = (with(|_| {}), Server::new());
    let client = Client::of(&relay);
    let good = head(server.at());
    for (at, byte) in [(2, 1), (2, 0x81), (0, 1), (1, 1), (3, 2)] {
        let mut bad = good.clone();
        bad[at] = byte;
        client.send_raw(&[&bad[..], b"bad"].concat());
    }
    client.send_raw(&good[..9]);
    client.send_raw(&[]);
    wait_for("counts(&relay).malformed == 7", || counts(&relay).malformed == 7);
    speaks(&client, &server);
    wait_for("counts(&relay).datagrams_up == 1", || counts(&relay).datagrams_up == 1);
}

#[test]
fn drops_datagrams_from_strangers_on_both_sides() {
    let (relay, server) = (with(|_| {}), Server::new());
    let client = Client::of(&relay);
    // before the client has spoken, somebody else on another address
    let stranger = socket([127, 0, 0, 2].into());
    let datagram = [&head(server.at())[..], b"x"].concat();
    stranger.send_to(&datagram, client.port).unwrap();
    wait_for("counts(&relay).foreign == 1", || counts(&relay).foreign == 1);
    let outside = speaks(&client, &server);
    // afterwards another port of the client's own address, too
    for stranger in [&stranger, &socket([127, 0, 0, 1].into())] {
        stranger.send_to(&datagram, client.port).unwrap();
    }
    wait_for("counts(&relay).foreign == 3", || counts(&relay).foreign == 3);
    server.hears_nothing();
    // who was not spoken to does not reach the client, on the same address neither
    for stranger in [stranger, socket(server.at().ip())] {
        stranger.send_to(b"x", outside).unwrap();
    }
    client.hears_nothing();
    server.answer(outside, b"once more");
    assert_eq!(client.receive().1, b"once more");
    // and two clients have nothing of each other
    let other = Client::of(&relay);
    assert_ne!(speaks(&other, &server), outside);
    client.hears_nothing();
}

#[test]
fn a_datagram_that_cannot_be_read_takes_no_association() {
    let (relay, server) = (with(|_| {}), Server::new());
    let client = Client::of(&relay);
    // behind the same NAT, or another user of this machine
    let neighbour = socket(client.udp.local_addr().unwrap().ip());
    neighbour.send_to(b"?", client.port).unwrap();
    wait_for("counts(&relay).malformed == 1", || counts(&relay).malformed == 1);
    speaks(&client, &server);
    neighbour.send_to(&head(server.at()), client.port).unwrap();
    wait_for("counts(&relay).foreign == 1", || counts(&relay).foreign == 1);
}

#[test]
fn forgets_the_least_recently_used_destination() {
    let relay = with(|settings| settings.udp.destinations = 2);
    let client = Client::of(&relay);
    let servers = [Server::new(), Server::new(), Server::new()];
    let outside: Vec<_> = servers.iter().map(|server| speaks(&client, server)).collect();
    servers[0].answer(outside[0], b"late");
    client.hears_nothing();
    servers[1].answer(outside[1], b"in time");
    assert_eq!(client.receive().1, b"in time");
}

#[test]
fn silence_ends_an_association() {
    let relay = with(|settings| settings.udp.idle = Span::from_millis(400));
    let (mut client, server) = (Client::of(&relay), Server::new());
    speaks(&client, &server);
    assert_eq!(client.tcp.read(&mut [0]).unwrap(), 0);
    wait_for("counts(&relay).associations == 0", || counts(&relay).associations == 0);
}

#[test]
fn answers_without_end_do_not_keep_an_association_whose_client_is_silent() {
    let relay = with(|settings| settings.udp.idle = Span::from_secs(4));
    let (mut client, server) = (Client::of(&relay), Server::new());
    let outside = speaks(&client, &server);
    // the kernel says when the relay's socket is gone, however late this test sees the end
    server.0.connect(outside).unwrap();
    let answering = std::thread::spawn(move || {
        let is_there = |n: &u32| server.0.send(&n.to_be_bytes()).is_ok();
        (0_u32..)
            .take_while(is_there)
            .inspect(|_| std::thread::sleep(Duration::from_millis(40)))
            .count()
    });
    assert_eq!(client.tcp.read(&mut [0]).unwrap(), 0);
    let all = u32::try_from(answering.join().unwrap()).unwrap();
    // it ends when the server may not answer any more, and not as long after that
    client.udp.set_nonblocking(true).unwrap();
    let (mut buffer, mut last) = ([0; 100], 0);
    while let Ok(n) = client.udp.recv(&mut buffer) {
        last = u32::from_be_bytes(buffer[n - 4..n].try_into().unwrap());
    }
    assert!(last * 3 >= all * 2, "{last} of {all} answers reached the client");
}

/// The reply to an association that is not to be.
fn refused(settings: Settings) -> u8 {
    ask(Relay::start(settings).address).0
}

#[test]
fn refuses_associations_with_a_reason() {
    let off = Settings { udp: Udp { associations: 0, ..Udp::default() }, ..settings() };
    assert_eq!(refused(off), 7);
    // every route goes through a proxy, which carries none
    let mut through = settings();
    upstream::add(&mut through, "near", "socks5", loopback(9), None);
    through.routes = vec![route(vec![], &[&["near"]])];
    assert_eq!(refused(through.clone()), 7);
    // one of them does not, after the others or beside
    through.routes = vec![route(vec![], &[&["near"], &[]])];
    assert_eq!(refused(through.clone()), 0);
    let server = Server::new();
    let net = HostPattern::Net("127.0.0.0/8".parse().unwrap());
    let port = server.at().port();
    through.routes =
        vec![route(vec![Pattern { host: net, ports: Some((port, port)) }], &[&["near"]])];
    let relay = Relay::start(through);
    let client = Client::of(&relay);
    client.send(server.at(), b"x");
    wait_for("counts(&relay).refused == 1", || counts(&relay).refused == 1);
    server.hears_nothing();
    speaks(&client, &Server::new());
}

#[test]
fn limits_associations() {
    let relay = with(|settings| settings.udp.associations = 1);
    let first = Client::of(&relay);
    assert_eq!(ask(relay.address).0, 1);
    drop(first);
    wait_for("ask(relay.address).0 == 0", || ask(relay.address).0 == 0);
    // each has the places of two connections
    let relay = with(|settings| settings.budgets.connections = 3);
    let first = Client::of(&relay);
    assert_eq!(ask(relay.address).0, 1);
    drop(first);
    wait_for("ask(relay.address).0 == 0", || ask(relay.address).0 == 0);
}

#[test]
fn one_address_leaves_associations_to_others() {
    let relay = with(|settings| settings.udp.associations = 8);
    let greedy: Vec<_> = (0..8).map(|_| ask(relay.address)).collect();
    assert_eq!(greedy.iter().filter(|(reply, ..)| *reply == 0).count(), 4);
    let others: Vec<_> = (2..4).map(|last| ask_from(last, &relay)).collect();
    assert!(others.iter().all(|(reply, ..)| *reply == 0));
    assert_eq!(counts(&relay).associations, 6);
}

/// An association for another address of loopback.
fn ask_from(last: u8, relay: &Relay) -> (u8, SocketAddr, TcpStream) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, last], 0)).into()).unwrap();
    socket.connect(&relay.address.into()).unwrap();
    asked(socket.into())
}

#[test]
fn the_longest_idle_of_the_largest_ends_for_a_newcomer() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access");
    let relay = with(|settings| {
        settings.udp.associations = 3;
        settings.access_log = AccessLog::File(log.clone());
    });
    let mut large = [ask(relay.address), ask(relay.address)];
    let small = ask_from(2, &relay);
    let newcomer = ask_from(3, &relay);
    assert_eq!([large[0].0, large[1].0, small.0, newcomer.0], [0; 4]);
    assert_eq!(large[0].2.read(&mut [0]).unwrap(), 0, "its connection ends in order");
    assert_eq!((counts(&relay).associations, counts(&relay).gave_way), (3, 1));
    let line = eventually("its line", || {
        std::fs::read_to_string(&log).ok().filter(|text| text.ends_with('\n'))
    });
    let cut = "\"cut_by\":\"relay\",\"result\":\"its place went to another association";
    assert!(line.contains(cut), "{line}");
    // each has one
    assert_eq!([ask(relay.address).0, ask_from(2, &relay).0, ask_from(4, &relay).0], [1; 3]);
}

#[test]
fn evicts_an_idle_connection_for_an_association() {
    let relay = with(|settings| {
        settings.budgets.connections = 2;
        settings.pool.connections = 0;
    });
    let mut idle = TcpStream::connect(relay.address).unwrap();
    idle.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let echo = std::net::TcpListener::bind(loopback(0)).unwrap();
    let to = echo.local_addr().unwrap();
    write!(idle, "GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    let (mut origin, _) = echo.accept().unwrap();
    read_head(&mut origin);
    origin.write_all(b"HTTP/1.1 204 -\r\n\r\n").unwrap();
    read_head(&mut idle);
    wait_for("relay.status().idle.clients == 1", || relay.status().idle.clients == 1);
    let client = Client::of(&relay);
    speaks(&client, &Server::new());
    assert_eq!(idle.read(&mut [0]).unwrap(), 0);
}

#[test]
fn the_leg_s_source_is_the_source_of_datagrams() {
    let relay = with(|settings| {
        let socket = ekiden_linux::sockets::options::SocketOptions {
            source: Some([127, 0, 0, 9].into()),
            ..Default::default()
        };
        settings.legs.insert("direct".into(), leg(socket));
    });
    let client = Client::of(&relay);
    let outside = speaks(&client, &Server::new());
    assert_eq!(outside.ip(), IpAddr::from([127, 0, 0, 9]));
    // which is of one family
    client.send("[::1]:9".parse().unwrap(), b"x");
    wait_for("counts(&relay).undelivered == 1", || counts(&relay).undelivered == 1);
}
