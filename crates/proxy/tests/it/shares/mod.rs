//! One address takes neither the places nor the memory of others.

mod peers;

use crate::accounts::{ANNA_BASIC, Book, relay as relay_with_accounts};
use crate::accounts_limits::{quota, relay_with};
use crate::common::wait_until;
use crate::common::wire::{Origin, Relay, Wire, connect_from, get, ok, request};
use crate::tls::Shown;
use crate::upstream_tls::{NOW, Place, through_with};
use ekiden_model::units::{Bytes, Share, Span};
use ekiden_proxy::settings::{ExceededAction, Settings};
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;

const PLACES: u32 = 300;
const OTHER: [u8; 4] = [127, 0, 0, 2];

fn places(settings: &mut Settings) {
    settings.budgets.connections = PLACES;
    // a client that had to wait would be refused at once
    settings.pressure.waiting = 0;
}

/// Waits until the relay holds so many connections.
fn holds(relay: &Relay, connections: u64) {
    let used = || relay.status().budgets[0].used;
    wait_until(|| used() >= connections, || format!("{} connections", used()));
}

fn is_served(client: &mut Wire, origin: &Origin) {
    client.send(get(origin, "/", "Connection: close\r\n"));
    let mut server = origin.accept();
    server.head();
    server.send(ok("1"));
    let answer = client.until_end();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn silent_connections_of_one_address_take_no_place_of_another() {
    let (relay, origin) = (Relay::with(places), Origin::new());
    let silent: Vec<Wire> = (0..PLACES).map(|_| relay.client()).collect();
    holds(&relay, u64::from(PLACES));
    for _ in 0..35 {
        is_served(&mut relay.client_at(OTHER), &origin);
    }
    let pressure = relay.status().pressure;
    assert!(pressure.silent_evicted >= 1 && pressure.refused == 0, "{pressure:?}");
    assert!(pressure.largest_source >= 200, "{pressure:?}");
    drop(silent);
    relay.settles();
    assert_eq!(relay.status().pressure.strangers, 0);
}

#[test]
fn served_connections_of_one_address_leave_places_to_another() {
    let (relay, origin) = (Relay::with(places), Origin::new());
    let connect = format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.name);
    let mut held = Vec::new();
    let refusal = loop {
        let mut client = relay.client();
        client.send(&connect);
        let head = client.head();
        if !head.starts_with("HTTP/1.1 200 ") {
            break head;
        }
        held.push((client, origin.accept()));
    };
    // a ninth is left
    assert_eq!(held.len(), 267);
    assert!(refusal.starts_with("HTTP/1.1 503 "), "{refusal}");
    assert!(refusal.to_ascii_lowercase().contains("retry-after: 1\r\n"), "{refusal}");
    let mut socks = relay.client();
    socks.send([5, 1, 0]);
    socks.send([&[5, 1, 0, 1, 127, 0, 0, 1][..], &80_u16.to_be_bytes()].concat());
    assert_eq!(socks.rest().0[..4], [5, 0, 5, 1]);
    for _ in 0..35 {
        is_served(&mut relay.client_at(OTHER), &origin);
    }
    let pressure = relay.status().pressure;
    assert!(pressure.share_refused == 2 && pressure.refused == 0, "{pressure:?}");
    // one that ends makes room for another
    held.pop();
    let again = || {
        let mut client = relay.client();
        client.send(&connect);
        let served = client.head().starts_with("HTTP/1.1 200 ");
        if served {
            drop(origin.accept());
        }
        served
    };
    wait_until(again, || "no place".to_owned());
    drop(held);
    relay.settles();
}

