//! Names: both families, slow and silent servers, the cache, and the race of RFC 8305.

use crate::harness::*;
use crate::name_server::{NameServer, Say, addresses};
use ekiden_model::units::Span;
use ekiden_proxy::settings::{Dns, Family, Settings};
use std::net::{SocketAddr, TcpListener, TcpStream};

fn asking(server: &NameServer) -> Settings {
    let mut settings = settings();
    settings.dns.servers = vec![server.address.into()];
    settings
}

fn with_dns(server: &NameServer, change: impl FnOnce(&mut Dns)) -> Relay {
    let mut settings = asking(server);
    change(&mut settings.dns);
    Relay::start(settings)
}

/// Echoing servers on one port of both loopback addresses.
fn echo_on_both() -> u16 {
    eventually("the state", || {
        let v4 = TcpListener::bind(loopback(0)).unwrap();
        let port = v4.local_addr().unwrap().port();
        let v6 = TcpListener::bind(("::1", port)).ok()?;
        echo_on(v4);
        echo_on(v6);
        Some(port)
    })
}

/// On `[::1]:port` a full queue: a SYN is neither answered nor refused, as behind a broken tunnel.
fn black_hole_on_ipv6(port: u16) -> (socket2::Socket, Vec<TcpStream>) {
    let socket = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None).unwrap();
    let address = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port));
    socket.bind(&address.into()).unwrap();
    socket.listen(0).unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) =
        TcpStream::connect_timeout(&address, std::time::Duration::from_millis(500))
    {
        waiting.push(stream);
    }
    (socket, waiting)
}

/// The far end of what `host` was connected to.
fn reached(relay: &Relay, host: &str, port: u16) -> Result<SocketAddr, String> {
    let (head, mut stream) = connect(relay.address, format!("{host}:{port}"));
    if !head.starts_with("HTTP/1.1 200") {
        return Err(head);
    }
    assert!(echoes(&mut stream));
    let connection = relay.status().connections.into_iter().max_by_key(|c| c.id).unwrap();
    Ok(connection.legs[1].peer.unwrap())
}

#[test]
fn one_family_suffices_and_the_preferred_wins() {
    let none = addresses(&[]);
    let server = NameServer::start(&[
        ("four.test", addresses(&["127.0.0.1"]), none.clone()),
        ("six.test", none, addresses(&["::1"])),
        ("both.test", addresses(&["127.0.0.1"]), addresses(&["::1"])),
    ]);
    let port = echo_on_both();
    let relay = with_dns(&server, |_| {});
    assert!(reached(&relay, "four.test", port).unwrap().is_ipv4());
    assert!(reached(&relay, "six.test", port).unwrap().is_ipv6());
    assert!(reached(&relay, "both.test", port).unwrap().is_ipv6());
    assert!(reached(&relay, "BOTH.test.", port).unwrap().is_ipv6());
    let relay = with_dns(&server, |dns| dns.prefer = Family::Ipv4);
    // the preferred answer may come second: it has the other's resolution delay to win
    assert!(reached(&relay, "four.test", port).unwrap().is_ipv4());
    assert!(reached(&relay, "six.test", port).unwrap().is_ipv6());
    let relay = with_dns(&server, |dns| dns.prefer = Family::Ipv4Only);
    assert!(reached(&relay, "both.test", port).unwrap().is_ipv4());
    assert!(reached(&relay, "six.test", port).unwrap_err().contains("502"));
    let relay = with_dns(&server, |dns| dns.prefer = Family::Ipv6Only);
    assert!(reached(&relay, "four.test", port).unwrap_err().contains("502"));
    assert!(reached(&relay, "both.test", port).unwrap().is_ipv6());
}

#[test]
fn every_protocol_resolves_names() {
    let server = NameServer::start(&[("a.test", addresses(&["127.0.0.1"]), addresses(&[]))]);
    let to = echo();
    let relay = with_dns(&server, |_| {});
    let (code, mut stream) = socks5(relay.address, "a.test", to.port());
    assert_eq!(code, 0);
    assert!(echoes(&mut stream));
    let (code, mut stream) = socks4a(relay.address, "a.test", to.port());
    assert_eq!(code, 90);
    assert!(echoes(&mut stream));
    assert_eq!(socks5(relay.address, "no.test", to.port()).0, 4);
    assert_eq!(socks4a(relay.address, "no.test", to.port()).0, 91);
}

