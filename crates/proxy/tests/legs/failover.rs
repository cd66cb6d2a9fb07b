//! Upstream proxies that do not answer, answer wrongly or refuse: the next chain is used, the broken
//! one rests, and when all rest they are tried all the same.

use crate::harness::*;
use crate::upstream::{Script, add, refusing, scripted, scripted_on};
use ekiden_model::units::Span;
use ekiden_proxy::observe::status::UpstreamStatus;
use ekiden_proxy::settings::Settings;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

fn through(chains: &[&[&str]], hops: &[(&str, &str, SocketAddr)]) -> Settings {
    let mut settings = settings();
    settings.timeouts.handshake = Span::from_millis(300);
    for (name, protocol, address) in hops {
        add(&mut settings, name, protocol, *address, None);
    }
    settings.routes.push(route(vec![], chains));
    settings
}

fn upstream(relay: &Relay, name: &str) -> UpstreamStatus {
    relay.status().upstreams.into_iter().find(|upstream| upstream.name == name).unwrap()
}

const DENIED: &[u8] = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n";
const FORBIDDEN: &[u8] = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
const BAD_GATEWAY: &[u8] = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n";

#[test]
fn any_upstream_failure_leads_to_the_next_chain() {
    let say = |text| Some(Script::Say(text));
    // protocol, what it does, words in its status, whether it rests
    let cases = [
        ("http", None, "cannot connect to", true),
        ("http", Some(Script::Silent), "did not answer within 300 ms", true),
        ("http", Some(Script::Close), "closed the connection", true),
        // whether connecting or asking meets the reset is a race
        ("http", Some(Script::Reset), "", true),
        ("http", say(DENIED), "answered 407", true),
        ("http", say(FORBIDDEN), "", false),
        ("http", say(BAD_GATEWAY), "", false),
        ("http", say(b"SSH-2.0-OpenSSH_9.2\r\n"), "does not speak HTTP", true),
        ("http", say(b"\x00\x01\x02\xff\r\n\r\n"), "does not speak HTTP", true),
        ("http", say(b"HTTP/1.1 101 Switching\r\n\r\n"), "", false),
        ("socks5", None, "cannot connect to", true),
        ("socks5", Some(Script::Silent), "did not answer within 300 ms", true),
        ("socks5", Some(Script::Close), "closed the connection", true),
        ("socks5", say(b"\x05\xff"), "wants a user and password", true),
        ("socks5", say(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "does not speak SOCKS5", true),
        ("socks5", say(b"\x05\x00\x05\x02\x00\x01\x00\x00\x00\x00\x00\x00"), "", false),
        ("socks5", say(b"\x05\x00\x05\x00\x00\x07"), "cannot be read", true),
        ("socks5", say(b"\x05\x00\x04\x00\x00\x01"), "answered version 4", true),
    ];
    let server = echo();
    for (nth, (protocol, script, words, rests)) in cases.into_iter().enumerate() {
        let (first, count) = match script {
            Some(script) => scripted(script),
            None => (refusing(), Arc::default()),
        };
        let second = Relay::start(settings());
        let hops = [("first", protocol, first), ("second", "socks5", second.address)];
        let relay = Relay::start(through(&[&["first"], &["second"]], &hops));
        let (head, mut stream) = connect(relay.address, server);
        assert!(head.contains(" 200 ") && echoes(&mut stream), "case {nth}: {head}");
        assert_eq!(relay.relayed().through, ["second"], "case {nth}");
        let status = upstream(&relay, "first");
        assert_eq!(status.available, !rests, "case {nth} {status:?}");
        assert_eq!((status.failures, status.retry_in_seconds.is_some()), (rests.into(), rests));
        let error = status.last_error.unwrap_or_default();
        assert!(error.contains(words), "case {nth}: {error}");
        assert!(upstream(&relay, "second").available);
        assert_eq!(count.load(SeqCst), usize::from(script.is_some()), "case {nth}");
    }
}

#[test]
fn chains_in_backoff_come_last() {
    let (first, firsts) = scripted(Script::Close);
    let (second, seconds) = scripted(Script::Close);
    let hops = [("first", "http", first), ("second", "http", second)];
    let relay = Relay::start(through(&[&["first"], &["second"]], &hops));
    let server = echo();
    for nth in 1..=3 {
        let text = refusal(relay.address, server);
        assert!(
            text.starts_with("HTTP/1.1 502") && text.contains("closed the connection"),
            "{text}"
        );
        // both rest, and both are tried all the same
        assert_eq!((firsts.load(SeqCst), seconds.load(SeqCst)), (nth, nth));
        // counted when the connection is over, which is after its last byte
        wait_for("relay.status().totals.failed == nth as u64", || {
            relay.status().totals.failed == nth as u64
        });
    }
}

#[test]
fn backoff_doubles_with_each_failure_and_ends_with_a_success() {
    let address = refusing();
    let hops = [("only", "http", address)];
    let relay = Relay::start(through(&[&["only"]], &hops));
    let server = echo();
    // tried until it failed twice: the second time after the first rest
    let failing = eventually("the state", || {
        refusal(relay.address, server);
        Some(upstream(&relay, "only")).filter(|upstream| upstream.failures == 2)
    });
    // from the second failure on two seconds; one was the first
    assert!(failing.retry_in_seconds.unwrap() > 1.0, "{failing:?}");
    let mut hop = settings();
    hop.listen = vec![address];
    let _hop = Relay::start(hop);
    let (head, mut stream) = connect(relay.address, server);
    assert!(head.contains(" 200 ") && echoes(&mut stream));
    let status = upstream(&relay, "only");
    assert_eq!((status.available, status.failures, status.retry_in_seconds), (true, 0, None));
}

#[test]
fn a_broken_hop_backs_off_its_own_chain_only() {
    let far = refusing();
    let near = Relay::start(settings());
    let hops = [("near", "http", near.address), ("far", "socks5", far)];
    let relay = Relay::start(through(&[&["near", "far"], &["near"]], &hops));
    let server = echo();
    for _ in 0..2 {
        let (head, mut stream) = connect(relay.address, server);
        assert!(head.contains(" 200 ") && echoes(&mut stream), "{head}");
        assert_eq!(relay.relayed().through, ["near"]);
        // the second time the broken chain was not tried first
        wait_for("near.status().totals.failed == 1", || near.status().totals.failed == 1);
        drop(stream);
        wait_for("relay.status().connections.is_empty()", || relay.status().connections.is_empty());
    }
    assert!(upstream(&relay, "near").available && upstream(&relay, "far").available);
    assert!(upstream(&relay, "far").last_error.unwrap().contains("502"));
}

#[test]
fn a_second_hop_in_backoff_puts_its_chain_last() {
    let (far, asked) = scripted(Script::Silent);
    let near = Relay::start(settings());
    let hops = [("near", "socks5", near.address), ("far", "http", far)];
    let relay = Relay::start(through(&[&["near", "far"], &["near"]], &hops));
    let server = echo();
    for _ in 0..2 {
        let (head, mut stream) = connect(relay.address, server);
        assert!(head.contains(" 200 ") && echoes(&mut stream), "{head}");
    }
    assert_eq!(asked.load(SeqCst), 1);
    assert!(!upstream(&relay, "far").available && upstream(&relay, "near").available);
}

#[test]
fn direct_can_be_the_last_chain() {
    let hops = [("gone", "http", refusing())];
    let relay = Relay::start(through(&[&["gone"], &[]], &hops));
    let (head, mut stream) = connect(relay.address, echo());
    assert!(head.contains(" 200 ") && echoes(&mut stream));
    assert!(relay.relayed().through.is_empty());
}

#[test]
fn a_refused_client_does_not_try_further_chains() {
    let (first, count) = scripted(Script::Close);
    let mut settings = through(&[&["first"], &[]], &[("first", "http", first)]);
    settings.access.allow_destinations.clear();
    let relay = Relay::start(settings);
    assert!(refusal(relay.address, echo()).starts_with("HTTP/1.1 403"));
    assert_eq!(count.load(SeqCst), 0);
}

#[test]
fn reload_keeps_the_health_of_unchanged_upstreams() {
    let settings = through(&[&["gone"], &[]], &[("gone", "http", refusing())]);
    let relay = Relay::start(settings.clone());
    connect(relay.address, echo());
    assert!(!upstream(&relay, "gone").available);
    let mut same = settings.clone();
    same.listen = vec![relay.address];
    relay.reload(same.clone()).unwrap();
    assert_eq!(upstream(&relay, "gone").failures, 1);
    same.upstreams.get_mut("gone").unwrap().port = 9;
    relay.reload(same).unwrap();
    assert_eq!(upstream(&relay, "gone").failures, 0);
}

/// The head of the answer to a plain request, whose method and end of the head are given.
fn plain(relay: SocketAddr, method: &str, rest: &str) -> String {
    let mut stream = TcpStream::connect(relay).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!("{method} http://127.0.0.1:9/ HTTP/1.1\r\nHost: 127.0.0.1:9\r\n{rest}");
    stream.write_all(head.as_bytes()).unwrap();
    read_head(&mut stream)
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

#[test]
fn an_upstream_that_closes_before_it_answers_a_plain_request_backs_off() {
    let get = ("GET", "\r\n");
    let post = ("POST", "Content-Length: 2\r\n\r\nhi");
    for (script, (method, rest)) in
        [(Script::Close, get), (Script::Close, post), (Script::Reset, get), (Script::Reset, post)]
    {
        let ((first, _), (second, _)) = (scripted(script), scripted(Script::Say(OK)));
        let hops = [("first", "http", first), ("second", "http", second)];
        let relay = Relay::start(through(&[&["first"], &["second"]], &hops));
        let head = plain(relay.address, method, rest);
        // what may be repeated goes on to the next chain, and any request where connecting meets the reset
        let at_once = matches!(script, Script::Reset) && head.contains(" 200 ");
        let repeated = method == "GET" && head.contains(" 200 ");
        assert!(repeated || method == "POST" && (head.contains(" 502 ") || at_once), "{head}");
        let status = upstream(&relay, "first");
        assert!(!status.available && status.failures == 1, "{status:?}");
        let error = status.last_error.unwrap();
        assert!(error.contains("upstream \"first\"") || at_once, "{error}");
        let head = plain(relay.address, method, rest);
        assert!(head.contains(" 200 "), "{method}: {head}");
    }
}

#[test]
fn a_kept_connection_of_a_later_chain_does_not_answer_before_an_earlier_chain() {
    let first = refusing();
    let (second, [accepted, requests]) = keeping();
    let hops = [("first", "http", first), ("second", "http", second)];
    let relay = Relay::start(through(&[&["first"], &["second"]], &hops));
    for _ in 0..2 {
        assert!(plain(relay.address, "GET", "\r\n").contains(" 200 "));
    }
    assert_eq!([accepted.load(SeqCst), requests.load(SeqCst)], [1, 2], "it was kept");
    let firsts = scripted_on(TcpListener::bind(first).unwrap(), Script::Say(OK));
    wait_for("the end of the backoff", || upstream(&relay, "first").available);
    assert!(plain(relay.address, "GET", "\r\n").contains(" 200 "));
    assert_eq!([firsts.load(SeqCst), requests.load(SeqCst)], [1, 2]);
}

/// An HTTP proxy that keeps its connections; how many there were, and how many requests.
fn keeping() -> (SocketAddr, [Arc<AtomicUsize>; 2]) {
    let (listener, at) = crate::common::listener();
    let counts = [Arc::<AtomicUsize>::default(), Arc::default()];
    let [accepted, requests] = counts.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, requests) = (stream.unwrap(), Arc::clone(&requests));
            accepted.fetch_add(1, SeqCst);
            thread::spawn(move || {
                let mut head = [0; 4096];
                while stream.read(&mut head).is_ok_and(|n| n > 0) {
                    requests.fetch_add(1, SeqCst);
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                }
            });
        }
    });
    (at, counts)
}