#[test]
fn reopened_connections_of_one_address_wait_for_another() {
    let (relay, origin) = (Relay::with(places), Origin::new());
    let address = relay.address;
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let over = Arc::clone(&stop);
    let attack = std::thread::spawn(move || {
        let mut held = std::collections::VecDeque::new();
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            let mut client = TcpStream::connect(address).unwrap();
            // half of them with a part of a head
            if held.len() % 2 == 0 {
                let _ = client.write_all(b"GET http://a");
            }
            held.push_back(client);
            if held.len() > 2 * PLACES as usize {
                held.pop_front();
            }
        }
    });
    holds(&relay, u64::from(PLACES));
    for _ in 0..35 {
        is_served(&mut relay.client_at(OTHER), &origin);
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    attack.join().unwrap();
    relay.settles();
}

#[test]
fn silent_http_2_connections_of_one_address_take_no_place_of_another() {
    let (shown, origin) = (Shown::new(), Origin::new());
    let relay = Relay::with(|settings| {
        shown.settings(settings);
        places(settings);
    });
    let silent: Vec<_> = (0..PLACES)
        .map(|n| {
            let mut client = shown.within(TcpStream::connect(relay.address).unwrap(), b"h2");
            // a third sends no preface, a third asks nothing, a third begins a head
            let sent = match n % 3 {
                0 => vec![],
                1 => preface(),
                _ => [preface(), unfinished_head()].concat(),
            };
            client.send(sent);
            client.0.conn.complete_io(&mut client.0.sock).unwrap();
            client
        })
        .collect();
    holds(&relay, u64::from(PLACES));
    for nth in 0..10 {
        is_served(&mut relay.client_at(OTHER), &origin);
        // TLS takes two places
        let mut client = shown.within(connect_from([127, 0, 1, nth], relay.address), b"http/1.1");
        client.send(get(&origin, "/", ""));
        let mut server = origin.accept();
        server.head();
        server.send(ok("1"));
        assert!(client.until("\r\n\r\n1").starts_with("HTTP/1.1 200 "));
    }
    assert_eq!(relay.status().pressure.refused, 0);
    drop(silent);
    relay.settles();
}

/// HTTP/2's preface and an empty SETTINGS (RFC 9113 §3.4).
pub(crate) fn preface() -> Vec<u8> {
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat()
}

/// HEADERS of stream 1 without END_HEADERS, with `:method: GET` alone.
pub(crate) fn unfinished_head() -> Vec<u8> {
    vec![0, 0, 1, 1, 0, 0, 0, 0, 1, 0x82]
}

#[test]
fn one_address_does_not_fill_the_queue() {
    let (relay, origin) = (
        Relay::with(|settings| {
            settings.budgets.connections = 2;
            settings.pressure.waiting = 3;
            settings.pressure.patience = Span::from_secs(60);
        }),
        Origin::new(),
    );
    let connect = format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.name);
    let mut clients: Vec<Wire> = (0..2).map(|_| relay.client()).collect();
    let mut servers = Vec::new();
    for client in &mut clients {
        client.send(&connect);
        assert!(client.head().starts_with("HTTP/1.1 200 "));
        servers.push(origin.accept());
    }
    let waiting = |n| {
        let now = || relay.status().pressure.waiting;
        wait_until(|| now() == n, || format!("{} wait", now()));
    };
    for n in 1..=3 {
        clients.push(relay.client());
        waiting(n);
    }
    let mut other = relay.client_at(OTHER);
    // the last of the other address leaves the queue
    clients[4].send(get(&origin, "/", ""));
    assert!(clients[4].until_end().starts_with("HTTP/1.1 503 "));
    waiting(3);
    drop((clients, servers));
    is_served(&mut other, &origin);
    relay.settles();
}