#[test]
fn a_black_hole_in_one_family_leaves_the_other_usable() {
    let server =
        NameServer::start(&[("both.test", addresses(&["127.0.0.1"]), addresses(&["::1"]))]);
    let to = echo();
    let _hole = black_hole_on_ipv6(to.port());
    let relay = with_dns(&server, |dns| dns.attempt_delay = Span::from_millis(100));
    assert_eq!(reached(&relay, "both.test", to.port()).unwrap(), to);
    // nothing listens on ::1: refused, and the next address is tried at once
    let other = echo();
    assert_eq!(reached(&relay, "both.test", other.port()).unwrap(), other);
}

#[test]
fn a_name_without_reachable_address_times_out_with_the_leg() {
    let server = NameServer::start(&[("six.test", addresses(&[]), addresses(&["::1"]))]);
    let to = echo();
    let _hole = black_hole_on_ipv6(to.port());
    let mut settings = asking(&server);
    settings.legs.get_mut("direct").unwrap().connect_timeout = Span::from_millis(300);
    let relay = Relay::start(settings);
    let text = refusal(relay.address, format!("six.test:{}", to.port()));
    assert!(
        text.starts_with("HTTP/1.1 504") && text.contains("did not answer within 300 ms"),
        "{text}"
    );
}

#[test]
fn a_slow_answer_for_one_family_does_not_delay_the_other() {
    let slow = Say::Held(Box::new(addresses(&["::1"])));
    let server = NameServer::start(&[("slow.test", addresses(&["127.0.0.1"]), slow)]);
    let port = echo_on_both();
    let relay = with_dns(&server, |_| {});
    assert!(reached(&relay, "slow.test", port).unwrap().is_ipv4());
    // with the answer there in time IPv6 is used
    server.release();
    let relay = with_dns(&server, |dns| dns.resolution_delay = Span::from_secs(2));
    assert!(reached(&relay, "slow.test", port).unwrap().is_ipv6());
}

#[test]
fn an_answer_that_never_comes_is_waited_for_three_times() {
    let port = echo_on_both();
    let names: Vec<String> = (0..6).map(|n| format!("four{n}.test")).collect();
    let of: Vec<_> =
        names.iter().map(|name| (&**name, addresses(&["127.0.0.1"]), Say::Nothing)).collect();
    let server = NameServer::start(&of);
    let relay = with_dns(&server, |dns| dns.resolution_delay = Span::from_secs(1));
    let waited = |name: &String| {
        let begun = std::time::Instant::now();
        assert!(reached(&relay, name, port).unwrap().is_ipv4());
        begun.elapsed() >= std::time::Duration::from_secs(1)
    };
    let waited: Vec<bool> = names.iter().map(waited).collect();
    assert_eq!(waited[..3], [true; 3]);
    // a busy machine may delay one
    assert!(waited[3..].iter().filter(|waited| !**waited).count() >= 2, "{waited:?}");
}

#[test]
fn explains_each_resolution_failure() {
    let server = NameServer::start(&[
        ("broken.test", Say::ServerFailure, Say::ServerFailure),
        ("silent.test", Say::Nothing, Say::Nothing),
        ("empty.test", addresses(&[]), addresses(&[])),
        ("half.test", addresses(&["127.0.0.1"]), Say::ServerFailure),
        ("quiet.test", addresses(&["127.0.0.1"]), Say::Nothing),
    ]);
    let to = echo();
    let mut settings = asking(&server);
    settings.timeouts.resolve = Span::from_millis(400);
    let relay = Relay::start(settings);
    for (name, words) in [
        ("none.test", "none.test has no address"),
        ("empty.test", "empty.test has no address"),
        ("broken.test", "broken.test cannot be resolved"),
        ("silent.test", "silent.test cannot be resolved"),
    ] {
        let text = refusal(relay.address, format!("{name}:{}", to.port()));
        assert!(text.starts_with("HTTP/1.1 502") && text.contains(words), "{text}");
    }
    // one family's trouble is not the other's
    assert_eq!(reached(&relay, "half.test", to.port()).unwrap(), to);
    assert_eq!(reached(&relay, "quiet.test", to.port()).unwrap(), to);
    assert_eq!(relay.status().totals.failed, 4);
}

#[test]
fn answers_are_kept_within_the_bounds_given() {
    let with_ttl = |ttl| Say::Addresses(vec!["127.0.0.1".parse().unwrap()], ttl);
    let server = NameServer::start(&[
        ("kept.test", with_ttl(60), addresses(&[])),
        ("never.test", with_ttl(0), addresses(&[])),
    ]);
    let to = echo();
    let ask = |relay: &Relay, name: &str| {
        let before = server.asked(name, false);
        for _ in 0..3 {
            reached(relay, name, to.port()).unwrap();
        }
        server.asked(name, false) - before
    };
    let relay = with_dns(&server, |_| {});
    assert_eq!(ask(&relay, "kept.test"), 1);
    assert_eq!(ask(&relay, "never.test"), 3);
    // kept longer than the name server said, and less long
    let relay = with_dns(&server, |dns| dns.min_ttl = Span::from_secs(600));
    assert_eq!(ask(&relay, "never.test"), 1);
    let relay = with_dns(&server, |dns| dns.max_ttl = Span::ZERO);
    assert_eq!(ask(&relay, "kept.test"), 3);
}