#[test]
fn an_upstream_does_not_back_off_for_the_faults_of_origins_and_clients() {
    let cases = [
        (Script::Say(BAD_GATEWAY), "GET", "\r\n"),
        // the upstream may be right to wait no longer for the body
        (Script::Close, "POST", "Content-Length: 2\r\n\r\n"),
    ];
    for (script, method, rest) in cases {
        let (only, _) = scripted(script);
        let relay = Relay::start(through(&[&["only"]], &[("only", "http", only)]));
        let head = plain(relay.address, method, rest);
        assert!(head.contains(" 502 "), "{head}");
        let status = upstream(&relay, "only");
        assert!(status.available && status.failures == 0, "{status:?}");
    }
}

#[test]
fn an_answer_ends_the_backoff_of_an_upstream_and_a_connection_does_not() {
    for (script, status, ends) in
        [(Script::Close, " 502 ", false), (Script::Say(OK), " 200 ", true)]
    {
        let address = refusing();
        let relay = Relay::start(through(&[&["only"]], &[("only", "http", address)]));
        assert!(plain(relay.address, "GET", "\r\n").contains(" 502 "));
        assert_eq!(upstream(&relay, "only").failures, 1);
        let count = scripted_on(TcpListener::bind(address).unwrap(), script);
        assert!(plain(relay.address, "GET", "\r\n").contains(status));
        assert_eq!(count.load(SeqCst), 1);
        assert_eq!(upstream(&relay, "only").failures == 0, ends);
    }
}

