//! QUIC of the house through a tunnel: a real client and server with the gateway between them, and what becomes of
//! datagrams for which there is no way.

use crate::Test;
use crate::forbidden::routed;
use crate::network::{CLIENT, CLIENT_V6, Network, SERVER, SERVER_V6, config};
use crate::relayed::access_log;
use ekiden_linux::namespaces::netns::{Netns, place};
use ekiden_testbed::quic::QuicServer;
use ekiden_testkit::{Daemon, Home, PATIENCE, eventually, wait_for};
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

pub(crate) const TESTS: &[Test] = &[
    ("quic_goes_through_the_tunnel", quic_goes_through_the_tunnel),
    ("quic_is_named_by_its_initial", quic_is_named_by_its_initial),
    ("quic_to_special_addresses_is_blocked", quic_to_special_addresses_is_blocked),
    ("one_client_begins_so_many_flows_of_quic", one_client_begins_so_many_flows_of_quic),
    ("quic_without_a_way_is_blocked_or_direct", quic_without_a_way_is_blocked_or_direct),
];

const DEVICES: &str = "devices = [\"eth1\"]\nquic = \"tunnel\"";
const FAR: &str = "9.9.9.2:4433";
/// The servers are on the far relay's own machine.
const OPEN: &str = "[access]\nallow_destinations = [\"9.9.9.2\", \"2620:fe::2\"]\n";
/// Routes through the tunnel, and directly where that is down.
const NEAR: &str = "[upstream.far]\nurl = \"tunnel://far\"\n[tunnel]\nstate = \"DIR/state\"\n";
const THROUGH: &str = "[[route]]\nthrough = [\"far\"]\n";
const OR_DIRECT: &str = "[[route]]\nthrough = [\"far\", \"direct\"]\n";

struct Pair {
    far: Daemon,
    near: Daemon,
    home: Arc<Home>,
}

/// The far relay on the Internet's machine, and the gateway; `more` are tables of that one.
fn pair(network: &Network, more: &str) -> Pair {
    let far = Home::new(
        env!("CARGO_BIN_EXE_ekiden"),
        &format!(
            "control = \"DIR/ekiden.sock\"\n[management]\nlisten = \"off\"\n[log]\naccess = \"DIR/access\"\n\
             [tunnel]\nlisten = [\"{FAR}\"]\nstate = \"DIR/state\"\n{OPEN}"
        ),
    );
    let home = Network::home(DEVICES, &format!("{NEAR}{more}"));
    let invite = ["peer", "invite", "--name", "near", "--address", FAR];
    let rates = ["--send", "100 Mbit/s", "--receive", "100 Mbit/s"];
    let token = far.printed(&[&invite[..], &rates].concat());
    home.printed(&["peer", "join", token.trim(), "--name", "far", "--offline"]);
    let far = serve_in(&far, &network.up);
    let near = network.serve_in(&home);
    let pair = Pair { far, near, home };
    pair.wait_until_up();
    pair
}

fn serve_in(home: &Arc<Home>, netns: &Netns) -> Daemon {
    let mut command = home.command(&["serve", "--listen", "127.0.0.1:0"]);
    place(&mut command, netns).unwrap();
    home.serve_by(command)
}

impl Pair {
    fn wait_until_up(&self) {
        wait_for("the tunnel", || self.near.status()["tunnels"][0]["up"] == true);
    }

    fn count(&self, name: &str) -> u64 {
        self.near.status()["gateway"][name].as_u64().unwrap()
    }

    fn reload(&self, gateway: &str, more: &str) {
        self.near.reload(&config(gateway, &format!("{NEAR}{more}")));
    }
}

fn bind(netns: &Netns, at: &str) -> UdpSocket {
    netns.run(|| UdpSocket::bind(at)).unwrap().unwrap()
}