#[test]
fn a_place_is_kept_for_those_who_have_logged_in() {
    let (book, origin) = (Arc::new(Book::default()), Origin::new());
    let relay = relay_with_accounts(&book, |settings| {
        settings.budgets.connections = 40;
        settings.accounts.required = false;
        settings.pressure.accounts = Share::from_percent(25).unwrap();
        settings.pressure.waiting = 0;
    });
    let anna = |relay: &Relay| {
        let mut client = relay.client_at([127, 0, 9, 9]);
        client.send(get(&origin, "/", &format!("Connection: close\r\n{ANNA_BASIC}")));
        client
    };
    let mut first = anna(&relay);
    let mut server = origin.accept();
    server.head();
    server.send(ok("1"));
    assert!(first.until_end().starts_with("HTTP/1.1 200 "));
    drop(server);
    relay.settles();
    // busy strangers of many addresses, none of which may be closed
    let connect = format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.name);
    let mut tunnels = Vec::new();
    for nth in 0..30 {
        let mut client = relay.client_at([127, 1, nth, 1]);
        client.send(&connect);
        assert!(client.head().starts_with("HTTP/1.1 200 "));
        tunnels.push((client, origin.accept()));
    }
    // a client that asks late, on a busy machine, meets the end before its answer
    let refused = || {
        let mut late = relay.client_at([127, 2, 0, 1]);
        late.send(&connect);
        let (answer, _) = late.rest();
        assert!(!answer.starts_with(b"HTTP/1.1 200 "));
        answer.starts_with(b"HTTP/1.1 503 ")
    };
    wait_until(refused, || "a stranger's refusal".to_owned());
    for _ in 0..5 {
        let mut together: Vec<Wire> = (0..10).map(|_| anna(&relay)).collect();
        for _ in 0..together.len() {
            let mut server = origin.accept();
            server.head();
            server.send(ok("1"));
        }
        for client in &mut together {
            assert!(client.until_end().starts_with("HTTP/1.1 200 "));
        }
        drop(together);
        let used = || relay.status().budgets[0].used;
        wait_until(|| used() == 30, || format!("{} connections", used()));
    }
}

#[test]
fn unfinished_heads_stay_within_their_memory() {
    let budget = Bytes::mib(4);
    let relay = Relay::with(|settings| {
        settings.budgets.sessions = budget;
        settings.timeouts.request_head = Span::from_secs(60);
    });
    let origin = Origin::new();
    let held = || relay.status().budgets.into_iter().find(|b| b.name == "sessions").unwrap();
    let head =
        format!("GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\nX: {1}", origin.name, "a".repeat(60_000));
    let mut own = relay.client_at(OTHER);
    own.send(&head[..20_000]);
    wait_until(|| held().used > 0, || "nothing is counted".to_owned());
    let mut unfinished = Vec::new();
    for _ in 0..200 {
        let mut client = relay.client();
        // closed already where its memory went to another
        let _ = client.stream.write_all(head.as_bytes());
        unfinished.push(client);
    }
    let evicted = || relay.status().pressure.unfinished_evicted;
    wait_until(|| evicted() >= 100, || format!("{} were closed", evicted()));
    assert!(held().peak <= budget.as_u64(), "{:?}", held());
    // the small one of the other address stayed, and is served
    own.send(&head[20_000..]);
    own.send("\r\n\r\n");
    let mut server = origin.accept();
    server.head();
    server.send(ok("1"));
    assert!(own.head().starts_with("HTTP/1.1 200 "));
    drop((own, server, unfinished));
    relay.settles();
    wait_until(|| held().used == 0, || format!("{:?}", held()));
}

/// Heads of a few bytes take less than the connections that they are read from.
#[test]
fn connections_with_short_unfinished_heads_count_with_their_state() {
    let relay = Relay::with(|settings| settings.budgets.sessions = Bytes::mib(1));
    let mut unfinished = Vec::new();
    for _ in 0..200 {
        let mut client = relay.client();
        // closed already where its memory went to another
        let _ = client.stream.write_all(b"GET http://a");
        unfinished.push(client);
    }
    let evicted = || relay.status().pressure.unfinished_evicted;
    wait_until(|| evicted() >= 90, || format!("{} were closed", evicted()));
    let held = || relay.status().budgets.into_iter().find(|b| b.name == "sessions").unwrap();
    assert!(held().peak <= 1 << 20, "{:?}", held());
    drop(unfinished);
    relay.settles();
    wait_until(|| held().used == 0, || format!("{:?}", held()));
}

