//! Which requests share a connection, in which order they are answered, and who hears of an end.
use crate::common::wait_until;
use crate::common::wire::{Origin, Relay, Wire, field, get, ok, request};
use ekiden_model::units::Span;

/// A relay that keeps connections to origins for a moment.
fn forgetful() -> Relay {
    Relay::with(|settings| settings.pool.idle = Span::from_millis(100))
}

/// It may be another client's, while this one takes its time to end.
#[test]
fn after_its_last_answer_a_client_has_left_its_server() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(get(&origin, "/", "Connection: close\r\n"));
    let mut server = origin.accept();
    server.head();
    let legs = || relay.status().connections.iter().map(|one| one.legs.len()).collect::<Vec<_>>();
    assert_eq!(legs(), [2]);
    server.send(ok("x"));
    wait_until(|| relay.status().idle.pooled == 1, || format!("{:?}", relay.status().idle));
    assert_eq!(legs(), [1]);
    assert_eq!(client.until_end().lines().last(), Some("x"));
}

#[test]
fn requests_to_one_origin_share_a_connection() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(get(&origin, "/0", ""));
    let mut server = origin.accept();
    for n in 0..5 {
        let head = server.head();
        assert!(head.starts_with(&format!("GET /{n} HTTP/1.1\r\n")), "{head}");
        server.send(ok(&n.to_string()));
        client.head();
        assert_eq!(client.exactly(1), n.to_string().into_bytes());
        if n < 4 {
            client.send(get(&origin, &format!("/{}", n + 1), ""));
        }
    }
    assert!(origin.came().is_none());
    assert_eq!(relay.status().totals.requests, 5);
}

#[test]
fn another_origin_gets_another_connection() {
    let (relay, one, two) = (forgetful(), Origin::new(), Origin::new());
    let mut client = relay.client();
    client.send(get(&one, "/", ""));
    let mut first = one.accept();
    first.head();
    first.send(ok("1"));
    client.head();
    client.exactly(1);
    client.send(get(&two, "/", ""));
    let mut second = two.accept();
    assert_eq!(field(&second.head(), "host"), Some(two.name.as_str()));
    second.send(ok("2"));
    client.head();
    assert_eq!(client.exactly(1), b"2");
    // the first is no longer needed, and its time is over
    first.is_gone();
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    let body = request("POST", &origin, "/1", "Content-Length: 3\r\n");
    client.send([get(&origin, "/0", ""), body + "abc", get(&origin, "/2", "")].concat());
    let mut server = origin.accept();
    for n in 0..3 {
        assert!(server.head().split(' ').nth(1) == Some(&format!("/{n}")));
        if n == 1 {
            assert_eq!(server.exactly(3), b"abc");
        }
        server.send(ok(&n.to_string()));
    }
    for n in 0..3 {
        client.head();
        assert_eq!(client.exactly(1), n.to_string().into_bytes());
    }
}

/// A client, and the kept connection to the origin on which this answered its request.
fn kept(relay: &Relay, origin: &Origin) -> (Wire, Wire) {
    let mut client = relay.client();
    client.send(get(origin, "/", ""));
    let mut server = origin.accept();
    server.head();
    server.send(ok("x"));
    client.head();
    client.exactly(1);
    (client, server)
}

#[test]
fn a_closed_kept_connection_is_replaced() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let (mut client, server) = kept(&relay, &origin);
    drop(server);
    client.send(request("POST", &origin, "/again", "Content-Length: 2\r\n") + "hi");
    // the close was seen before the request came: nothing was sent in vain
    let mut server = origin.accept();
    server.head();
    assert_eq!(server.exactly(2), b"hi");
    server.send(ok("y"));
    assert!(client.head().starts_with("HTTP/1.1 200 "));
}

/// The origin reads the second request on the kept connection, and closes.
fn closes_on_second(method: &str, fields: &str, body: &str) -> (Relay, Origin, Wire) {
    let (relay, origin) = (Relay::new(), Origin::new());
    let (mut client, mut server) = kept(&relay, &origin);
    client.send(request(method, &origin, "/second", fields) + body);
    server.head();
    drop(server);
    (relay, origin, client)
}