/// A datagram to the server until it is answered: from where the server saw it, or the error.
fn ask(client: &UdpSocket, server: &UdpSocket) -> std::io::Result<SocketAddr> {
    client.connect(server.local_addr().unwrap()).unwrap();
    for socket in [client, server] {
        socket.set_nonblocking(true).unwrap();
    }
    let mut seen = None;
    eventually("an answer or an error", || {
        let would_block = |error: &std::io::Error| error.kind() == ErrorKind::WouldBlock;
        if let Err(error) = client.send(b"hello")
            && !would_block(&error)
        {
            return Some(Err(error));
        }
        let mut buffer = [0; 9];
        while let Ok((n, from)) = server.recv_from(&mut buffer) {
            seen = Some(from);
            server.send_to(&buffer[..n], from).unwrap();
        }
        match client.recv(&mut buffer) {
            Err(error) if would_block(&error) => None,
            Err(error) => Some(Err(error)),
            // an answer to an earlier question says nothing of the way now
            Ok(_) => seen.map(Ok),
        }
    })
}

fn quic_goes_through_the_tunnel(network: &Network) {
    let pair = pair(network, THROUGH);
    // what is no QUIC goes there, too; the client's kernel takes answers of the server's address alone
    for (client, at, far) in
        [(CLIENT, SERVER.to_owned(), SERVER), (CLIENT_V6, format!("[{SERVER_V6}]"), SERVER_V6)]
    {
        let server = bind(&network.up, &format!("{at}:443"));
        let client = network.lan.run(|| UdpSocket::bind((client, 0))).unwrap().unwrap();
        let seen = ask(&client, &server).unwrap();
        assert_eq!(seen.ip().to_string(), far, "the far relay's");
    }
    assert_eq!((pair.count("quic_tunneled"), pair.count("quic_blocked")), (2, 0));
    let live = &pair.near.status()["connections"];
    let live = live.as_array().unwrap().iter().find(|one| one["destination"] == "9.9.9.2:443");
    assert_eq!(live.unwrap()["protocol"], "udp");
    assert!(live.unwrap()["client"].as_str().unwrap().starts_with(CLIENT));
    // other ports pass by
    let (server, client) = (bind(&network.up, "9.9.9.2:4000"), bind(&network.lan, "0.0.0.0:0"));
    assert_eq!(ask(&client, &server).unwrap().ip().to_string(), CLIENT);
    let log = pair.near.log();
    assert!(log.contains("QUIC goes through tunnels"), "{log}");
    let text = network.ask(&pair.home, &["status"]);
    assert!(text.contains("QUIC: 2 flows through tunnels, 0 direct, 0 blocked; 0 named"), "{text}");
    let show = network.ask(&pair.home, &["gateway", "show"]);
    let port = pair.near.status()["gateway"]["listen_quic"][0].as_str().unwrap().to_owned();
    assert!(show.contains(&format!("udp tproxy ip to {port} ")), "{show}");
    // switched off, it passes by, and nothing is left at the end
    pair.reload("devices = [\"eth1\"]", THROUGH);
    let (server, client) = (bind(&network.up, "9.9.9.2:443"), bind(&network.lan, "0.0.0.0:0"));
    assert_eq!(ask(&client, &server).unwrap().ip().to_string(), CLIENT);
    pair.near.stop();
    assert_eq!(network.left(), (0, 0, false));
}

fn quic_is_named_by_its_initial(network: &Network) {
    let rule = "[[rule]]\nto = [\"*.ads.example\"]\naction = \"deny\"\n";
    let pair = pair(network, &format!("{THROUGH}{rule}"));
    for (at, shown) in [("9.9.9.2:443", "9.9.9.2"), ("[2620:fe::2]:443", "2620:fe::2")] {
        let server = QuicServer::start(bind(&network.up, at), "www.example.org").unwrap();
        let any = if at.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
        let to = (server.address(), "www.example.org");
        let done = server.download(bind(&network.lan, any), to, 2_000_000, PATIENCE).unwrap();
        assert!(done.connected <= done.whole);
        let target = format!("www.example.org:443 ({shown})");
        let live = pair.near.status()["connections"].to_string();
        assert!(live.contains(&target), "{live}");
    }
    assert_eq!((pair.count("quic_tunneled"), pair.count("quic_named")), (2, 2));
    // a name that a rule denies
    let server = QuicServer::start(bind(&network.up, "9.9.9.2:443"), "x.ads.example").unwrap();
    let client = bind(&network.lan, "0.0.0.0:0");
    client.connect(server.address()).unwrap();
    let to = (server.address(), "x.ads.example");
    let refused = server.download(client, to, 1, PATIENCE).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
    assert_eq!(pair.count("quic_blocked"), 1);
    wait_for("the access log", || access_log(&pair.near).contains("x.ads.example:443 (9.9.9.2)"));
    // TCP is judged by the same rule, and others' QUIC goes on
    let server = bind(&network.up, "9.9.9.2:4430");
    assert!(ask(&bind(&network.lan, "0.0.0.0:0"), &server).is_ok());
}

