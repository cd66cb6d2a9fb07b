//! Who gives way when there is no room, who waits, and what buffers come to.
use crate::common::wait_until;
use crate::common::wire::{Origin, PATIENCE, Relay, Wire, field, get, ok};
use ekiden_linux::sockets::options::SocketOptions;
use ekiden_model::resources::buffers::Scheme;
use ekiden_model::units::{Bytes, Span};
use ekiden_proxy::observe::status::{GrantStatus, Status};
use ekiden_proxy::settings::Settings;
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

/// Silence after which somebody is taken to wait: wrong, it would only wait a little less.
const WAITING: Duration = Duration::from_millis(300);

/// A relay for so many connections that pools none, so that clients alone count.
fn narrow(connections: u32, edit: impl FnOnce(&mut Settings)) -> Relay {
    Relay::with(|settings| {
        settings.budgets.connections = connections;
        settings.pool.connections = 0;
        edit(settings);
    })
}

/// Asks and is answered; then it is idle.
fn ask(client: &mut Wire, origin: &Origin) {
    client.send(get(origin, "/", ""));
    answer(client, origin);
}

fn answer(client: &mut Wire, origin: &Origin) {
    let mut server = origin.accept();
    server.head();
    server.send(ok("x"));
    assert!(client.head().starts_with("HTTP/1.1 200 "));
    client.exactly(1);
}

fn wait_for_status(relay: &Relay, what: &str, mut happened: impl FnMut(&Status) -> bool) {
    wait_until(|| happened(&relay.status()), || format!("{what}: {:?}", relay.status()));
}

fn idle_client(relay: &Relay, origin: &Origin, idle: u64) -> Wire {
    let mut client = relay.client();
    ask(&mut client, origin);
    wait_for_status(relay, "it becomes idle", |status| status.idle.clients == idle);
    client
}

