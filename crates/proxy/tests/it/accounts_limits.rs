//! Accounts through real sockets: every byte is counted once, quotas end to the byte, limits change and
//! connections end while they run. Rates are measured in `benches/accounts.rs`, not here.
use crate::common::wire::{Origin, PATIENCE, Relay, field, get};
use crate::common::{Row, TUNNEL_PROTOCOLS, TunnelProtocol, connect, pattern, wait_until};
use ekiden_model::units::{Bytes, Rate, Span};
use ekiden_proxy::observe::status::{AccountStatus, Status};
use ekiden_proxy::settings::{
    Account, Allowance, CopyMode, ExceededAction, Limits, Settings, Unclaimed, UpstreamProtocol,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::thread::JoinHandle;
use std::time::Duration;

const UP: usize = 300_007;
const DOWN: usize = 700_001;

fn rate(text: &str) -> Option<Rate> {
    Some(text.parse().unwrap())
}

/// This machine's account.
fn account(limits: Limits) -> Account {
    Account {
        name: "home".to_owned(),
        addresses: vec!["127.0.0.0/8".parse().unwrap()],
        peers: vec!["before".to_owned()],
        limits,
    }
}

fn settings(movement: CopyMode, limits: Limits) -> Settings {
    let mut settings = crate::common::settings(movement);
    settings.sharing.list = vec![account(limits)];
    settings
}

/// Rates that wait now and then, and hardly hold anybody up.
fn fast() -> Limits {
    Limits { rates: [rate("40 Mbit/s"), rate("80 Mbit/s")], ..Limits::default() }
}

pub(crate) fn quota(bytes: u64, on_exceeded: ExceededAction) -> Limits {
    let quota = Allowance { bytes: Bytes::new(bytes), period: Span::from_secs(3600), on_exceeded };
    Limits { quota: Some(quota), ..Limits::default() }
}

fn home(status: &Status) -> AccountStatus {
    let accounts = status.sharing.clone().unwrap().accounts;
    accounts.into_iter().find(|one| one.name == "home").unwrap()
}

/// A server that takes `up` bytes and then sends `down`, to so many clients, and says what it got.
fn server(clients: usize, up: usize, down: usize) -> (SocketAddr, JoinHandle<()>) {
    let (listener, address) = crate::common::listener();
    let thread = std::thread::spawn(move || {
        for _ in 0..clients {
            let (mut stream, _) = listener.accept().unwrap();
            std::thread::spawn(move || {
                let mut got = vec![0; up];
                // the client may be cut off
                if stream.read_exact(&mut got).is_err() {
                    return;
                }
                assert!(got == pattern(1, up));
                let _ = stream.write_all(&pattern(2, down));
                let _ = stream.shutdown(Shutdown::Write);
                let _ = stream.read(&mut [0]);
            });
        }
    });
    (address, thread)
}

/// Sends, with the first bytes right behind the request's head, and reads all.
fn exchange(protocol: TunnelProtocol, relay: SocketAddr, to: SocketAddr) {
    let up = pattern(1, UP);
    let mut stream = match protocol {
        TunnelProtocol::Connect => {
            let mut stream = connect(relay);
            let head = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
            stream.write_all(&[head.as_bytes(), &up[..1_234]].concat()).unwrap();
            assert!(crate::common::read_head(&mut stream).starts_with("HTTP/1.1 200"));
            stream.write_all(&up[1_234..]).unwrap();
            stream
        }
        protocol => {
            let mut stream = protocol.open(relay, to);
            stream.write_all(&up).unwrap();
            stream
        }
    };
    let mut down = Vec::new();
    stream.read_to_end(&mut down).unwrap();
    assert!(down == pattern(2, DOWN), "{} of {DOWN}", down.len());
}

fn used(server: &ekiden_proxy::Server) -> Vec<(String, u64, u64)> {
    let usage = server.handle().accounts().usage();
    usage.into_iter().map(|one| (one.account.to_string(), one.down, one.up)).collect()
}

#[test]
fn counts_every_byte_once_in_every_protocol() {
    for movement in [CopyMode::Copy, CopyMode::Splice, CopyMode::Random(3)] {
        let row = Row::single(settings(movement, fast()));
        let (to, serving) = server(TUNNEL_PROTOCOLS.len(), UP, DOWN);
        for protocol in TUNNEL_PROTOCOLS {
            exchange(protocol, row.front(), to);
        }
        serving.join().unwrap();
        row.wait_until_empty();
        let opening = TUNNEL_PROTOCOLS.map(|protocol| protocol.opening(to));
        let all = opening.into_iter().fold((0, 0), |(down, up), opening| {
            (down + DOWN as u64 + opening.1, up + UP as u64 + opening.0)
        });
        let all = ("home".to_owned(), all.0, all.1);
        assert_eq!(used(row.front_server()), [all], "{movement:?}");
    }
}

#[test]
fn holds_at_both_ends_of_a_tunnel() {
    let row = Row::start(2, UpstreamProtocol::Tunnel, &settings(CopyMode::Auto, fast()));
    let (to, serving) = server(1, UP, DOWN);
    exchange(TunnelProtocol::Socks5, row.front(), to);
    serving.join().unwrap();
    row.wait_until_empty();
    let all = |(up, down)| [("home".to_owned(), DOWN as u64 + down, UP as u64 + up)];
    assert_eq!(used(row.front_server()), all(TunnelProtocol::Socks5.opening(to)));
    // the relay at the far end knows it by the tunnel it comes out of
    assert_eq!(used(row.back_server()), all((0, 0)));
}

pub(crate) fn relay(limits: Limits) -> Relay {
    relay_with(limits, |_| {})
}

pub(crate) fn relay_with(limits: Limits, edit: impl FnOnce(&mut Settings)) -> Relay {
    Relay::with(|settings| {
        settings.sharing.list = vec![account(limits)];
        edit(settings);
    })
}

pub(crate) fn of(relay: &Relay) -> (u64, u64) {
    let used = used(relay.server.as_ref().unwrap());
    (used[0].1, used[0].2)
}

#[test]
fn counts_heads_and_bodies_in_every_framing() {
    let relay = relay(fast());
    let origin = Origin::new();
    let body = "y".repeat(100_000);
    let chunks = format!("186A0\r\n{body}\r\n0\r\n\r\n");
    let chunked = "Transfer-Encoding: chunked\r\n";
    let mut client = relay.client();
    // a head counts as it was read or as it was written, whichever is longer
    let (mut down, mut up) = (0, 0);
    for (fields, sent) in [("Content-Length: 100000\r\n", &body), (chunked, &chunks)] {
        let head = crate::common::wire::request("POST", &origin, "/", fields);
        client.send(&head);
        client.send(sent);
        let mut server = origin.accept();
        up += head.len().max(server.head().len()) + sent.len();
        let whole = |wire: &mut crate::common::wire::Wire| match fields == chunked {
            // others may chunk it otherwise
            true => wire.until("\r\n0\r\n\r\n").matches('y').count(),
            false => wire.exactly(body.len()).len(),
        };
        assert_eq!(whole(&mut server), body.len());
        let head = format!("HTTP/1.1 200 OK\r\n{fields}Connection: close\r\n\r\n");
        server.send(format!("{head}{sent}"));
        down += head.len().max(client.head().len()) + sent.len();
        assert_eq!(whole(&mut client), body.len());
    }
    // up to the end of the connection
    let (asked, answered) = (get(&origin, "/", ""), "HTTP/1.1 200 OK\r\n\r\n");
    client.send(&asked);
    let mut server = origin.accept();
    up += asked.len().max(server.head().len());
    server.send(format!("{answered}{body}"));
    server.finish();
    down += answered.len().max(client.head().len()) + body.len();
    assert_eq!(client.until_end().len(), body.len());
    // a chunk that arrives in parts becomes more chunks
    for (used, sent) in [(of(&relay).0, down as u64), (of(&relay).1, up as u64)] {
        assert!((sent..sent + sent / 500).contains(&used), "{used} of {sent}");
    }
}

#[test]
fn cached_responses_count_and_wait() {
    let relay = relay_with(fast(), |settings| settings.cache.memory = Some(Bytes::mib(16)));
    wait_until(|| relay.status().cache.unwrap().open, || "the cache opens".to_owned());
    let origin = Origin::new();
    let body = "z".repeat(1_000_000);
    let response = format!(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let asked = get(&origin, "/", "");
    let (mut down, mut up) = (0, 0);
    for nth in 1..=3 {
        let mut client = relay.client();
        client.send(&asked);
        up += asked.len() as u64;
        if nth == 1 {
            let mut server = origin.accept();
            // the head that went on is longer by `Via`
            up += (server.head().len() - asked.len()) as u64;
            server.send(&response);
        }
        down += (client.head().len() + body.len()) as u64;
        assert!(client.exactly(body.len()) == body.as_bytes());
        assert_eq!(of(&relay), (down, up));
    }
    assert_eq!(relay.status().cache.unwrap().hits, 2);
}

/// Bytes until the connection ends, however it does.
pub(crate) fn until_gone(stream: &mut TcpStream) -> usize {
    let (mut total, mut bytes) = (0, [0; 65_536]);
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return total,
            Ok(n) => total += n,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return total,
            Err(error) => panic!("{error} after {total}"),
        }
    }
}