#[test]
fn repeats_a_get_on_a_stale_connection() {
    let (_relay, origin, mut client) = closes_on_second("GET", "", "");
    let mut server = origin.accept();
    assert!(server.head().starts_with("GET /second "));
    server.send(ok("y"));
    assert!(client.head().starts_with("HTTP/1.1 200 "));
    assert_eq!(client.exactly(1), b"y");
}

#[test]
fn does_not_repeat_a_post_on_a_stale_connection() {
    for (fields, body) in [("Content-Length: 2\r\n", "hi"), ("Content-Length: 0\r\n", "")] {
        let (_relay, origin, mut client) = closes_on_second("POST", fields, body);
        let answer = client.until_end();
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        assert!(answer.contains("it may or may not have been executed"), "{answer}");
        assert!(origin.came().is_none());
    }
}

#[test]
fn a_request_that_must_not_be_sent_twice_takes_no_connection_that_was_idle_for_a_second() {
    for (method, fields, body, fresh) in [
        ("GET", "", "", false),
        ("POST", "Content-Length: 0\r\n", "", true),
        // a body can be sent only once
        ("PUT", "Content-Length: 2\r\n", "hi", true),
    ] {
        let (relay, origin) = (Relay::new(), Origin::new());
        let (mut client, server) = kept(&relay, &origin);
        std::thread::sleep(std::time::Duration::from_millis(1_100));
        client.send(request(method, &origin, "/second", fields) + body);
        let mut second = if fresh { origin.accept() } else { server };
        assert!(second.head().starts_with(&format!("{method} /second ")));
        second.send(ok("y"));
        client.head();
        assert_eq!(client.exactly(1), b"y");
    }
}

#[test]
fn a_connection_is_given_up_before_the_server_closes_it() {
    for (said, kept) in [("timeout=1", false), ("timeout=600, max=100", true)] {
        let (relay, origin) = (Relay::new(), Origin::new());
        let mut client = relay.client();
        client.send(get(&origin, "/", ""));
        let mut server = origin.accept();
        server.head();
        server.send(format!("HTTP/1.1 200 OK\r\nKeep-Alive: {said}\r\nContent-Length: 1\r\n\r\nx"));
        assert_eq!(field(&client.head(), "keep-alive"), None);
        client.exactly(1);
        client.send(get(&origin, "/second", ""));
        let mut second = if kept { server } else { origin.accept() };
        assert!(second.head().starts_with("GET /second "), "{said}");
        second.send(ok("y"));
        client.head();
        assert_eq!(client.exactly(1), b"y");
    }
}

#[test]
fn closes_connections_on_connection_close() {
    let (relay, origin) = (forgetful(), Origin::new());
    // the client says so
    let mut client = relay.client();
    client.send(get(&origin, "/", "Connection: close\r\n"));
    let mut server = origin.accept();
    assert_eq!(field(&server.head(), "connection"), None);
    server.send(ok("x"));
    assert_eq!(field(&client.head(), "connection"), Some("close"));
    assert_eq!(client.until_end(), "x");
    server.is_gone();
    // the origin says so: the client's stays
    let mut client = relay.client();
    for _ in 0..2 {
        client.send(get(&origin, "/", ""));
        let mut server = origin.accept();
        server.head();
        server.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx");
        assert_eq!(field(&client.head(), "connection"), None);
        assert_eq!(client.exactly(1), b"x");
    }
}

#[test]
fn ignores_unrequested_bytes_on_pooled_connections() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(get(&origin, "/1", ""));
    let mut server = origin.accept();
    server.head();
    server.send(ok("a") + &ok("poison"));
    client.head();
    assert_eq!(client.exactly(1), b"a");
    client.send(get(&origin, "/2", ""));
    let mut fresh = origin.accept();
    assert!(fresh.head().starts_with("GET /2 "));
    fresh.send(ok("b"));
    client.head();
    assert_eq!(client.exactly(1), b"b");
}