fn is_quiet(wire: &mut Wire) -> bool {
    wire.stream.set_read_timeout(Some(WAITING)).unwrap();
    let read = wire.stream.read(&mut [0]);
    wire.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn evicts_the_longest_idle_client() {
    let (relay, origin) = (narrow(3, |_| {}), Origin::new());
    let mut clients: Vec<Wire> = (1..=3).map(|n| idle_client(&relay, &origin, n)).collect();
    // the first becomes the freshest
    ask(&mut clients[0], &origin);
    wait_for_status(&relay, "all idle", |status| status.idle.clients == 3);
    let mut newcomer = relay.client();
    ask(&mut newcomer, &origin);
    clients[1].is_gone();
    for at in [0, 2] {
        ask(&mut clients[at], &origin);
    }
    let status = relay.status();
    assert_eq!(status.pressure.evicted.len(), 1);
    assert_eq!(status.pressure.evicted[0].count, 1);
    assert_eq!(status.pressure.evicted[0].resource, "connections");
    assert_eq!((status.pressure.waited, status.pressure.refused), (0, 0));
}

#[test]
fn keeps_active_clients_and_queues_new_ones() {
    let (relay, origin) = (narrow(2, |_| {}), Origin::new());
    let mut working: Vec<Wire> = (0..2).map(|_| relay.client()).collect();
    let mut servers = Vec::new();
    for client in &mut working {
        client.send(get(&origin, "/", ""));
        let mut server = origin.accept();
        server.head();
        servers.push(server);
    }
    let mut waiting: Vec<Wire> = (0..2).map(|_| relay.client()).collect();
    waiting.iter_mut().for_each(|client| client.send(get(&origin, "/", "")));
    wait_for_status(&relay, "both wait", |status| status.pressure.waiting == 2);
    assert!(is_quiet(&mut waiting[0]) && origin.came().is_none());
    assert_eq!(relay.status().connections.len(), 2, "who waits holds nothing");
    // one becomes idle, and is closed for the first in the queue
    servers[0].send(ok("x"));
    working[0].head();
    working[0].exactly(1);
    answer(&mut waiting[0], &origin);
    working[0].is_gone();
    // that one becomes idle in turn, and then the other who works has its answer all the same
    answer(&mut waiting[1], &origin);
    waiting[0].is_gone();
    servers[1].send(ok("y"));
    working[1].head();
    assert_eq!(working[1].exactly(1), b"y");
}

/// Its next request waits unread when its answer ends, so that it cannot be closed for another.
#[test]
fn a_client_that_has_asked_again_keeps_its_place() {
    let (relay, origin) = (narrow(1, |_| {}), Origin::new());
    let mut working = relay.client();
    working.send(get(&origin, "/", ""));
    let mut server = origin.accept();
    server.head();
    working.send(get(&origin, "/", ""));
    let mut waiting = relay.client();
    waiting.send(get(&origin, "/", ""));
    wait_for_status(&relay, "it waits", |status| status.pressure.waiting == 1);
    server.send(ok("x"));
    working.head();
    working.exactly(1);
    let mut server = origin.accept();
    server.head();
    let status = relay.status();
    assert_eq!((status.connections.len(), status.pressure.waiting), (1, 1));
    server.send(ok("x"));
    working.head();
    working.exactly(1);
    answer(&mut waiting, &origin);
    working.is_gone();
}

#[test]
fn a_client_that_left_the_queue_evicts_nobody() {
    let (relay, origin) = (narrow(1, |_| {}), Origin::new());
    let mut working = relay.client();
    working.send(get(&origin, "/", ""));
    let mut server = origin.accept();
    server.head();
    drop(relay.client());
    wait_for_status(&relay, "it waits", |status| status.pressure.waited == 1);
    server.send(ok("x"));
    working.head();
    working.exactly(1);
    ask(&mut working, &origin);
    assert!(relay.status().pressure.evicted.is_empty());
}

#[test]
fn rejects_waiting_clients_in_their_own_protocol() {
    let patience = Span::from_millis(200);
    for waiting in [0, 8] {
        let relay = narrow(1, |settings| {
            settings.pressure.patience = patience;
            settings.pressure.waiting = waiting;
        });
        let origin = Origin::new();
        let mut working = relay.client();
        working.send(get(&origin, "/", ""));
        let mut server = origin.accept();
        server.head();
        let mut http = relay.client();
        http.send(get(&origin, "/", ""));
        let head = http.until_end();
        assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
        assert_eq!(field(&head, "retry-after"), Some("1"));
        assert!(head.contains("relay-under-test: all connections are in use"), "{head}");
        let mut five = relay.client();
        five.send([5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, 0, 80]);
        assert_eq!(five.rest().0, [5, 0, 5, 1, 0, 1, 0, 0, 0, 0, 0, 0]);
        let mut four = relay.client();
        four.send([4, 1, 0, 80, 127, 0, 0, 1, 0]);
        assert_eq!(four.rest().0, [0, 91, 0, 0, 0, 0, 0, 0]);
        assert_eq!(relay.status().pressure.refused, 3);
        server.send(ok("x"));
        assert!(working.head().starts_with("HTTP/1.1 200 "));
    }
}

#[test]
fn schemes_without_eviction_make_new_clients_wait() {
    for scheme in [Scheme::Conventional, Scheme::Buffers] {
        let relay = narrow(1, |settings| {
            settings.buffers.scheme = scheme;
            settings.pressure.patience = Span::from_millis(200);
        });
        let origin = Origin::new();
        let mut idle = idle_client(&relay, &origin, 1);
        let mut newcomer = relay.client();
        newcomer.send(get(&origin, "/", ""));
        assert!(newcomer.until_end().starts_with("HTTP/1.1 503 "));
        ask(&mut idle, &origin);
    }
}

/// The request and the newcomer come at the same moment; what has come is answered.
#[test]
fn answers_a_client_that_speaks_during_its_eviction() {
    let (relay, origin) = (narrow(1, |_| {}), Origin::new());
    let mut client = idle_client(&relay, &origin, 1);
    for _ in 0..100 {
        client.send(get(&origin, "/", ""));
        let mut newcomer = relay.client();
        newcomer.send(get(&origin, "/", ""));
        answer(&mut client, &origin);
        answer(&mut newcomer, &origin);
        client.is_gone();
        client = newcomer;
        wait_for_status(&relay, "it becomes idle", |status| status.idle.clients == 1);
    }
}

#[test]
fn a_tunnel_is_closed_for_others_only_where_that_is_allowed() {
    for allowed in [false, true] {
        let relay = narrow(1, |settings| {
            settings.pressure.silent_tunnel = allowed.then_some(Span::from_millis(100));
            settings.pressure.patience = Span::from_secs(4);
        });
        let origin = Origin::new();
        let mut tunnel = relay.client();
        tunnel.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.name));
        let mut server = origin.accept();
        tunnel.head();
        tunnel.send("before");
        assert_eq!(server.exactly(6), b"before");
        if allowed {
            wait_for_status(&relay, "it is silent", |status| status.idle.tunnels == 1);
            // bytes make it active again, and silence idle
            server.send("after");
            assert_eq!(tunnel.exactly(5), b"after");
            wait_for_status(&relay, "it moves", |status| status.idle.tunnels == 0);
            wait_for_status(&relay, "it is silent", |status| status.idle.tunnels == 1);
        }
        let mut newcomer = relay.client();
        newcomer.send(get(&origin, "/", ""));
        if allowed {
            answer(&mut newcomer, &origin);
            assert_eq!((tunnel.until_end(), server.until_end()), (String::new(), String::new()));
        } else {
            assert!(newcomer.until_end().starts_with("HTTP/1.1 503 "));
            server.send("after");
            assert_eq!(tunnel.exactly(5), b"after");
        }
    }
}