#[test]
fn tls_and_http_2_count_in_the_memory_of_sessions() {
    let shown = Shown::new();
    let relay = Relay::with(|settings| {
        shown.settings(settings);
        settings.budgets.sessions = Bytes::mib(1);
    });
    let held = || relay.status().budgets.into_iter().find(|b| b.name == "sessions").unwrap();
    let clients: Vec<_> = (0..40)
        .map(|_| {
            let mut client = shown.within(TcpStream::connect(relay.address).unwrap(), b"h2");
            // those beyond the budget make earlier ones go
            let done = client.0.conn.complete_io(&mut client.0.sock).is_ok();
            let _ = client.0.write_all(&preface()).and_then(|()| client.0.flush());
            (client, done)
        })
        .collect();
    assert!(held().peak > 512 << 10 && held().peak <= 1 << 20, "{:?}", held());
    let pressure = relay.status().pressure;
    assert!(pressure.unfinished_evicted >= 20, "{pressure:?}");
    drop(clients);
    relay.settles();
    wait_until(|| held().used == 0, || format!("{:?}", held()));
}

#[test]
fn tls_to_upstreams_of_one_address_leaves_memory_to_others() {
    let (place, origin) = (Place::new(), Origin::new());
    let far = place.far("localhost", NOW);
    let relay = through_with(far.address.port(), place.trust(), |settings| {
        settings.budgets.sessions = Bytes::mib(8);
        settings.timeouts.handshake = Span::from_secs(60);
    });
    let open = |address| {
        let mut client = relay.client_at(address);
        client.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.name));
        let head = client.head();
        match head.starts_with("HTTP/1.1 200 ") {
            true => Ok((client, origin.accept())),
            false => Err(head),
        }
    };
    let mut held = Vec::new();
    let refusal = loop {
        match open([127, 0, 0, 1]) {
            Ok(tunnel) => held.push(tunnel),
            Err(refusal) => break refusal,
        }
    };
    assert!(refusal.starts_with("HTTP/1.1 503 "), "{refusal}");
    // three quarters of it, each 64 KiB
    assert!(held.len() <= 97, "{}", held.len());
    for nth in 0..10 {
        held.push(open([127, 0, 1, nth]).unwrap_or_else(|refusal| panic!("{nth}: {refusal}")));
    }
    drop(held);
    relay.settles();
    let used = || relay.status().budgets.into_iter().find(|b| b.name == "sessions").unwrap().used;
    wait_until(|| used() == 0, || format!("{} bytes", used()));
}

fn page(relay: &Relay) -> String {
    let mut client = relay.client();
    client.send("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    client.until_end()
}

#[test]
fn answers_of_the_relay_itself_count_while_they_wait() {
    let counts = |relay: &Relay| {
        let answer = page(relay);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let held = relay.status().budgets.into_iter().find(|b| b.name == "sessions").unwrap();
        // beside it 10 KiB for its connection
        assert!(held.peak >= 10 * 1024 + answer.len() as u64, "{held:?}: {}", answer.len());
        relay.settles();
    };
    counts(&Relay::new());
    // also towards an account that has used up its volume
    let (spent, origin) = (relay_with(quota(100_000, ExceededAction::Cut), |_| {}), Origin::new());
    let mut client = spent.client();
    client.send(request("POST", &origin, "/", "Content-Length: 200000\r\n"));
    client.send("y".repeat(200_000));
    let mut server = origin.accept();
    server.head();
    assert!(client.head().starts_with("HTTP/1.1 403 "));
    drop((client, server));
    spent.settles();
    counts(&spent);
    let narrow = Relay::with(|settings| settings.budgets.sessions = Bytes::kib(16));
    let answer = page(&narrow);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("\r\nRetry-After: 1\r\n"), "{answer}");
}
