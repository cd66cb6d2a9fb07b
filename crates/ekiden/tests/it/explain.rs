//! "Why is Tanaka slow?": each cause that can be made on loopback is named by `ekiden explain` alone.

use crate::daemons::{home, pair, pair_through, stderr, stdout, tunnel_is_up};
use crate::middle::Middle;
use ekiden_testkit::{Daemon, Home, PATIENCE, eventually_or, wait_for};
use socket2::{Domain, SockRef, Socket, Type};
use std::cell::RefCell;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

const TANAKA: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const SATO: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
const ACCOUNTS: &str = "[accounts]\nenabled = true\n";

/// Two accounts, each at an address of its own; Tanaka's has these limits.
fn with_accounts(home: &Home, limits: &[&str]) {
    let [tanaka, sato] = [TANAKA, SATO].map(|address| address.to_string());
    let add = ["account", "add", "tanaka", "--address", &tanaka];
    home.printed(&[&add[..], limits].concat());
    home.printed(&["account", "add", "sato", "--address", &sato]);
}

/// Two relays with a tunnel, and accounts at the near one.
fn relays(rates: [&str; 2], far: &str) -> [Daemon; 2] {
    let [far, near] = pair(rates, [far, ACCOUNTS]);
    with_accounts(&near, &[]);
    let [far, near] = [far, near].map(|home| home.serve());
    wait_for("the tunnel", || tunnel_is_up(&near));
    [far, near]
}

/// A connection of the client at this address, which asked for one to `to`.
fn connect(daemon: &Daemon, from: Ipv4Addr, to: &str) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&daemon.address.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    stream
}

/// A connection that stands.
fn connected(daemon: &Daemon, from: Ipv4Addr, to: &str) -> TcpStream {
    let mut stream = connect(daemon, from, to);
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
    stream
}

/// Takes all that comes.
fn read_all(mut stream: TcpStream) {
    thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
}

/// A server that does this with each connection; its address.
fn server(serve: fn(TcpStream)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            thread::spawn(move || serve(stream));
        }
    });
    address
}

fn pour(mut stream: TcpStream) {
    while stream.write_all(&[7; 65_536]).is_ok() {}
}

