//! Two daemons with a tunnel between them: how datagrams that come out of it are counted and logged, and how their
//! flows end.

use crate::daemons::{pair, tunnel_is_up};
use ekiden_testkit::{Daemon, eventually, wait_for};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The far daemon and the near one, both with an access log; `far` is appended to the configuration of that one.
fn daemons(far: &str) -> [Daemon; 2] {
    let log = "[log]\naccess = \"DIR/access\"\n";
    let homes = pair(["100 Mbit/s", "100 Mbit/s"], [&format!("{far}{log}"), log]);
    let daemons = homes.map(|home| home.serve());
    wait_for("the tunnel", || tunnel_is_up(&daemons[1]));
    daemons
}

/// Lines of the access log that are about datagrams.
fn logged(daemon: &Daemon) -> Vec<Value> {
    let log = fs::read_to_string(daemon.path().join("access")).unwrap_or_default();
    let whole = log.lines().take(log.matches('\n').count());
    let lines = whole.map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["protocol"] == "udp").collect()
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    socket
}

/// A client with an association.
struct Client {
    control: TcpStream,
    udp: UdpSocket,
}

impl Client {
    fn of(daemon: &Daemon) -> Self {
        let mut control = TcpStream::connect(daemon.address).unwrap();
        control.write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        let mut answer = [0; 12];
        control.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..6], [5, 0, 5, 0, 0, 1], "{answer:?}");
        let udp = socket();
        udp.connect(("127.0.0.1", u16::from_be_bytes([answer[10], answer[11]]))).unwrap();
        Self { control, udp }
    }

    fn send(&self, port: u16, payload: &[u8]) {
        let head = [&[0, 0, 0, 1, 127, 0, 0, 1][..], &port.to_be_bytes()].concat();
        self.udp.send(&[&head, payload].concat()).unwrap();
    }

    /// Speaks to a server and hears its answer; from where the far relay spoke to it.
    fn speak(&self, server: &UdpSocket) -> SocketAddr {
        let port = server.local_addr().unwrap().port();
        eventually("an answer", || {
            self.send(port, b"ask");
            let mut buffer = [0; 100];
            let (_, from) = server.recv_from(&mut buffer).ok()?;
            server.send_to(b"answer", from).unwrap();
            let length = self.udp.recv(&mut buffer).ok()?;
            assert!(buffer[..length].ends_with(b"answer"));
            Some(from)
        })
    }

    /// What the near relay's log says of it when it is over.
    fn ends(self, near: &Daemon) -> String {
        let before = logged(near).len();
        drop(self.control);
        eventually("a line in the log", || {
            logged(near).get(before)?["result"].as_str().map(str::to_owned)
        })
    }
}

/// Flows in the near relay's tunnel.
fn flows(near: &Daemon) -> Option<u64> {
    near.status()["tunnels"][0]["flows"].as_u64()
}

#[test]
fn a_flow_of_packets_stands_in_the_register_and_in_the_log() {
    let [far, near] = daemons("");
    let (client, server) = (Client::of(&near), socket());
    client.speak(&server);
    let target = server.local_addr().unwrap().to_string();
    let status = far.status();
    let live = status["connections"].as_array().unwrap();
    let [live] = &live[..] else { panic!("{live:?}") };
    assert_eq!((&live["protocol"], &live["state"]), (&"udp".into(), &"relaying".into()));
    assert_eq!(live["destination"], target.as_str());
    assert!(status["totals"]["bytes_up"].as_u64() >= Some(3), "{status}");
    assert!(status["totals"]["bytes_down"].as_u64() >= Some(6), "{status}");
    assert!(status["udp"]["datagrams_up"].as_u64() >= Some(1), "{status}");
    assert_eq!(status["udp"]["associations"], 1);
    drop(client);
    let line = eventually("a line in the log", || logged(&far).pop());
    assert_eq!((&line["method"], &line["target"]), (&"near".into(), &target.as_str().into()));
    assert_eq!((&line["status"], &line["connection"]), (&0.into(), &live["id"]));
    assert_eq!(line["bytes_up"].as_u64().unwrap() % 3, 0, "{line}");
    assert!(line["bytes_down"].as_u64() >= Some(6), "{line}");
    let result = line["result"].as_str().unwrap();
    assert!(result.starts_with("closed; ") && result.contains(" datagrams up"), "{line}");
    // what may not be is there, too
    let client = Client::of(&near);
    let private = [&[0, 0, 0, 1, 100, 127, 255, 254, 0, 9][..], b"x"].concat();
    let refused = eventually("the refusal", || {
        client.udp.send(&private).unwrap();
        logged(&far).into_iter().nth(1)
    });
    assert_eq!((&refused["target"], &refused["status"]), (&"100.127.255.254:9".into(), &2.into()));
    assert!(far.status()["totals"]["refused"].as_u64() >= Some(1));
}

