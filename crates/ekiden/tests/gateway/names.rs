//! Clients that ask the gateway for names: who is answered, and what their connections are called afterwards.

use crate::Test;
use crate::network::{CLIENT, ECHO, GREETER, Network, PATIENCE_OF_SILENCE, config, exchange};
use crate::relayed::access_log;
use ekiden_linux::namespaces::netns::Netns;
use ekiden_testkit::names::{answer, code, question};
use ekiden_testkit::{PATIENCE, wait_for};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

pub(crate) const TESTS: &[Test] = &[
    ("answers_the_lans_questions_and_nobody_elses", answers_the_lans_questions_and_nobody_elses),
    ("answers_name_connections_that_say_none", answers_name_connections_that_say_none),
    ("names_are_answered_until_a_stop_is_over", names_are_answered_until_a_stop_is_over),
];

const DEVICES: &str = "devices = [\"eth1\"]";
const DNS: &str = "[dns]\nlisten = [\"0.0.0.0\", \"[fd77::1]\"]\nservers = [\"9.9.9.2\"]\n";

/// A name server on the Internet: every name is the server's address.
struct Server {
    asked: Arc<AtomicUsize>,
    silent: Arc<AtomicBool>,
}

fn server(network: &Network) -> Server {
    let socket = network.up.run(|| UdpSocket::bind(("9.9.9.2", 53))).unwrap().unwrap();
    let server = Server { asked: Arc::default(), silent: Arc::default() };
    let (asked, silent) = (Arc::clone(&server.asked), Arc::clone(&server.silent));
    std::thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((n, from)) = socket.recv_from(&mut buffer) {
            asked.fetch_add(1, Relaxed);
            if !silent.load(Relaxed) {
                let reply = answer(&buffer[..n], Ipv4Addr::new(9, 9, 9, 2), 2);
                let _ = socket.send_to(&reply, from);
            }
        }
    });
    server
}

/// What a program somewhere is answered, from an address of its own, within so long.
fn ask(
    netns: &Netns,
    (from, to): (&str, &str),
    message: &[u8],
    patience: Duration,
) -> Option<Vec<u8>> {
    let socket = netns.run(|| UdpSocket::bind((from, 0))).unwrap().unwrap();
    socket.connect((to, 53)).unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    socket.send(message).unwrap();
    let mut buffer = [0; 1500];
    let n = socket.recv(&mut buffer).ok()?;
    Some(buffer[..n].to_vec())
}

fn answers_the_lans_questions_and_nobody_elses(network: &Network) {
    let server = server(network);
    let daemon = network.serve(DEVICES, DNS);
    for (nth, ends) in
        [(CLIENT, "192.168.77.1"), ("fd77::2", "fd77::1"), (CLIENT, "9.9.9.1")].iter().enumerate()
    {
        // the reply comes from the address that was asked, or the client's kernel drops it
        let answered =
            ask(&network.lan, *ends, &question(nth as u16, "a.example"), PATIENCE).unwrap();
        assert_eq!((usize::from(answered[1]), code(&answered)), (nth, 0), "{ends:?}");
        assert!(answered.ends_with(&[9, 9, 9, 2]), "{answered:?}");
    }
    // from the Internet, and from a network of the house that no rule names
    let dns = || daemon.status()["dns"].clone();
    for (netns, ends) in [
        (&network.up, ("9.9.9.2", "9.9.9.1")),
        (&network.up, ("9.9.9.2", "192.168.77.1")),
        (&network.lan, ("172.16.5.2", "192.168.77.1")),
    ] {
        let before = dns()["refused"].as_u64().unwrap();
        let answered = ask(netns, ends, &question(9, "a.example"), PATIENCE_OF_SILENCE);
        assert_eq!(answered, None, "{ends:?}");
        assert_eq!(dns()["refused"].as_u64().unwrap(), before + 1, "{ends:?}");
    }
    let over_tcp = network.up.run(|| TcpStream::connect(("9.9.9.1", 53))).unwrap();
    let closed = over_tcp.is_ok_and(|mut stream| {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        !stream.read(&mut [0; 9]).is_ok_and(|n| n > 0)
    });
    assert!(closed && server.asked.load(Relaxed) > 0);
    // a rule for everybody opens the relay, and not its names
    let more = "[[rule]]\nfrom = [\"fd77::2\"]\naction = \"deny\"\n[[rule]]\naction = \"allow\"\n";
    daemon.reload(&config(DEVICES, &format!("{DNS}{more}")));
    for (netns, ends) in
        [(&network.up, ("9.9.9.2", "9.9.9.1")), (&network.lan, ("fd77::2", "fd77::1"))]
    {
        let answered = ask(netns, ends, &question(9, "a.example"), PATIENCE_OF_SILENCE);
        assert_eq!(answered, None, "{ends:?}");
    }
    // the link is down: what was known is answered
    server.silent.store(true, Relaxed);
    wait_for("an answer past its end", || {
        let ends = (CLIENT, "192.168.77.1");
        let answered = ask(&network.lan, ends, &question(1, "a.example"), PATIENCE).unwrap();
        assert!(answered.ends_with(&[9, 9, 9, 2]));
        dns()["stale"].as_u64() > Some(0)
    });
    let text = network.ask(&daemon, &["status"]);
    assert!(text.contains("names: "), "{text}");
}

fn answers_name_connections_that_say_none(network: &Network) {
    let _server = server(network);
    let rules = "[[rule]]\nto = [\"*.ads.example\"]\naction = \"deny\"\n";
    let daemon = network.serve(DEVICES, &format!("{DNS}{rules}"));
    let resolve = |name: &str| {
        let ends = (CLIENT, "192.168.77.1");
        ask(&network.lan, ends, &question(1, name), PATIENCE).unwrap();
    };
    resolve("Mail.Example");
    let mut greeted = network.dial(GREETER);
    let mut greeting = [0; 11];
    greeted.read_exact(&mut greeting).unwrap();
    drop(greeted);
    wait_for("the access log", || access_log(&daemon).contains("mail.example:2222 (9.9.9.2)"));
    assert_eq!(daemon.status()["dns"]["named"], 1);
    // a name that rules deny
    resolve("x.ads.example");
    let mut refused = network.dial(GREETER);
    assert!(!refused.read(&mut greeting).is_ok_and(|n| n > 0));
    // the client's own word counts before the answer
    let page = network.page(&["--resolve", "example.org:80:9.9.9.2", "http://example.org/"]);
    assert_eq!(page, "9.9.9.1 http example.org");
}

fn names_are_answered_until_a_stop_is_over(network: &Network) {
    let _server = server(network);
    let mut daemon = network.serve(DEVICES, DNS);
    let mut live = network.dial(ECHO);
    live.write_all(b"live").unwrap();
    live.read_exact(&mut [0; 4]).unwrap();
    let port = daemon.address;
    daemon.signal(rustix::process::Signal::TERM);
    wait_for("the closed port", || {
        network.gateway.run(|| TcpStream::connect(port)).unwrap().is_err()
    });
    let ends = (CLIENT, "192.168.77.1");
    let answered = ask(&network.lan, ends, &question(1, "a.example"), PATIENCE).unwrap();
    assert!(answered.ends_with(&[9, 9, 9, 2]), "{answered:?}");
    assert_eq!(exchange(live, &[b"peace"]).unwrap(), b"peace");
    assert_eq!(daemon.code(), Some(0), "{}", daemon.log());
}
