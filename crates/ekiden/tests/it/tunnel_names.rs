//! Names asked for through a tunnel: the peer's own answers, a server beyond it, and two relays that ask each other.

use crate::daemons::{free_port, pair, tunnel_is_up};
use ekiden_testkit::names::{answer, code, question};
use ekiden_testkit::{Daemon, PATIENCE, wait_for};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);

/// A name server over UDP and TCP, and how often it was asked over each.
fn server() -> (SocketAddr, [Arc<AtomicUsize>; 2]) {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let (socket, listener) = (UdpSocket::bind(at).unwrap(), TcpListener::bind(at).unwrap());
    let counts: [Arc<AtomicUsize>; 2] = Default::default();
    let [udp, tcp] = counts.clone();
    std::thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((n, from)) = socket.recv_from(&mut buffer) {
            udp.fetch_add(1, Relaxed);
            socket.send_to(&answer(&buffer[..n], ADDRESS, 60), from).unwrap();
        }
    });
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, tcp) = (stream.unwrap(), Arc::clone(&tcp));
            std::thread::spawn(move || {
                let mut length = [0; 2];
                while stream.read_exact(&mut length).is_ok() {
                    let mut message = vec![0; u16::from_be_bytes(length).into()];
                    stream.read_exact(&mut message).unwrap();
                    tcp.fetch_add(1, Relaxed);
                    let reply = answer(&message, ADDRESS, 60);
                    let length = (reply.len() as u16).to_be_bytes();
                    stream.write_all(&[&length[..], &reply].concat()).unwrap();
                }
            });
        }
    });
    (at, counts)
}

/// The far daemon and the near one, which answers for names at the address.
fn daemons(far: &str, servers: &str) -> ([Daemon; 2], SocketAddr) {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let near = format!("[dns]\nlisten = [\"{at}\"]\nservers = [\"{servers}\"]\n");
    let daemons = pair(["100 Mbit/s", "100 Mbit/s"], [far, &near]).map(|home| home.serve());
    wait_for("the tunnel", || tunnel_is_up(&daemons[1]));
    (daemons, at)
}

fn ask(at: SocketAddr, name: &str) -> Vec<u8> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.connect(at).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send(&question(7, name)).unwrap();
    let mut buffer = [0; 1500];
    let n = socket.recv(&mut buffer).unwrap();
    buffer[..n].to_vec()
}

#[test]
fn a_peer_answers_with_its_own_names() {
    let (server, [udp, tcp]) = server();
    let far = format!("[dns]\nservers = [\"{server}\"]\n");
    let ([far, near], at) = daemons(&far, "tunnel://far");
    for name in ["a.example", "b.example", "a.example"] {
        assert!(ask(at, name).ends_with(&ADDRESS.octets()), "{name}");
    }
    assert_eq!((udp.load(Relaxed), tcp.load(Relaxed)), (2, 0));
    let seen = far.status()["dns"].clone();
    assert_eq!((&seen["questions_peers"], &seen["asked"]), (&2.into(), &2.into()), "{seen}");
    let seen = near.status()["dns"].clone();
    assert_eq!((&seen["cached"], &seen["asked"]), (&1.into(), &2.into()), "{seen}");
    // one flow for all of them
    assert_eq!(far.status()["totals"]["accepted"], 1);
}

#[test]
fn a_peer_s_stream_goes_on_with_the_servers_of_a_reload() {
    let ((first, [before, _]), (second, [after, _])) = (server(), server());
    let ([far, _near], at) = daemons(&format!("[dns]\nservers = [\"{first}\"]\n"), "tunnel://far");
    assert!(ask(at, "a.example").ends_with(&ADDRESS.octets()));
    let config = fs::read_to_string(far.config()).unwrap();
    far.reload(&config.replace(&first.to_string(), &second.to_string()));
    assert!(ask(at, "b.example").ends_with(&ADDRESS.octets()));
    assert_eq!((before.load(Relaxed), after.load(Relaxed)), (1, 1));
    // the stream is the same
    assert_eq!(far.status()["totals"]["accepted"], 1);
}

#[test]
fn a_server_beyond_the_peer_is_asked_on_a_stream() {
    let (server, [udp, tcp]) = server();
    let (_daemons, at) = daemons("", &format!("tunnel://far/{server}"));
    for name in ["a.example", "b.example"] {
        assert!(ask(at, name).ends_with(&ADDRESS.octets()), "{name}");
    }
    assert_eq!((udp.load(Relaxed), tcp.load(Relaxed)), (0, 2));
}

#[test]
fn two_relays_that_ask_each_other_do_not_go_round() {
    let ([far, _near], at) = daemons("[dns]\nservers = [\"tunnel://near\"]\n", "tunnel://far");
    assert_eq!(code(&ask(at, "a.example")), 2);
    let seen = far.status()["dns"].clone();
    assert_eq!(
        (&seen["questions_peers"], &seen["questions_udp"]),
        (&1.into(), &0.into()),
        "{seen}"
    );
    assert_eq!(seen["servers"][0]["asked"], 0, "{seen}");
}

/// A name server that fails, until the switch says otherwise; then each name is this machine.
fn failing() -> (SocketAddr, Arc<AtomicBool>) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (at, works) = (socket.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
    let switch = Arc::clone(&works);
    std::thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((n, from)) = socket.recv_from(&mut buffer) {
            let mut reply = answer(&buffer[..n], Ipv4Addr::LOCALHOST, 60);
            if !works.load(Relaxed) {
                // SERVFAIL, without the answer
                let question = reply.len() - 16;
                (reply[3], reply[7]) = (0x82, 0);
                reply.truncate(question);
            }
            socket.send_to(&reply, from).unwrap();
        }
    });
    (at, switch)
}

/// A client is told why a name failed a moment ago, and is served as soon as the name resolves.
#[test]
fn a_name_that_resolves_again_is_served_at_once() {
    let (names, works) = failing();
    let far = format!("[dns]\nservers = [\"{names}\"]\nprefer = \"ipv4-only\"\n");
    let [_far, near] = pair(["100 Mbit/s", "100 Mbit/s"], [&far, ""]).map(|home| home.serve());
    wait_for("the tunnel", || tunnel_is_up(&near));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let ask = |method: &str| {
        let mut client = TcpStream::connect(near.address).unwrap();
        let to = format!("a.example:{port}");
        let target = if method == "GET" { format!("http://{to}/") } else { to.clone() };
        write!(client, "{method} {target} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
        client
    };
    let status = |mut client: TcpStream| {
        let mut start = [0; 13];
        client.read_exact(&mut start).unwrap();
        String::from_utf8_lossy(&start).into_owned()
    };
    let mut first = ask("CONNECT");
    let _broken = first.read_to_end(&mut Vec::new());
    assert_eq!(status(ask("CONNECT")), "HTTP/1.1 502 ");
    assert_eq!(status(ask("GET")), "HTTP/1.1 502 ");
    works.store(true, Relaxed);
    let connected = ask("CONNECT");
    assert_eq!(status(connected), "HTTP/1.1 200 ");
    listener.accept().unwrap();
    let asked = ask("GET");
    let (mut origin, _) = listener.accept().unwrap();
    origin.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    assert_eq!(status(asked), "HTTP/1.1 204 ");
}