/// Two relays that send each other everything, each by one of `protocols`.
fn ring(protocols: [&str; 2]) -> [Relay; 2] {
    let mut settings = [settings(), settings()];
    let last = Relay::start(settings[1].clone());
    add(&mut settings[0], "next", protocols[0], last.address, None);
    settings[0].routes.push(route(vec![], &[&["next"]]));
    let first = Relay::start(settings[0].clone());
    settings[1].listen = vec![last.address];
    add(&mut settings[1], "next", protocols[1], first.address, None);
    settings[1].routes.push(route(vec![], &[&["next"]]));
    last.reload(settings[1].clone()).unwrap();
    [first, last]
}

/// Each adds itself to `Via`, and keeps who came before.
#[test]
fn a_ring_of_relays_ends_at_its_first_turn() {
    for protocol in ["http", "socks5"] {
        let [first, last] = ring([protocol; 2]);
        let text = refusal(first.address, "127.0.0.1:9");
        assert!(text.starts_with("HTTP/1.1 50"), "{protocol}: {text}");
        // the client's, and the one that came back
        let accepted = [&first, &last].map(|relay| relay.status().totals.accepted);
        assert_eq!(accepted, [2, 1], "{protocol}");
    }
}

/// What one protocol says of the relays before, the other passes on.
#[test]
fn a_ring_of_relays_by_two_protocols_ends_at_its_first_turn() {
    for protocols in [["http", "socks5"], ["socks5", "http"]] {
        let [first, last] = ring(protocols);
        for door in ["http", "socks"] {
            let before = [&first, &last].map(|relay| relay.status().totals.accepted);
            match door {
                "http" => {
                    let text = refusal(first.address, "127.0.0.1:9");
                    assert!(text.starts_with("HTTP/1.1 50"), "{protocols:?}: {text}");
                }
                _ => assert_ne!(socks_reply(first.address), 0, "{protocols:?}"),
            }
            let after = [&first, &last].map(|relay| relay.status().totals.accepted);
            assert_eq!(
                [after[0] - before[0], after[1] - before[1]],
                [2, 1],
                "{protocols:?} {door}"
            );
        }
    }
}