#[test]
fn http_1_0_clients_ask_for_keep_alive() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    let line = format!("GET http://{}/ HTTP/1.0\r\n", origin.name);
    client.send(format!("{line}Proxy-Connection: keep-alive\r\n\r\n"));
    let mut server = origin.accept();
    let head = server.head();
    assert!(head.starts_with("GET / HTTP/1.1\r\n"), "{head}");
    assert_eq!(field(&head, "host"), Some(origin.name.as_str()));
    assert_eq!(field(&head, "proxy-connection"), None);
    server.send(ok("x"));
    assert_eq!(field(&client.head(), "connection"), Some("keep-alive"));
    client.exactly(1);
    client.send(format!("{line}\r\n"));
    server.head();
    server.send(ok("y"));
    assert_eq!(field(&client.head(), "connection"), Some("close"));
    assert_eq!(client.until_end(), "y");
}

#[test]
fn idle_time_between_requests_does_not_count_as_silence() {
    let (relay, origin) = (
        Relay::with(|settings| {
            for leg in settings.legs.values_mut() {
                leg.idle_timeout = Span::from_secs(3);
            }
        }),
        Origin::new(),
    );
    let (mut client, mut server) = kept(&relay, &origin);
    std::thread::sleep(std::time::Duration::from_millis(3100));
    client.send(get(&origin, "/", ""));
    server.head();
    server.send(ok("y"));
    assert!(client.head().starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_half_closed_client_gets_its_answer() {
    let (relay, origin) = (forgetful(), Origin::new());
    let mut client = relay.client();
    client.send(get(&origin, "/", ""));
    client.finish();
    let mut server = origin.accept();
    server.head();
    server.send(ok("still here"));
    client.head();
    assert_eq!(client.until_end(), "still here");
    server.is_gone();
}

#[test]
fn a_client_that_waits_for_a_place_at_a_stop_is_answered() {
    let mut relay = Relay::with(|settings| {
        settings.budgets.connections = 1;
        settings.pool.connections = 0;
    });
    let origin = Origin::new();
    let mut client = relay.client();
    client.send(get(&origin, "/", ""));
    let mut server = origin.accept();
    server.head();
    let mut waiting = relay.client();
    waiting.send(get(&origin, "/", ""));
    wait_until(|| relay.status().pressure.waiting == 1, || format!("{:?}", relay.status()));
    let stopping = relay.begin_stop();
    let head = waiting.head();
    assert!(head.starts_with("HTTP/1.1 503 ") && field(&head, "retry-after").is_some(), "{head}");
    drop(waiting);
    server.send(ok("last"));
    client.head();
    assert_eq!(client.until_end(), "last");
    drop(client);
    assert_eq!(stopping.join().unwrap().cut, 0);
}

#[test]
fn all_clients_that_wait_at_a_stop_are_answered_beyond_the_rejections_at_a_time() {
    let mut relay = Relay::with(|settings| {
        settings.budgets.connections = 1;
        settings.budgets.rejections = 1;
        settings.pool.connections = 0;
    });
    let origin = Origin::new();
    let mut client = relay.client();
    client.send(get(&origin, "/", ""));
    let mut server = origin.accept();
    server.head();
    let mut waiting: Vec<_> = (0..3).map(|_| relay.client()).collect();
    waiting.iter_mut().for_each(|client| client.send(get(&origin, "/", "")));
    wait_until(|| relay.status().pressure.waiting == 3, || format!("{:?}", relay.status()));
    let stopping = relay.begin_stop();
    for mut waiting in waiting {
        let head = waiting.head();
        assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    }
    server.send(ok("last"));
    client.head();
    assert_eq!(client.until_end(), "last");
    drop(client);
    assert_eq!(stopping.join().unwrap().cut, 0);
}

#[test]
fn a_stopping_relay_finishes_and_closes() {
    let (mut relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(get(&origin, "/", ""));
    let mut server = origin.accept();
    server.head();
    let stopping = relay.begin_stop();
    server.send(ok("last"));
    assert_eq!(field(&client.head(), "connection"), Some("close"));
    assert_eq!(client.until_end(), "last");
    drop(client);
    assert_eq!(stopping.join().unwrap().cut, 0);
}
