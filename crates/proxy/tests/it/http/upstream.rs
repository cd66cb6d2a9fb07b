//! Plain HTTP by way of another proxy: in absolute form to one that speaks HTTP, through SOCKS5 in
//! origin form.
use crate::common::wire::{Origin, Relay, field, get, ok, request};
use ekiden_proxy::settings::{Credentials, Route, Upstream, UpstreamProtocol};

/// A relay that sends everything through `proxy`.
fn through(proxy: &Origin, protocol: UpstreamProtocol) -> Relay {
    through_by(proxy, protocol, true)
}

fn through_by(proxy: &Origin, protocol: UpstreamProtocol, private_methods: bool) -> Relay {
    Relay::with(|settings| {
        let upstream = Upstream {
            credentials: Some(Credentials { user: "me".to_owned(), password: "secret".to_owned() }),
            private_methods,
            ..Upstream::new(protocol, "127.0.0.1", proxy.port())
        };
        settings.upstreams.insert("far".to_owned(), upstream);
        settings.routes.push(Route {
            to: Vec::new(),
            through: vec![vec!["far".to_owned()]],
            leg: "direct".to_owned(),
            client_leg: "client".to_owned(),
        });
    })
}

#[test]
fn an_http_proxy_is_asked_in_absolute_form() {
    let (proxy, origin, other) = (Origin::new(), Origin::new(), Origin::new());
    let relay = through(&proxy, UpstreamProtocol::Http);
    let mut client = relay.client();
    client.send(get(&origin, "/a?b", "Proxy-Authorization: Basic Y2xpZW50Og==\r\n"));
    let mut server = proxy.accept();
    let head = server.head();
    assert!(head.starts_with(&format!("GET http://{}/a?b HTTP/1.1\r\n", origin.name)), "{head}");
    assert_eq!(field(&head, "host"), Some(origin.name.as_str()));
    // ours, and not the client's
    assert_eq!(field(&head, "proxy-authorization"), Some("Basic bWU6c2VjcmV0"));
    assert_eq!(head.to_lowercase().matches("proxy-authorization").count(), 1);
    assert_eq!(field(&head, "via"), Some("1.1 relay-under-test"));
    server.send("HTTP/1.1 200 OK\r\nVia: 1.1 far\r\nContent-Length: 2\r\n\r\nok");
    let head = client.head();
    assert_eq!(field(&head, "via"), Some("1.1 far, 1.1 relay-under-test"));
    assert_eq!(client.exactly(2), b"ok");
    // one connection to a proxy serves every destination
    client.send(get(&other, "/", ""));
    let head = server.head();
    assert!(head.starts_with(&format!("GET http://{}/ ", other.name)), "{head}");
    server.send(ok("2"));
    client.head();
    assert_eq!(client.exactly(1), b"2");
    client.send(format!("OPTIONS http://{0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.name));
    assert!(server.head().starts_with(&format!("OPTIONS http://{} HTTP/1.1\r\n", origin.name)));
    assert!(origin.came().is_none() && other.came().is_none());
}

#[test]
fn an_upstream_407_is_the_relay_s_failure() {
    let (proxy, origin) = (Origin::new(), Origin::new());
    let relay = through(&proxy, UpstreamProtocol::Http);
    let mut client = relay.client();
    client.send(get(&origin, "/", ""));
    let mut server = proxy.accept();
    server.head();
    server.send(
        "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\
         Content-Length: 0\r\n\r\n",
    );
    let answer = client.until_end();
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("far"), "{answer}");
}

#[test]
fn forwards_a_body_through_a_proxy() {
    let (proxy, origin) = (Origin::new(), Origin::new());
    let relay = through(&proxy, UpstreamProtocol::Http);
    let mut client = relay.client();
    client.send(request("POST", &origin, "/", "Transfer-Encoding: chunked\r\n"));
    client.send("3\r\nabc\r\n0\r\nSum: 1\r\n\r\n");
    let mut server = proxy.accept();
    server.head();
    assert_eq!(server.until("Sum: 1\r\n\r\n"), "3\r\nabc\r\n0\r\nSum: 1\r\n\r\n");
    server.send(ok("ok"));
    client.head();
    assert_eq!(client.exactly(2), b"ok");
}

#[test]
fn a_socks5_greeting_names_relays_unless_private_methods_are_off() {
    for (private_methods, expected) in [(true, 11), (false, 2)] {
        let proxy = Origin::new();
        let relay = through_by(&proxy, UpstreamProtocol::Socks5, private_methods);
        let mut client = relay.client();
        client.send("CONNECT 127.0.0.1:9 HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\n");
        let mut server = proxy.accept();
        let [version, count] = server.exactly(2)[..] else { panic!() };
        assert_eq!((version, usize::from(count)), (5, expected));
        let methods = server.exactly(count.into());
        assert_eq!(methods[..2], [0, 2]);
        // as a server does that takes no more of them
        drop(server);
        let answer = client.until_end();
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        let hint = answer.contains("set private_methods = false in [upstream.far]");
        assert_eq!(hint, private_methods, "{answer}");
    }
}

#[test]
fn through_socks5_requests_take_origin_form() {
    let (proxy, origin) = (Origin::new(), Origin::new());
    let relay = through(&proxy, UpstreamProtocol::Socks5);
    let mut client = relay.client();
    client.send(get(&origin, "/a", ""));
    let mut server = proxy.accept();
    let greeting = server.exactly(2);
    assert_eq!(greeting[0], 5);
    assert!(server.exactly(greeting[1].into()).contains(&2));
    server.send([5, 2]);
    assert_eq!(server.exactly(11), b"\x01\x02me\x06secret");
    server.send([1, 0]);
    let [high, low] = origin.port().to_be_bytes();
    assert_eq!(server.exactly(10), [5, 1, 0, 1, 127, 0, 0, 1, high, low]);
    server.send([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    let head = server.head();
    assert!(head.starts_with("GET /a HTTP/1.1\r\n"), "{head}");
    assert_eq!(field(&head, "proxy-authorization"), None);
    server.send(ok("ok"));
    client.head();
    assert_eq!(client.exactly(2), b"ok");
    // the tunnel leads to one place
    client.send(get(&origin, "/b", ""));
    assert!(server.head().starts_with("GET /b "));
    server.send(ok("ok"));
    client.head();
    client.exactly(2);
    let other = Origin::new();
    client.send(get(&other, "/c", ""));
    assert_eq!(proxy.accept().exactly(1), [5]);
}