#[test]
fn a_quota_that_cuts_ends_to_the_byte() {
    const QUOTA: u64 = 1_000_003;
    for movement in [CopyMode::Copy, CopyMode::Splice] {
        for protocol in TUNNEL_PROTOCOLS {
            let row = Row::single(settings(movement, quota(QUOTA, ExceededAction::Cut)));
            let (to, serving) = server(1, 0, 4_000_000);
            let mut stream = protocol.open(row.front(), to);
            let (up, down) = protocol.opening(to);
            let rest = QUOTA - up - down;
            assert_eq!(until_gone(&mut stream) as u64, rest, "{movement:?} {protocol:?}");
            serving.join().unwrap();
            drop(stream);
            row.wait_until_empty();
            assert_eq!(used(row.front_server()), [("home".to_owned(), QUOTA - up, up)]);
            assert_eq!(home(&row.front_server().status()).state, "cut");
            let mut client = connect(row.front());
            write!(client, "GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
            assert!(answer.contains("\"home\": the account's quota is used up"), "{answer}");
        }
    }
}

#[test]
fn reports_an_upload_that_uses_up_the_quota() {
    let relay = relay(quota(100_000, ExceededAction::Cut));
    let origin = Origin::new();
    let mut client = relay.client();
    client.send(crate::common::wire::request("POST", &origin, "/", "Content-Length: 200000\r\n"));
    client.send("y".repeat(200_000));
    let mut server = origin.accept();
    server.head();
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    let body = client.until_end();
    assert!(body.contains("account \"home\" has used up its quota"), "{body}");
    assert!(server.rest().0.len() <= 100_000);
    assert_eq!(of(&relay), (0, 100_000));
}

#[test]
fn connections_of_an_account_share_one_quota() {
    const QUOTA: u64 = 3_000_000;
    let row = Row::single(settings(CopyMode::Auto, quota(QUOTA, ExceededAction::Cut)));
    let (to, serving) = server(8, 4, 1_000_000);
    // all of them are there before the first is sent anything
    let clients: Vec<_> = (0..8).map(|_| TunnelProtocol::Connect.open(row.front(), to)).collect();
    let clients: Vec<_> = clients
        .into_iter()
        .map(|mut stream| {
            std::thread::spawn(move || {
                // the quota may be used up already
                let _ = stream.write_all(&pattern(1, 4));
                until_gone(&mut stream) as u64
            })
        })
        .collect();
    let got: u64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
    serving.join().unwrap();
    row.wait_until_empty();
    let (_, down, up) = used(row.front_server()).remove(0);
    let opening = 8 * TunnelProtocol::Connect.opening(to).1;
    assert_eq!((down + up, got), (QUOTA, down - opening));
}

#[test]
fn a_throttling_quota_lets_the_rest_pass() {
    let throttle_rate = ExceededAction::Throttle("80 Mbit/s".parse().unwrap());
    let row = Row::single(settings(CopyMode::Auto, quota(1_000_000, throttle_rate)));
    let (to, serving) = server(1, 0, 3_000_000);
    let mut stream = TunnelProtocol::Socks5.open(row.front(), to);
    assert_eq!(until_gone(&mut stream), 3_000_000);
    serving.join().unwrap();
    let seen = home(&row.front_server().status());
    assert_eq!((seen.state.as_str(), seen.quota_left), ("throttle", Some(0)));
    let all = 3_000_000 + TunnelProtocol::Socks5.opening(to).1;
    assert_eq!((seen.limit_down, seen.bytes_down), (Some(80_000_000), all));
}

/// So slow that nothing but another limit ends it.
fn crawl() -> Limits {
    Limits { rates: [rate("8 kbit/s"), rate("8 kbit/s")], ..Limits::default() }
}

#[test]
fn a_changed_limit_applies_to_live_connections_and_explains_waits() {
    for movement in [CopyMode::Copy, CopyMode::Splice] {
        let row = Row::single(settings(movement, crawl()));
        let handle = row.front_server().handle();
        let (to, serving) = server(1, 0, 2_000_000);
        let mut stream = TunnelProtocol::Connect.open(row.front(), to);
        let waits = || {
            let status = handle.status();
            let connection = status.connections.first().cloned();
            connection.and_then(|one| Some((one.id, one.account?, one.waits?)))
        };
        wait_until(|| waits().is_some(), || format!("{:?}", handle.status()));
        let (id, name, why) = waits().unwrap();
        assert_eq!(
            (name.as_str(), why.as_str()),
            ("home", "down waits for its account's rate, 8 kbit/s")
        );
        let explained = handle.explain(id).unwrap().limits;
        assert_eq!(explained, "\"home\": down waits for its account's rate, 8 kbit/s");
        assert_eq!(home(&handle.status()).waiting_down, 1);
        // its burst may have passed, and little more
        assert!(home(&handle.status()).bytes_down < 1_000_000);
        handle.accounts().set("home", Limits::default());
        assert_eq!(until_gone(&mut stream), 2_000_000);
        serving.join().unwrap();
        let seen = home(&handle.status());
        let all = 2_000_000 + TunnelProtocol::Connect.opening(to).1;
        assert_eq!((seen.bytes_down, seen.limit_down, seen.waiting_down), (all, None, 0));
    }
}

/// It takes memory meanwhile, and there may be thousands.
#[test]
fn a_head_that_waits_for_its_rate_ends_with_its_client_or_its_time() {
    let large = format!("X: {}\r\n", "a".repeat(60_000));
    for leaves in [true, false] {
        let relay = relay_with(crawl(), |settings| {
            settings.timeouts.request_head = Span::from_secs(if leaves { 600 } else { 1 });
        });
        let origin = Origin::new();
        let mut client = relay.client();
        client.send(get(&origin, "/", &large));
        if leaves {
            let waits = || relay.status().connections.iter().any(|one| one.waits.is_some());
            wait_until(waits, || format!("{:?}", relay.status()));
            client.reset();
        } else {
            let head = client.head();
            assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
            drop(client);
        }
        relay.settles();
        assert!(origin.came().is_none());
    }
}

#[test]
fn a_reload_changes_the_relay_s_own_rate() {
    let slow = settings(CopyMode::Auto, Limits::default());
    let with = |downlink: Option<Rate>, listen: Vec<SocketAddr>| {
        let mut settings = slow.clone();
        settings.sharing.downlink = downlink;
        if !listen.is_empty() {
            settings.listen = listen;
        }
        settings
    };
    let row = Row::single(with(rate("8 kbit/s"), Vec::new()));
    let handle = row.front_server().handle();
    let (to, serving) = server(1, 0, 2_000_000);
    let mut stream = TunnelProtocol::Connect.open(row.front(), to);
    let why = || handle.status().connections.first().and_then(|one| one.waits.clone());
    wait_until(|| why().is_some(), || format!("{:?}", handle.status()));
    assert_eq!(
        why().as_deref(),
        Some("down waits for its account's turn: the relay's own rate is full")
    );
    assert_eq!(handle.status().sharing.unwrap().waiting_down, 1);
    row.reload_front(with(None, vec![row.front()]));
    assert_eq!(until_gone(&mut stream), 2_000_000);
    serving.join().unwrap();
}

#[test]
fn ends_the_connections_of_a_removed_account() {
    let row = Row::single(settings(CopyMode::Auto, fast()));
    let accounts = row.front_server().handle().accounts();
    let (to, _serving) = server(2, 0, usize::from(u16::MAX) * 1_000);
    let (silent, silent_at) = crate::common::listener();
    let mut busy = TunnelProtocol::Connect.open(row.front(), to);
    let mut waiting = TunnelProtocol::Socks5.open(row.front(), to);
    let mut idle = TunnelProtocol::Socks5.open(row.front(), silent_at);
    let _kept: (TcpStream, SocketAddr) = silent.accept().unwrap();
    let mut new = connect(row.front());
    new.write_all(b"GET http://").unwrap();
    busy.read_exact(&mut [0; 100_000]).unwrap();
    let seen = || home(&row.front_server().status()).connections;
    wait_until(|| seen() == 4, || format!("{} connections", seen()));
    assert_eq!(accounts.remove("home"), 4);
    assert_eq!(accounts.remove("home"), 0);
    for stream in [&mut busy, &mut waiting, &mut idle, &mut new] {
        until_gone(stream);
    }
    row.wait_until_empty();
    // what it used is still known
    let before = used(row.front_server());
    assert!(before[0].1 >= 100_000, "{before:?}");
    let mut client = connect(row.front());
    client.write_all(b"GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let answer = crate::common::read_head(&mut client);
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    // and goes on being counted when it comes back
    accounts.set("home", fast());
    let (to, serving) = server(1, UP, DOWN);
    exchange(TunnelProtocol::Connect, row.front(), to);
    serving.join().unwrap();
    let after = used(row.front_server());
    let (up, down) = TunnelProtocol::Connect.opening(to);
    let more = (before[0].1 + down + DOWN as u64, before[0].2 + up + UP as u64);
    assert_eq!((after[0].1, after[0].2), more);
}

#[test]
fn an_account_removed_from_the_configuration_ends_its_connections() {
    let row = Row::single(settings(CopyMode::Auto, fast()));
    let (listener, at) = crate::common::listener();
    let mut idle = TunnelProtocol::Connect.open(row.front(), at);
    let _kept = listener.accept().unwrap();
    let mut without = crate::common::settings(CopyMode::Auto);
    without.listen = vec![row.front()];
    row.reload_front(without);
    assert_eq!(until_gone(&mut idle), 0);
    assert!(row.front_server().status().accounts.is_none());
    // and then nobody is measured
    let (to, serving) = server(1, UP, DOWN);
    exchange(TunnelProtocol::Connect, row.front(), to);
    serving.join().unwrap();
    let (up, down) = TunnelProtocol::Connect.opening(at);
    assert_eq!(used(row.front_server()), [("home".to_owned(), down, up)]);
}

/// What a SOCKS5 client is told at once.
fn socks_reply(relay: SocketAddr) -> Vec<u8> {
    let mut stream = connect(relay);
    stream.write_all(&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, 0, 9]).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

#[test]
fn refuses_unclaimed_and_excess_clients_with_a_reason() {
    let stranger = Relay::with(|settings| settings.sharing.unclaimed = Unclaimed::Refuse);
    let mut client = stranger.client();
    client.send("GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n");
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
    assert!(client.until_end().contains("no account of this relay claims this client"));
    assert_eq!(socks_reply(stranger.address), [5, 0, 5, 2, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(stranger.status().sharing.unwrap().refused, 2);

    let narrow = relay(Limits { connections: Some(2), ..Limits::default() });
    let mut first = narrow.client();
    let _second = narrow.client();
    let seen = || home(&narrow.status()).connections;
    wait_until(|| seen() == 2, || format!("{}", seen()));
    let mut third = narrow.client();
    third.send("GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n");
    let head = third.head();
    assert!(head.starts_with("HTTP/1.1 429 "), "{head}");
    assert_eq!(field(&head, "retry-after"), Some("1"));
    assert!(third.until_end().contains("\"home\": the account has 2 connections already"));
    assert_eq!(socks_reply(narrow.address), [5, 0, 5, 1, 0, 1, 0, 0, 0, 0, 0, 0]);
    first.finish();
    assert_eq!(first.until_end(), "");
    wait_until(|| seen() == 1, || format!("{}", seen()));
    assert!(narrow.client().stream.peer_addr().is_ok());

    let slow = relay(Limits { connects: Some(1), ..Limits::default() });
    let _clients: Vec<_> = (0..5).map(|_| slow.client()).collect();
    wait_until(|| home(&slow.status()).connections == 5, || "five at once".to_owned());
    let mut sixth = slow.client();
    sixth.send("GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n");
    // on a machine so slow that a second has passed it is let in
    assert!(sixth.head().starts_with("HTTP/1.1 "));
}

#[test]
fn unclaimed_clients_share_one_account_where_the_relay_has_a_rate() {
    let mut settings = crate::common::settings(CopyMode::Auto);
    settings.sharing.downlink = rate("400 Mbit/s");
    let row = Row::single(settings);
    let (to, serving) = server(1, UP, DOWN);
    exchange(TunnelProtocol::Connect, row.front(), to);
    serving.join().unwrap();
    let (up, down) = TunnelProtocol::Connect.opening(to);
    let all = ("(unclaimed)".to_owned(), DOWN as u64 + down, UP as u64 + up);
    assert_eq!(used(row.front_server()), [all]);
    let status = row.front_server().status().sharing.unwrap();
    assert_eq!(
        (status.downlink, status.accounts[0].state.as_str()),
        (Some(400_000_000), "unclaimed")
    );
}

/// So many datagrams through an association, each of 1,000 bytes; and who receives them.
fn datagrams(relay: SocketAddr, n: u64) -> (TcpStream, UdpSocket) {
    let mut tcp = connect(relay);
    tcp.write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    let mut answer = [0; 12];
    tcp.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..4], [5, 0, 5, 0]);
    let port = SocketAddr::from(([127, 0, 0, 1], u16::from_be_bytes([answer[10], answer[11]])));
    let [from, to] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    to.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = ekiden_proxy::wire::socks::write_datagram_head(to.local_addr().unwrap());
    for _ in 0..n {
        from.send_to(&[&head[..], &[7; 1_000]].concat(), port).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    (tcp, to)
}

#[test]
fn datagrams_over_the_limit_are_dropped_and_counted() {
    const SENT: u64 = 60;
    let relay = relay(crawl());
    let (_association, to) = datagrams(relay.address, SENT);
    let udp = || relay.status().udp;
    let all = || udp().datagrams_up + udp().limited;
    wait_until(|| all() == SENT, || format!("{:?}", udp()));
    // 16 at once, by the burst
    assert!(udp().datagrams_up >= 16 && udp().limited > 0, "{:?}", udp());
    let (up, down) = TunnelProtocol::Socks5.opening(to.local_addr().unwrap());
    // each with its head
    assert_eq!(of(&relay), (down, up + udp().datagrams_up * 1_010));
    for _ in 0..udp().datagrams_up {
        assert_eq!(to.recv(&mut [0; 2_000]).unwrap(), 1_000);
    }
}

#[test]
fn counts_datagrams_from_tunnels() {
    let mut settings = settings(CopyMode::Auto, crawl());
    // at the first relay nobody's, at the second the other relay's account
    settings.sharing.list[0].addresses.clear();
    let row = Row::start(2, UpstreamProtocol::Tunnel, &settings);
    let (_association, to) = datagrams(row.front(), 60);
    let limited = || row.back_server().status().udp.limited;
    wait_until(|| limited() > 0, || format!("{:?}", row.back_server().status().udp));
    assert_eq!(row.front_server().status().udp.limited, 0);
    // those that were let pass, and no other: what comes later than this would be missed, and nothing else
    to.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut came = 0;
    while to.recv(&mut [0; 2_000]).is_ok() {
        came += 1_000;
    }
    let up = used(row.back_server())[0].2;
    assert!(up >= 16_000 && came > 0 && came <= up, "{came} of {up}");
    assert_eq!(used(row.front_server()), [("home".to_owned(), 0, 0)]);
}

#[test]
fn a_waiting_connection_notices_the_end_of_its_client() {
    let row = Row::single(settings(CopyMode::Splice, crawl()));
    let (to, serving) = server(1, 0, 2_000_000);
    let stream = TunnelProtocol::Connect.open(row.front(), to);
    let why = || row.front_server().status().connections.first().and_then(|one| one.waits.clone());
    wait_until(|| why().is_some(), || "it waits".to_owned());
    crate::common::reset_on_close(&stream);
    drop(stream);
    serving.join().unwrap();
    row.wait_until_empty();
    assert_eq!(home(&row.front_server().status()).connections, 0);
}

#[test]
fn without_configuration_no_client_is_metered() {
    let row = Row::single(crate::common::settings(CopyMode::Auto));
    let (to, serving) = server(1, UP, DOWN);
    exchange(TunnelProtocol::Connect, row.front(), to);
    serving.join().unwrap();
    assert!(row.front_server().status().accounts.is_none());
    assert_eq!(used(row.front_server()), []);
}