#[test]
fn localhost_needs_no_name_server() {
    let server = NameServer::start(&[]);
    let to = echo();
    let relay = with_dns(&server, |dns| dns.prefer = Family::Ipv4Only);
    assert_eq!(reached(&relay, "localhost", to.port()).unwrap(), to);
    assert_eq!(server.asked("localhost", false), 0);
}

#[test]
fn reads_the_hosts_file_when_configured() {
    let file = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    // any name of this machine's file that stands for loopback
    let name = file.lines().filter(|line| line.starts_with("127.")).find_map(|line| {
        let mut names = line.split('#').next()?.split_whitespace().skip(1);
        names.find(|name| !name.contains("localhost")).map(str::to_owned)
    });
    let Some(name) = name else {
        return skip("/etc/hosts names nothing on loopback but localhost");
    };
    let server = NameServer::start(&[]);
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = echo_on(listener).port();
    let relay = with_dns(&server, |_| {});
    assert!(reached(&relay, &name, port).unwrap().ip().to_canonical().is_loopback());
    assert_eq!(server.asked(&name, false), 0);
    let relay = with_dns(&server, |dns| dns.hosts_file = false);
    assert!(reached(&relay, &name, port).is_err());
    assert!(server.asked(&name, false) > 0);
}

#[test]
fn a_source_address_decides_the_family() {
    let server =
        NameServer::start(&[("both.test", addresses(&["127.0.0.1"]), addresses(&["::1"]))]);
    let port = echo_on_both();
    for (source, ipv4) in [("127.0.0.9", true), ("::1", false)] {
        let mut settings = asking(&server);
        settings.legs.get_mut("direct").unwrap().socket.source = Some(source.parse().unwrap());
        let relay = Relay::start(settings);
        assert_eq!(reached(&relay, "both.test", port).unwrap().is_ipv4(), ipv4);
        let other = if ipv4 { format!("[::1]:{port}") } else { format!("127.0.0.1:{port}") };
        let text = refusal(relay.address, other);
        assert!(text.contains("of another family than the source address"), "{text}");
    }
}

#[test]
fn a_client_that_goes_to_ever_new_names_has_a_rate_and_known_names_are_reached() {
    let server = NameServer::start(&[
        ("known.test", addresses(&["127.0.0.1"]), addresses(&[])),
        ("later.test", addresses(&["127.0.0.1"]), addresses(&[])),
    ]);
    let to = echo();
    let relay = with_dns(&server, |dns| {
        // fifty at once
        dns.rate = 1;
        dns.prefer = Family::Ipv4Only;
    });
    assert_eq!(reached(&relay, "known.test", to.port()).unwrap(), to);
    let said = "too many names are being looked up";
    let above = (0..1_000).find(|n| {
        let text = refusal(relay.address, format!("n{n}.test:{}", to.port()));
        text.starts_with("HTTP/1.1 503") && text.contains(said)
    });
    let above = above.expect("ever new names are asked for");
    assert_eq!(server.asked(&format!("n{above}.test"), false), 0);
    assert!(relay.status().dns.unwrap().names_limited > 0);
    assert_eq!(reached(&relay, "known.test", to.port()).unwrap(), to);
    // it goes on
    let later = eventually("a new name", || reached(&relay, "later.test", to.port()).ok());
    assert_eq!(later, to);
}

/// Equal questions share a try of the resolver. One that comes near the end of another's has as many tries as that.
#[test]
fn a_question_that_joins_a_late_one_has_its_whole_time() {
    let held = Say::Held(Box::new(addresses(&["127.0.0.1"])));
    let server = NameServer::start(&[("slow.test", held, addresses(&[]))]);
    let mut settings = asking(&server);
    settings.timeouts.resolve = Span::from_secs(2);
    let relay = Relay::start(settings);
    let port = echo().port();
    let address = relay.address;
    let ask = |after: u64| {
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(after));
            connect(address, format!("slow.test:{port}")).0
        })
    };
    let (first, second) = (ask(0), ask(900));
    std::thread::sleep(std::time::Duration::from_millis(2_300));
    server.release();
    let [first, second] = [first, second].map(|asked| asked.join().unwrap());
    assert!(first.starts_with("HTTP/1.1 50"), "{first}");
    assert!(second.starts_with("HTTP/1.1 200 "), "{second}");
}