#[test]
fn clients_share_connections_to_an_origin() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut first = relay.client();
    first.send(get(&origin, "/1", ""));
    let mut server = origin.accept();
    server.head();
    server.send(ok("1"));
    first.head();
    wait_for_status(&relay, "it is kept", |status| status.idle.pooled == 1);
    drop(first);
    let mut second = relay.client();
    second.send(get(&origin, "/2", ""));
    assert!(server.head().starts_with("GET /2 "));
    server.send(ok("2"));
    second.head();
    assert_eq!(second.exactly(1), b"2");
    assert_eq!(relay.status().idle.reused, 1);
    // an end that the origin makes is noticed at once
    wait_for_status(&relay, "it is kept", |status| status.idle.pooled == 1);
    drop(server);
    wait_for_status(&relay, "it is gone", |status| status.idle.pooled == 0);
    assert_eq!(relay.status().idle.expired, 1);
}

/// NTLM and Negotiate vouch for a connection: whoever used it after the client would be that client.
#[test]
fn does_not_share_authenticated_connections() {
    for (asks, says) in [
        ("Authorization: Negotiate YII=\r\n", ""),
        ("", "WWW-Authenticate: NTLM TlRMTVNTUAAC\r\n"),
        ("", "WWW-Authenticate: NTLM\r\n"),
    ] {
        let (relay, origin) = (Relay::new(), Origin::new());
        let mut first = relay.client();
        first.send(get(&origin, "/1", asks));
        let mut server = origin.accept();
        server.head();
        server.send(format!("HTTP/1.1 401 Unauthorized\r\n{says}Content-Length: 0\r\n\r\n"));
        first.head();
        wait_for_status(&relay, "it is kept", |status| status.idle.pooled == 1);
        let mut second = relay.client();
        second.send(get(&origin, "/2", ""));
        let mut other = origin.accept();
        assert!(other.head().starts_with("GET /2 "));
        other.send(ok("2"));
        second.head();
        // its own client has it again
        first.send(get(&origin, "/3", ""));
        assert!(server.head().starts_with("GET /3 "));
        server.send(ok("3"));
        first.head();
    }
}

#[test]
fn the_pool_is_bounded_and_evicted_by_age() {
    let (first, second) = (Origin::new(), Origin::new());
    let relay = Relay::with(|settings| settings.pool.connections = 1);
    let mut client = relay.client();
    let mut servers = Vec::new();
    for origin in [&first, &second] {
        client.send(get(origin, "/", ""));
        let mut server = origin.accept();
        server.head();
        server.send(ok("x"));
        client.head();
        client.exactly(1);
        servers.push(server);
    }
    // the older one gives way, or one client's would keep out all others
    servers[0].is_gone();
    assert_eq!(relay.status().idle.pooled, 1);

    let relay = Relay::with(|settings| settings.budgets.connections = 2);
    let mut idle = relay.client();
    idle.send(get(&first, "/", ""));
    let mut server = first.accept();
    server.head();
    server.send(ok("x"));
    idle.head();
    idle.exactly(1);
    // the pooled one and its client: the pooled one became idle first
    wait_for_status(&relay, "both idle", |status| status.idle.pooled + status.idle.clients == 2);
    let mut newcomer = relay.client();
    ask(&mut newcomer, &second);
    server.is_gone();
    // full again, by two clients: nobody is closed for a connection that is merely kept
    wait_for_status(&relay, "no place is lost", |status| status.idle.clients == 2);
    assert_eq!(relay.status().idle.pooled, 0);
    ask(&mut idle, &first);
}

fn buffers(relay: &Relay) -> Vec<GrantStatus> {
    let handle = relay.server.as_ref().unwrap().handle();
    let explained = relay.status().connections.into_iter().filter_map(|c| handle.explain(c.id));
    explained.flat_map(|one| one.legs).flat_map(|leg| leg.buffers).collect()
}

/// Sizes as the kernel says, once two looks agree: a tick between two sockets' looks is no size.
fn kernel_sizes(relay: &Relay) -> Vec<(u64, u64)> {
    let look = || -> Vec<(u64, u64)> {
        let connections = relay.status().connections.into_iter();
        let legs = connections.flat_map(|connection| connection.legs);
        legs.map(|leg| (leg.send_buffer.into(), leg.receive_buffer.into())).collect()
    };
    let mut before = look();
    loop {
        let now = look();
        if now == before {
            return now;
        }
        before = now;
    }
}