fn trickle(mut stream: TcpStream) {
    while stream.write_all(&[7; 500]).is_ok() {
        thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until `ekiden explain WHAT` says so; all of its text.
fn explained(home: &Home, what: &str, says: &str) -> String {
    let last = RefCell::new(String::new());
    let why = || format!("never said \"{says}\": {}", last.borrow());
    eventually_or(why, || {
        let output = home.run(&["explain", what]);
        let text = stdout(&output) + &stderr(&output);
        last.replace(text.clone());
        text.contains(says).then_some(text)
    })
}

#[test]
fn its_own_rate_and_its_own_quota() {
    let relay = home(&format!("[access]\nallow_destinations = [\"127.0.0.0/8\"]\n{ACCOUNTS}"));
    with_accounts(&relay, &["--down", "400 kbit/s"]);
    let relay = relay.serve();
    read_all(connected(&relay, TANAKA, &server(pour)));
    let text = explained(&relay, "tanaka", "held back by: its account's limit: ");
    assert!(text.starts_with("tanaka: 1 connection\n"), "{text}");
    explained(&relay, "tanaka", "kbit/s of 400 kbit/s down");
    let limits = ["--quota", "100000 B/month", "--on-quota-exceeded", "cut"];
    relay.printed(&[&["account", "set", "tanaka"], &limits[..]].concat());
    let text = explained(&relay, "tanaka", "its quota is used up, and it is cut");
    assert!(text.contains("quota: 0 B left of 100 kB, and begins anew in "), "{text}");
    relay.printed(&["account", "set", "tanaka", "--quota", "none", "--disable"]);
    explained(&relay, "tanaka", "not served: ");
    let unknown = relay.run(&["explain", "nobody"]);
    assert!(unknown.status.code() == Some(1), "{unknown:?}");
    let said = stderr(&unknown);
    assert!(said.contains("no account, peer or connection \"nobody\" now"), "{said}");
}

#[test]
fn a_client_that_reads_slowly_and_a_server_that_sends_slowly() {
    let relay = home(&format!("[access]\nallow_destinations = [\"127.0.0.0/8\"]\n{ACCOUNTS}"));
    with_accounts(&relay, &[]);
    let relay = relay.serve();
    let client = connected(&relay, TANAKA, &server(pour));
    explained(&relay, "tanaka", "held back by: the client, which reads slowly");
    drop(client);
    read_all(connected(&relay, SATO, &server(trickle)));
    explained(&relay, "sato", "held back by: the destination, or the path between; nothing waits");
}

/// Both ends see who else takes the line.
#[test]
fn others_take_the_tunnels_line() {
    let [far, near] = relays(["2 Mbit/s", "400 kbit/s"], "");
    let pouring = server(pour);
    read_all(connected(&near, TANAKA, &pouring));
    (0..3).for_each(|_| read_all(connected(&near, SATO, &pouring)));
    // whether it is full for a moment depends on the machine, too
    let text = explained(&near, "tanaka", "; others take ");
    assert!(text.contains(" of it: sato "), "{text}");
    explained(&far, "near", "held back by: the tunnel to \"near\", where 4 flows share ");
}

/// A client that stops, so that the other relay takes no more of its connection: no fault of the tunnel.
#[test]
fn a_slow_client_behind_the_other_relay_is_no_slow_tunnel() {
    let [far, near] = relays(["100 Mbit/s", "100 Mbit/s"], "");
    let _client = connected(&near, TANAKA, &server(pour));
    let says = "held back by: the relay \"near\", which takes no more of this connection: its client there is slow";
    explained(&far, "near", says);
    explained(&near, "tanaka", "held back by: the client, which reads slowly");
}

/// The client has sent all and nothing moves at the doors, while buffers drain into the tunnel.
#[test]
fn an_upload_in_this_relays_buffers_waits_for_the_tunnel() {
    let [_far, near] = relays(["20 Mbit/s", "400 kbit/s"], "");
    let mut client = connected(&near, TANAKA, &server(read_all));
    client.write_all(&vec![7; 2_000_000]).unwrap();
    wait_for("silence at the doors", || near.status()["connections"][0]["rate_up"] == 0);
    let text = explained(&near, "tanaka", "of this connection wait for it, ");
    // the rate may be held down on a machine that is busy
    assert!(text.contains("held back by: the tunnel to \"far\", where 1 flow sends "), "{text}");
    // nothing of it is to be sent to its end
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
}

#[test]
fn a_line_that_loses_packets() {
    let mut middle = None;
    let rates = ["20 Mbit/s", "2 Mbit/s"];
    let between = |port| middle.insert(Middle::before(port)).port;
    let [far, near] = pair_through(rates, ["", ACCOUNTS], between);
    with_accounts(&near, &[]);
    let [_far, near] = [far, near].map(|home| home.serve());
    wait_for("the tunnel", || tunnel_is_up(&near));
    let client = connected(&near, TANAKA, &server(read_all));
    thread::spawn(move || pour(client));
    middle.unwrap().losing.store(10, Ordering::Relaxed);
    explained(&near, "tanaka", "; the line loses ");
}

/// The near relay sees that little comes; the far one, that nothing waits there.
#[test]
fn a_server_beyond_the_tunnel_that_sends_slowly() {
    let [far, near] = relays(["20 Mbit/s", "2 Mbit/s"], "");
    read_all(connected(&near, TANAKA, &server(trickle)));
    let text = explained(&near, "tanaka", "no other connection shares it");
    let line = "the line from there gives less than was agreed, or loses packets";
    assert!(text.contains(&format!("the destination is slow, or {line}")), "{text}");
    let text = explained(
        &far,
        "near",
        "held back by: the destination, or the path between; nothing waits",
    );
    assert!(text.starts_with("near: 1 connection\n"), "{text}");
    let number = far.status()["connections"][0]["id"].as_u64().unwrap();
    let text = explained(&far, &number.to_string(), "from peer near to 127.0.0.1:");
    assert!(!text.contains("from 127.0.0.1"), "{text}");
    let status = stdout(&far.run(&["status"]));
    assert!(status.contains("  peer near  "), "{status}");
}

#[test]
fn a_name_server_that_does_not_answer() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let dns = silent.local_addr().unwrap();
    let slow = format!(
        "[dns]\nservers = [\"{dns}\"]\n[timeouts]\nresolve = \"50 s\"\n[leg.direct]\nconnect_timeout = \"50 s\"\n"
    );
    let [far, near] = relays(["20 Mbit/s", "2 Mbit/s"], &slow);
    let _client = connect(&near, TANAKA, "slow.example:443");
    explained(&far, "near", "held back by: its name: no name server has answered for ");
    explained(
        &near,
        "tanaka",
        "held back by: the relay \"far\", which has not reached the destination",
    );
}
