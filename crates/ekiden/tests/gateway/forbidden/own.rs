//! The relay's own machine at its public addresses: clients from elsewhere would be behind its firewall there. Relays that
//! have joined stand on the house's network.

use super::canary::{Canary, PORT, is_reset};
use crate::network::{Network, PATIENCE_OF_SILENCE};
use crate::relayed::access_log;
use ekiden_linux::namespaces::netns::{Netns, place};
use ekiden_testkit::{Daemon, Home, PATIENCE, wait_for};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;

/// The gateway's, and one that stands for the first.
const OWN: [&str; 3] = ["9.9.9.1", "2620:fe::1", "64:ff9b::9.9.9.1"];
const FAR: &str = "9.9.9.1:4433";
const FORWARDED: &str = "9.9.9.1:20000";
const BY_TUNNEL: &str = "which is closed to clients that come by a tunnel";
const OPEN: &str = "[access]\nallow_destinations = [\"9.9.9.1\", \"2620:fe::1\"]\n";
const NEAR: &str = "control = \"DIR/ekiden.sock\"\n[management]\nlisten = \"off\"\n\
    [upstream.far]\nurl = \"tunnel://far\"\n[[route]]\nthrough = [\"far\"]\n\
    [tunnel]\nstate = \"DIR/state\"\nanswer = \"connected\"\n";

/// The relay on the gateway's machine, with these tables.
fn config(more: &str) -> String {
    format!(
        "listen = [\"9.9.9.1:3128\", \"127.0.0.1:3128\"]\ncontrol = \"DIR/ekiden.sock\"\n\
         [management]\nlisten = \"off\"\n[log]\naccess = \"DIR/access\"\n\
         [tunnel]\nlisten = [\"{FAR}\"]\nstate = \"DIR/state\"\n\
         [[forward]]\nlisten = [\"{FORWARDED}\"]\nto = \"9.9.9.1:{PORT}\"\nprotocol = \"both\"\n\
         [[rule]]\nfrom = [\"9.9.9.2\", \"192.168.77.0/24\"]\naction = \"allow\"\n{more}"
    )
}

fn serve(home: &Arc<Home>, netns: &Netns, more: &[&str]) -> Daemon {
    let mut command = home.command(&[&["serve"][..], more].concat());
    place(&mut command, netns).unwrap();
    home.serve_by(command)
}

fn connecting(to: SocketAddr) -> String {
    format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")
}

fn getting(to: SocketAddr) -> String {
    format!("GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n")
}

fn asking_for_udp(to: SocketAddr) -> String {
    let host = to.ip().to_string().replace(':', "%3A");
    format!(
        "GET /.well-known/masque/udp/{host}/{}/ HTTP/1.1\r\nHost: relay\r\nConnection: Upgrade\r\n\
         Upgrade: connect-udp\r\nCapsule-Protocol: ?1\r\n\r\n",
        to.port()
    )
}

/// The head of the relay's answer.
fn asked(netns: &Netns, relay: SocketAddr, request: &str) -> String {
    let mut stream = netns.run(|| TcpStream::connect(relay)).unwrap().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// An association of SOCKS5.
struct Association {
    _control: TcpStream,
    datagrams: UdpSocket,
}

impl Association {
    fn new(netns: &Netns, relay: SocketAddr) -> Self {
        let mut control = netns.run(|| TcpStream::connect(relay)).unwrap().unwrap();
        control.set_read_timeout(Some(PATIENCE)).unwrap();
        control.write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        let mut answer = [0; 12];
        control.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..6], [5, 0, 5, 0, 0, 1], "{answer:?}");
        let datagrams = netns.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
        let port = u16::from_be_bytes([answer[10], answer[11]]);
        datagrams.connect((relay.ip(), port)).unwrap();
        Self { _control: control, datagrams }
    }

    fn send(&self, to: SocketAddr) {
        let (kind, address) = match to.ip() {
            IpAddr::V4(v4) => (1, v4.octets().to_vec()),
            IpAddr::V6(v6) => (4, v6.octets().to_vec()),
        };
        let head = [&[0, 0, 0, kind][..], &address, &to.port().to_be_bytes()].concat();
        self.datagrams.send(&[&head[..], b"x"].concat()).unwrap();
    }
}