#[test]
fn a_relay_that_stops_ends_flows_of_packets() {
    let [mut far, near] = daemons("");
    let (client, server) = (Client::of(&near), socket());
    client.speak(&server);
    far.signal(Signal::TERM);
    assert_eq!(far.code(), Some(0));
    let line = logged(&far).pop().unwrap();
    assert!(line["result"].as_str().unwrap().starts_with("the relay is stopping; "), "{line}");
    assert_eq!(line["cut_by"], "relay", "{line}");
    let said = far.log();
    assert!(said.contains("stopped: 1 connection finished"), "{said}");
}

/// The port of a flow is for its destination: what others send there is thrown away, and counts for nothing.
#[test]
fn strangers_do_not_keep_a_flow() {
    let [far, near] = daemons("[udp]\nidle = \"1 s\"\n");
    let (client, server) = (Client::of(&near), socket());
    let from = client.speak(&server);
    let over = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&over);
    let stranger = std::thread::spawn(move || {
        let stranger = socket();
        while !until.load(Ordering::Relaxed) {
            // refused as soon as the port is given back
            let _ = stranger.send_to(b"let me in", from);
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let line = eventually("a line in the log", || logged(&far).pop());
    over.store(true, Ordering::Relaxed);
    stranger.join().unwrap();
    assert!(line["result"].as_str().unwrap().starts_with("silent for 1 s; "), "{line}");
    wait_for("the end of the flow", || flows(&near) == Some(0));
}

/// The last relay says that it is a circle when the flow has been answered; so each tells the one before.
#[test]
fn a_circle_is_told_to_whoever_sent_datagrams_into_it() {
    let [far, near] =
        daemons("[upstream.near]\nurl = \"tunnel://near\"\n[[route]]\nthrough = [\"near\"]\n");
    let refused = || near.status()["udp"]["refused"].as_u64().unwrap();
    eventually("the reason", || {
        let (client, before) = (Client::of(&near), refused());
        client.send(9, b"round and round");
        // four flows that came back, and the association, which is told last; or the datagram was lost
        for _ in 0..20 {
            if refused() >= before + 5 {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        client.ends(&near).contains("through 8 tunnels").then_some(())
    });
    assert!(tunnel_is_up(&far));
}

#[test]
fn a_removed_account_is_reported_to_the_near_peer() {
    let account = "[[account]]\nname = \"harbour\"\npeers = [\"near\"]\n";
    let [far, near] = daemons(account);
    let (client, server) = (Client::of(&near), socket());
    client.speak(&server);
    assert_eq!(far.status()["connections"][0]["account"], "harbour");
    far.reload(&fs::read_to_string(far.config()).unwrap().replace(account, ""));
    // nothing is sent meanwhile
    wait_for("the refusal", || near.status()["udp"]["refused"] == 1);
    let why = "account \"harbour\" is not served any more";
    let said = client.ends(&near);
    assert!(said.contains("peer \"far\"") && said.contains(why), "{said}");
    let line = eventually("a line in the log", || logged(&far).pop());
    assert!(line["result"].as_str().unwrap().starts_with(why), "{line}");
}

/// An account that is barred while its flow is silent: the register ends it.
#[test]
fn why_an_account_may_not_stay_is_told_to_the_near_relay() {
    let [far, near] = daemons("[accounts]\nenabled = true\n");
    far.printed(&["account", "add", "harbour", "--peer", "near"]);
    wait_for("the account", || far.status()["accounts"]["known"] == 1);
    let (client, server) = (Client::of(&near), socket());
    client.speak(&server);
    assert_eq!(far.status()["connections"][0]["account"], "harbour");
    far.printed(&["account", "set", "harbour", "--disable"]);
    wait_for("the refusal", || near.status()["udp"]["refused"] == 1);
    let line = eventually("a line in the log", || logged(&far).pop());
    assert_eq!((&line["account"], &line["status"]), (&"harbour".into(), &0.into()));
    let (why, _) = line["result"].as_str().unwrap().split_once("; ").unwrap();
    let said = client.ends(&near);
    assert!(why.contains("disabled") && said.contains(why), "{why}; {said}");
}

/// A request for UDP over HTTP (RFC 9298), by `Upgrade`: the answer's status line and the stream.
fn connect_udp(near: &Daemon, target: &str) -> (String, TcpStream) {
    let mut stream = TcpStream::connect(near.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET /.well-known/masque/udp/{target}/ HTTP/1.1\r\nHost: near\r\n").unwrap();
    stream.write_all(b"Connection: Upgrade\r\nUpgrade: connect-udp\r\n\r\n").unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    (String::from_utf8(head).unwrap().lines().next().unwrap().to_owned(), stream)
}

#[test]
fn udp_over_http_goes_through_a_tunnel() {
    let [far, near] = daemons("");
    let server = socket();
    let target = server.local_addr().unwrap();
    let at = format!("{}/{}", target.ip(), target.port());
    let (status, mut stream) = connect_udp(&near, &at);
    assert_eq!(status, "HTTP/1.1 101 Switching Protocols");
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    eventually("an answer", || {
        stream.write_all(b"\x00\x04\x00ask").unwrap();
        let (_, from) = server.recv_from(&mut [0; 100]).ok()?;
        server.send_to(b"answer", from).unwrap();
        let mut answer = [0; 9];
        stream.read_exact(&mut answer).ok()?;
        assert_eq!(&answer, b"\x00\x07\x00answer");
        Some(())
    });
    let live = near.status()["connections"][0].clone();
    assert_eq!((&live["protocol"], &live["state"]), (&"udp".into(), &"relaying".into()));
    assert_eq!(live["destination"], target.to_string());
    assert_eq!(far.status()["connections"][0]["destination"], target.to_string());
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let line = eventually("a line in the log", || logged(&near).pop());
    assert_eq!((&line["method"], &line["status"]), (&"GET".into(), &101.into()));
    assert!(line["result"].as_str().unwrap().starts_with("closed; "), "{line}");
    wait_for("the end of the flow", || flows(&near) == Some(0));
    // what the far relay refuses ends the stream, and the log has the reason
    let (status, mut stream) = connect_udp(&near, "100.127.255.254/9");
    assert_eq!(status, "HTTP/1.1 101 Switching Protocols");
    stream.write_all(b"\x00\x02\x00x").unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    let line = eventually("a line in the log", || logged(&near).into_iter().nth(1));
    assert!(line["result"].as_str().unwrap().contains("peer \"far\""), "{line}");
}

#[test]
fn no_associations_at_the_far_relay_means_none_for_peers() {
    let [far, near] = daemons("[udp]\nassociations = 0\n");
    let client = Client::of(&near);
    eventually("the refusal", || {
        client.send(9, b"x");
        (near.status()["udp"]["refused"].as_u64() >= Some(1)).then_some(())
    });
    assert!(client.ends(&near).contains("UDP is off"));
    assert_eq!(far.status()["udp"]["begun"], 0);
}

#[test]
fn datagrams_for_a_tunnel_that_is_away_are_dropped_at_once() {
    let [mut far, near] = daemons("");
    far.kill();
    wait_for("the loss of the tunnel", || !tunnel_is_up(&near));
    // none may wait for the tunnel so long
    let text = fs::read_to_string(near.config()).unwrap();
    near.reload(&format!("{text}[leg.direct]\nconnect_timeout = \"10 min\"\n"));
    let client = Client::of(&near);
    wait_for("all drops", || {
        (1..50).for_each(|port| client.send(port, b"x"));
        near.status()["udp"]["undelivered"].as_u64() >= Some(300)
    });
    assert!(client.ends(&near).contains("is down"));
}