#[test]
fn buffers_are_what_was_granted_and_within_the_budget() {
    let budget = Bytes::mib(1);
    let relay = Relay::with(|settings| {
        settings.buffers.budget = Some(budget);
        for leg in settings.legs.values_mut() {
            // loopback's segments of 64 KiB would be larger than any share
            leg.socket = SocketOptions { mss: Some(1_400), ..leg.socket.clone() };
        }
    });
    let origin = Origin::new();
    let mut tunnels = Vec::new();
    for _ in 0..12 {
        let mut client = relay.client();
        client.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.name));
        let server = origin.accept();
        client.head();
        tunnels.push((client, server));
    }
    let end = Instant::now() + Duration::from_millis(2_500);
    let bytes = vec![7; 200_000];
    while Instant::now() < end {
        for (client, server) in tunnels.iter_mut().take(6) {
            let mut sink = server.stream.try_clone().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| sink.write_all(&bytes).unwrap());
                assert!(client.exactly(bytes.len()) == bytes);
            });
        }
        let sum: u64 = kernel_sizes(&relay).iter().map(|(send, receive)| send + receive).sum();
        assert!(
            sum <= budget.as_u64(),
            "{sum} of {budget}: {:?} {:?}",
            kernel_sizes(&relay),
            relay.status().buffers
        );
    }
    let status = relay.status();
    assert_eq!(status.buffers.mode, "shared out");
    assert_eq!((status.buffers.shared, status.buffers.explicit), (48, 48));
    assert!(status.buffers.granted <= budget.as_u64() && status.buffers.granted > 0);
    let granted: Vec<_> = buffers(&relay).iter().map(|grant| grant.given).collect();
    let sizes: Vec<_> = kernel_sizes(&relay);
    let sizes: Vec<_> = sizes.into_iter().flat_map(|(s, r)| [Some(s), Some(r)]).collect();
    assert_eq!(granted, sizes, "what it says is what the kernel says");
    assert!(buffers(&relay).iter().all(|one| one.grant == one.given && one.refused.is_none()));
}

#[test]
fn returns_buffers_to_the_kernel_when_the_budget_suffices() {
    let tuned = |side| ekiden_linux::sockets::buffers::Limits::of(side).tuned;
    let [send, receive] = ekiden_model::resources::buffers::Side::ALL.map(tuned);
    // enough for whatever the kernel makes of two legs, and not of four
    let budget = Bytes::new((send + receive) * 5 / 2);
    let relay = Relay::with(|settings| settings.buffers.budget = Some(budget));
    let origin = Origin::new();
    let open = || {
        let mut client = relay.client();
        client.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.name));
        let server = origin.accept();
        client.head();
        (client, server)
    };
    let (mut client, mut server) = open();
    assert_eq!(relay.status().buffers.explicit, 0);
    assert!(buffers(&relay).iter().all(|one| one.how == "tuned by the kernel"));
    let second = open();
    assert_eq!(relay.status().buffers.explicit, 8);
    assert!(buffers(&relay).iter().all(|one| one.how == "granted from the budget"));
    drop(second);
    wait_for_status(&relay, "given back", |status| status.buffers.explicit == 0);
    assert_eq!(relay.status().buffers.mode, "kernel");
    // and it tunes them: more than it was given back with
    let before = kernel_sizes(&relay);
    let bytes = vec![7; 16 << 20];
    std::thread::scope(|scope| {
        scope.spawn(|| server.send(&bytes));
        assert!(client.exactly(bytes.len()) == bytes);
    });
    let after = kernel_sizes(&relay);
    assert!(
        after.iter().zip(&before).any(|(after, before)| after.0 > before.0),
        "{before:?} {after:?}"
    );
}

#[test]
fn a_leg_that_sets_its_own_buffers_keeps_them() {
    let own = Bytes::kib(64);
    let relay = Relay::with(|settings| {
        settings.buffers.scheme = Scheme::Conventional;
        let direct = settings.legs.get_mut("direct").unwrap();
        direct.socket.send_buffer = Some(own);
    });
    let origin = Origin::new();
    let mut client = relay.client();
    client.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.name));
    let _server = origin.accept();
    client.head();
    let fixed = Bytes::kib(32).as_u64();
    assert_eq!(kernel_sizes(&relay), [(fixed, fixed), (own.as_u64(), fixed)]);
    assert_eq!(buffers(&relay)[2].how, "set by the leg's profile");
}

#[test]
fn idle_connections_shrink_in_scheme_4() {
    let relay = Relay::with(|settings| {
        settings.buffers.budget = Some(Bytes::kib(512));
        for leg in settings.legs.values_mut() {
            leg.socket = SocketOptions { mss: Some(1_400), ..leg.socket.clone() };
        }
    });
    let origin = Origin::new();
    let client = idle_client(&relay, &origin, 1);
    wait_for_status(&relay, "its buffers shrink to the least", |status| {
        let legs = status.connections.iter().flat_map(|connection| &connection.legs);
        legs.into_iter().all(|leg| leg.send_buffer == 6_144 && leg.receive_buffer == 6_144)
    });
    drop(client);
}
