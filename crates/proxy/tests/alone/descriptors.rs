//! When this process has no descriptor left for a connection to a destination, and how many one takes. One test after
//! the other: the limit is the whole process's.
use crate::common::descriptors;
use crate::common::wire::{Origin, Relay, Wire, get, ok};
use ekiden_model::units::Span;
use ekiden_proxy::settings::Rule;
use ekiden_testkit::{names, wait_for};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

/// Everything that can be opened, opened. Its drop sets the limit from before.
struct All {
    files: Vec<File>,
    before: Rlimit,
}

impl All {
    fn of_300() -> Self {
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(300), ..before }).unwrap();
        let files = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        Self { files, before }
    }

    /// Closes some.
    fn give(&mut self, count: usize) {
        self.files.truncate(self.files.len() - count);
    }
}

impl Drop for All {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.before).unwrap();
    }
}

fn answered(client: &mut Wire, origin: &Origin) {
    let mut server = origin.accept();
    server.head();
    server.send(ok("x"));
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    client.exactly(1);
}

#[test]
fn evicts_an_idle_connection_for_a_descriptor() {
    let _alone = crate::alone();
    let relay = Relay::with(|settings| settings.pool.connections = 0);
    let origin = Origin::new();
    let mut idle = relay.client();
    idle.send(get(&origin, "/", ""));
    answered(&mut idle, &origin);
    let mut client = relay.client();
    wait_for("one idles and one has come", || {
        let status = relay.status();
        status.idle.clients == 1 && status.connections.len() == 2
    });
    let mut rest = All::of_300();
    client.send(get(&origin, "/", ""));
    wait_for("one is closed", || !relay.status().pressure.evicted.is_empty());
    assert_eq!(relay.status().pressure.evicted[0].resource, "descriptors");
    // one for this test's own end
    rest.give(4);
    answered(&mut client, &origin);
    idle.is_gone();
}

#[test]
fn waits_a_second_for_a_descriptor() {
    let _alone = crate::alone();
    let relay = Relay::with(|settings| settings.pool.connections = 0);
    let origin = Origin::new();
    for ends in [true, false] {
        let mut client = relay.client();
        wait_for("it has come", || relay.status().connections.len() == 1);
        let mut rest = All::of_300();
        client.send(get(&origin, "/", ""));
        if ends {
            std::thread::sleep(Duration::from_millis(200));
            rest.give(4);
            answered(&mut client, &origin);
        } else {
            let head = client.until_end();
            assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
            assert!(head.contains("descriptor limit"), "{head}");
        }
        drop((client, rest));
        relay.settles();
    }
}

#[test]
fn a_public_address_is_not_taken_for_the_relay_s_own_machine() {
    let _alone = crate::alone();
    let relay = Relay::with(|settings| {
        settings.access.proxy_protocol_from = vec!["127.0.0.0/8".parse().unwrap()];
        settings.access.rules = vec![Rule { allow: true, ..Rule::default() }];
    });
    let mut client = relay.client();
    client.send("PROXY TCP4 8.8.8.8 127.0.0.1 4711 3128\r\n");
    wait_for("it has come", || relay.status().connections.len() == 1);
    let rest = All::of_300();
    client.send("GET http://9.9.9.9/ HTTP/1.1\r\nHost: 9.9.9.9\r\n\r\n");
    let head = client.until_end();
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert!(head.contains("descriptor limit"), "{head}");
    drop((client, rest));
    relay.settles();
}

/// A name server that gives each name these addresses, and none of IPv6.
fn name_server(addresses: Vec<Ipv4Addr>) -> SocketAddr {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let server = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut bytes) {
            let question = &bytes[..length];
            let empty = names::no_answer(question);
            let mut reply = empty.clone();
            // the question ends with its type and its class
            if empty.ends_with(&[0, 1, 0, 1]) {
                for address in &addresses {
                    reply.extend(&names::answer(question, *address, 60)[empty.len()..]);
                }
                reply[7] = addresses.len() as u8;
            }
            socket.send_to(&reply, from).unwrap();
        }
    });
    server
}