/// SOCKS5's answer to a request for a port where nobody listens.
fn socks_reply(relay: SocketAddr) -> u8 {
    let mut stream = TcpStream::connect(relay).unwrap();
    stream.write_all(&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, 0, 9]).unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    answer[3]
}

/// A SOCKS proxy of another program, which asks `next` and does not say who came before.
fn forgetful(next: impl Fn() -> SocketAddr + Send + Sync + 'static) -> SocketAddr {
    let (listener, at) = crate::common::listener();
    let next = Arc::new(next);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut client, next) = (stream.unwrap(), Arc::clone(&next));
            thread::spawn(move || -> std::io::Result<()> {
                let mut count = [0; 2];
                client.read_exact(&mut count)?;
                client.read_exact(&mut vec![0; count[1].into()])?;
                client.write_all(&[5, 0])?;
                let mut request = [0; 10];
                client.read_exact(&mut request)?;
                let mut onward = TcpStream::connect(next())?;
                onward.write_all(&[&[5, 1, 0], &request[..]].concat())?;
                let mut answer = [0; 12];
                onward.read_exact(&mut answer)?;
                client.write_all(&answer[2..])
            });
        }
    });
    at
}

#[test]
fn a_ring_through_another_programs_socks_proxy_ends_after_some_turns() {
    let first = Arc::new(OnceLock::new());
    let next = Arc::clone(&first);
    let proxy = forgetful(move || *next.wait());
    let mut settings = settings();
    add(&mut settings, "next", "socks5", proxy, None);
    settings.routes.push(route(vec![], &[&["next"]]));
    let relay = Relay::start(settings);
    first.set(relay.address).unwrap();
    let text = refusal(relay.address, "127.0.0.1:9");
    assert!(text.starts_with("HTTP/1.1 50"), "{text}");
    // 64 wait for each other, and the next is refused
    assert_eq!(relay.status().totals.accepted, 65);
}