fn quic_to_special_addresses_is_blocked(network: &Network) {
    let pair = pair(network, THROUGH);
    let special = routed();
    for (_, at, _) in &special {
        let client = if at.to_canonical().is_ipv4() { CLIENT } else { CLIENT_V6 };
        let client = network.lan.run(|| UdpSocket::bind((client, 0))).unwrap().unwrap();
        client.connect(SocketAddr::new(at.to_canonical(), 443)).unwrap();
        let error = eventually("a refusal", || client.send(b"hello").err());
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{at}: {error}");
    }
    // until the rule is there, a datagram makes a flow anew
    assert!(pair.count("quic_blocked") >= special.len() as u64);
    assert_eq!(pair.far.status()["totals"]["refused"], 0, "the gateway refuses them");
    for (_, at, kind) in special {
        let why = format!("{} is {kind}", at.to_canonical());
        wait_for(&why, || access_log(&pair.near).contains(&why));
    }
}

fn one_client_begins_so_many_flows_of_quic(network: &Network) {
    let pair = pair(network, THROUGH);
    let (_, at, _) = routed().into_iter().find(|(_, at, _)| at.is_ipv4()).unwrap();
    wait_for("the end of what it may begin", || {
        let sent = network.lan.run(|| {
            // each from a port of its own, so that each would begin a flow
            (0..400).try_for_each(|_| {
                UdpSocket::bind((CLIENT, 0))?.send_to(b"hello", (at, 443)).map(drop)
            })
        });
        sent.unwrap().unwrap();
        pair.near.status()["udp"]["limited"].as_u64() > Some(0)
    });
    wait_for("those that it began", || pair.count("quic_blocked") > 0);
    // others go on
    let server = bind(&network.up, &format!("[{SERVER_V6}]:443"));
    let other = network.lan.run(|| UdpSocket::bind((CLIENT_V6, 0))).unwrap().unwrap();
    assert_eq!(ask(&other, &server).unwrap().ip().to_string(), SERVER_V6);
}

fn quic_without_a_way_is_blocked_or_direct(network: &Network) {
    let pair = pair(network, OR_DIRECT);
    let server = bind(&network.up, "9.9.9.2:443");
    let fresh = || bind(&network.lan, "0.0.0.0:0");
    let client = fresh();
    assert_eq!(ask(&client, &server).unwrap().ip().to_string(), SERVER);
    // the tunnel is lost: the same client goes on directly, as the route permits
    pair.far.stop();
    wait_for("its end", || pair.near.status()["tunnels"][0]["up"] == false);
    eventually("another way", || {
        (ask(&client, &server).unwrap().ip().to_string() == "9.9.9.1").then_some(())
    });
    assert!(pair.near.status()["gateway"]["quic_direct"].as_u64() >= Some(1));
    // where it does not, and where no rule admits the client
    pair.near.reload(&config(DEVICES, &format!("{NEAR}{THROUGH}")));
    assert_eq!(ask(&fresh(), &server).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let stranger = bind(&network.lan, "172.16.5.2:0");
    assert_eq!(ask(&stranger, &server).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let seen = &pair.near.status()["gateway"];
    assert!(seen["quic_blocked"].as_u64() >= Some(2), "{seen}");
    // a page over TCP still comes where a route leads
    pair.near.reload(&config(DEVICES, NEAR));
    assert_eq!(ask(&fresh(), &server).unwrap().ip().to_string(), "9.9.9.1");
}