/// A full queue: a SYN is neither answered nor refused.
fn black_hole(address: Ipv4Addr, port: u16) -> (SocketAddr, Socket, Vec<TcpStream>) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((address, port)).into()).unwrap();
    socket.listen(0).unwrap();
    let at = socket.local_addr().unwrap().as_socket().unwrap();
    let come = || TcpStream::connect_timeout(&at, Duration::from_millis(500)).ok();
    let waiting = std::iter::from_fn(come).collect();
    (at, socket, waiting)
}

/// The heads that clients get who all connect at once, and the most descriptors meanwhile.
fn answers(relay: &Relay, to: impl Iterator<Item = String>) -> (Vec<String>, usize) {
    let clients: Vec<_> = to
        .map(|to| {
            let mut client = relay.client();
            client.send(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n"));
            std::thread::spawn(move || client.head())
        })
        .collect();
    let mut most = 0;
    wait_for("all are answered", || {
        most = most.max(descriptors());
        clients.iter().all(std::thread::JoinHandle::is_finished)
    });
    (clients.into_iter().map(|client| client.join().unwrap()).collect(), most)
}

#[test]
fn silent_addresses_of_one_name_take_few_descriptors() {
    const CLIENTS: usize = 8;
    let _alone = crate::alone();
    let (hole, _listener, _waiting) = black_hole(Ipv4Addr::UNSPECIFIED, 0);
    // as many as a reply by UDP holds
    let server = name_server((1..=28).map(|n| Ipv4Addr::new(127, 0, 1, n)).collect());
    let relay = Relay::with(|settings| {
        settings.dns.servers = vec![server.into()];
        settings.legs.get_mut("direct").unwrap().connect_timeout = Span::from_secs(4);
    });
    let before = descriptors();
    let to = format!("silent.test:{}", hole.port());
    let (heads, most) = answers(&relay, std::iter::repeat_n(to, CLIENTS));
    for head in heads {
        assert!(head.starts_with("HTTP/1.1 504 "), "{head}");
    }
    // both ends of a client, and four attempts; the rest is the relay's own, such as its questions
    assert!(most <= before + CLIENTS * (2 + 4) + 24, "{most} after {before}");
}

#[test]
fn names_that_nobody_answers_for_take_few_descriptors() {
    const CLIENTS: usize = 40;
    const LOOKUPS: usize = 4;
    let _alone = crate::alone();
    let silent = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let server = silent.local_addr().unwrap();
    let relay = Relay::with(|settings| {
        settings.dns.servers = vec![server.into()];
        settings.budgets.lookups = LOOKUPS as u32;
        settings.timeouts.resolve = Span::from_secs(3);
    });
    let before = descriptors();
    let names = (0..CLIENTS).map(|nth| format!("silent{nth}.test:80"));
    let (heads, most) = answers(&relay, names);
    for head in heads {
        // in time, or it had no place in time
        let status = head.split(' ').nth(1);
        assert!(matches!(status, Some("502" | "503")), "{head}");
    }
    // both ends of a client, and three sockets of each lookup; the rest is the relay's own
    assert!(most <= before + CLIENTS * 2 + LOOKUPS * 3 + 24, "{most} after {before}");
}

#[test]
fn a_silent_address_gives_way_to_the_next_where_no_place_is_left() {
    let _alone = crate::alone();
    let origin = Origin::new();
    let silent = Ipv4Addr::new(127, 0, 1, 1);
    let (_, _listener, _waiting) = black_hole(silent, origin.port());
    let server = name_server(vec![silent, Ipv4Addr::LOCALHOST]);
    let relay = Relay::with(|settings| {
        settings.budgets.connections = 1;
        settings.dns.servers = vec![server.into()];
    });
    let mut client = relay.client();
    let host = format!("two.test:{}", origin.port());
    client.send(format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    answered(&mut client, &origin);
}