pub(super) fn own_public_addresses_are_closed(network: &Network) {
    let canary = Canary::default();
    canary.listen(&network.gateway);
    let far = Home::new(env!("CARGO_BIN_EXE_ekiden"), &config(""));
    let near = Home::new(env!("CARGO_BIN_EXE_ekiden"), NEAR);
    let invite = ["peer", "invite", "--name", "near", "--address", FAR];
    let rates = ["--send", "100 Mbit/s", "--receive", "100 Mbit/s"];
    let token = far.printed(&[&invite[..], &rates].concat());
    near.printed(&["peer", "join", token.trim(), "--name", "far", "--offline"]);
    let relay = serve(&far, &network.gateway, &[]);
    let near = serve(&near, &network.lan, &["--listen", "127.0.0.1:0"]);
    wait_for("the tunnel", || near.status()["tunnels"][0]["up"] == true);
    let at = |own: &str| SocketAddr::new(own.parse().unwrap(), PORT);
    let refused = || relay.status()["udp"]["refused"].as_u64().unwrap();
    // by HTTP, of strangers, of the house and of a relay that has joined
    for to in OWN.map(at) {
        for client in [&network.up, &network.lan] {
            for request in [connecting(to), getting(to), asking_for_udp(to)] {
                let head = asked(client, relay.address, &request);
                assert!(head.starts_with("HTTP/1.1 403 "), "{request}: {head}");
            }
        }
        let head = asked(&network.lan, near.address, &connecting(to));
        assert!(head.starts_with("HTTP/1.1 502 "), "{to}: {head}");
        let is = format!("{} is an address of the relay's own machine", to.ip());
        for closed in ["which is not reached through this relay", BY_TUNNEL] {
            let why = format!("{is}, {closed}");
            wait_for(&why, || access_log(&relay).contains(&why));
        }
    }
    // by SOCKS, datagrams of both
    let (strangers, joined) = (
        Association::new(&network.up, relay.address),
        Association::new(&network.lan, near.address),
    );
    for to in OWN.map(at) {
        let before = refused();
        wait_for("a refused datagram", || {
            strangers.send(to);
            refused() > before
        });
        let is = format!("{} is an address of the relay's own machine, {BY_TUNNEL}", to.ip());
        let is_line = |line: &str| line.contains("\"protocol\":\"udp\"") && line.contains(&is);
        wait_for("the line of its flow", || {
            joined.send(to);
            access_log(&relay).lines().any(is_line)
        });
    }
    std::thread::sleep(PATIENCE_OF_SILENCE);
    assert_eq!(canary.seen(), [] as [IpAddr; 0]);
    // programs of this machine, and private clients at its private address
    let here: SocketAddr = "127.0.0.1:3128".parse().unwrap();
    let (public, private) = (at("9.9.9.1"), at("192.168.77.1"));
    for (client, relay, to) in
        [(&network.gateway, here, public), (&network.lan, relay.address, private)]
    {
        let head = asked(client, relay, &connecting(to));
        assert!(head.starts_with("HTTP/1.1 200 "), "{to}: {head}");
        wait_for("the canary", || canary.seen() == [to.ip()]);
    }
    // the operator chose where a forwarded port leads
    let forwarded: SocketAddr = FORWARDED.parse().unwrap();
    assert!(!is_reset(&network.up, forwarded, b"x"));
    wait_for("the canary", || canary.seen() == [public.ip()]);
    let client = network.up.run(|| UdpSocket::bind("9.9.9.2:0")).unwrap().unwrap();
    wait_for("a datagram", || {
        client.send_to(b"x", forwarded).unwrap();
        !canary.seen().is_empty()
    });
    // opened, it is as others
    relay.reload(&config(OPEN));
    for to in [public, at("2620:fe::1")] {
        canary.seen();
        let direct = asked(&network.up, relay.address, &connecting(to));
        let tunnelled = asked(&network.lan, near.address, &connecting(to));
        for head in [direct, tunnelled] {
            assert!(head.starts_with("HTTP/1.1 200 "), "{to}: {head}");
        }
        let mut came = Vec::new();
        wait_for("both", || {
            came.extend(canary.seen());
            came.iter().filter(|here| **here == to.ip()).count() == 2
        });
        for client in [
            Association::new(&network.up, relay.address),
            Association::new(&network.lan, near.address),
        ] {
            // what was sent before is there
            std::thread::sleep(PATIENCE_OF_SILENCE);
            canary.seen();
            wait_for("a datagram", || {
                client.send(to);
                !canary.seen().is_empty()
            });
        }
    }
}
