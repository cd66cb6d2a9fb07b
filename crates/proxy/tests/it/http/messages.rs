//! What becomes of heads: fields of this hop taken away, `Via` added, interim answers, upgrades.
use crate::common::wire::{Origin, Relay, field, get, ok, request};

#[test]
fn hop_by_hop_fields_end_at_the_relay() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(get(
        &origin,
        "/a?b=c",
        "Connection: keep-alive, X-Mine\r\nX-Mine: 1\r\nX-Yours: 2\r\nKeep-Alive: timeout=5\r\n\
         Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic YTpi\r\nTE: trailers, deflate\r\n\
         Authorization: Basic Yzpk\r\nVia: 1.0 fred\r\nVia: 1.1 p (squid)\r\n",
    ));
    let mut server = origin.accept();
    let head = server.head();
    assert!(head.starts_with("GET /a?b=c HTTP/1.1\r\n"));
    for gone in ["x-mine", "keep-alive", "proxy-connection", "proxy-authorization"] {
        assert_eq!(field(&head, gone), None, "{gone} in {head}");
    }
    assert_eq!(field(&head, "x-yours"), Some("2"));
    assert_eq!(field(&head, "authorization"), Some("Basic Yzpk"));
    assert_eq!((field(&head, "te"), field(&head, "connection")), (Some("trailers"), Some("TE")));
    assert_eq!(field(&head, "via"), Some("1.0 fred, 1.1 p (squid), 1.1 relay-under-test"));
    assert_eq!(head.matches("Via:").count(), 1);
    server.send(
        "HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-End: 2\r\nKeep-Alive: timeout=9\r\n\
         Proxy-Authenticate: Basic\r\nVia: 1.1 cache\r\nUpgrade: h2c\r\nContent-Length: 0\r\n\r\n",
    );
    let head = client.head();
    for gone in ["x-hop", "keep-alive", "proxy-authenticate", "upgrade", "connection"] {
        assert_eq!(field(&head, gone), None, "{gone} in {head}");
    }
    assert_eq!(field(&head, "x-end"), Some("2"));
    assert_eq!(field(&head, "via"), Some("1.1 cache, 1.1 relay-under-test"));
}

#[test]
fn via_names_the_received_versions() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(format!("GET http://{}/ HTTP/1.0\r\nExpect: 100-continue\r\n\r\n", origin.name));
    let mut server = origin.accept();
    let head = server.head();
    assert_eq!(field(&head, "via"), Some("1.0 relay-under-test"));
    assert_eq!(field(&head, "expect"), None, "an HTTP/1.0 client does not know what it asks");
    let names = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let names: Vec<_> = names.map(|(name, _)| name.to_ascii_lowercase()).collect();
    assert_eq!(names, ["host", "via"], "no field tells whose request it is");
    server.send("HTTP/1.0 200 OK\r\n\r\nold");
    drop(server);
    assert_eq!(field(&client.head(), "via"), Some("1.0 relay-under-test"));
    assert_eq!(client.until_end(), "old");
}

#[test]
fn the_targets_host_replaces_another() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(format!("GET http://{}/ HTTP/1.1\r\nHost: example.org:81\r\n\r\n", origin.name));
    let mut server = origin.accept();
    let head = server.head();
    assert_eq!(field(&head, "host"), Some(&*origin.name), "{head}");
    assert_eq!(head.to_ascii_lowercase().matches("host:").count(), 1);
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_relay_in_front_of_itself_finds_the_loop() {
    let relay = Relay::new();
    let mut client = relay.client();
    let name = relay.address;
    client.send(format!("GET http://{name}/ HTTP/1.1\r\nHost: {name}\r\n\r\n"));
    let answer = client.until_end();
    let found = answer.starts_with("HTTP/1.1 508 ") || answer.starts_with("HTTP/1.1 403 ");
    assert!(found, "{answer}");
}

#[test]
fn options_stops_at_max_forwards() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(format!(
        "OPTIONS http://{0} HTTP/1.1\r\nHost: {0}\r\nMax-Forwards: 7\r\n\r\n",
        origin.name
    ));
    let mut server = origin.accept();
    let head = server.head();
    assert!(head.starts_with("OPTIONS * HTTP/1.1\r\n"), "{head}");
    assert_eq!(field(&head, "max-forwards"), Some("6"));
    server.send(ok(""));
    client.head();
    client.send(request("OPTIONS", &origin, "/", "Max-Forwards: 0\r\n"));
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 200 "));
    assert_eq!(field(&head, "via"), Some("1.1 relay-under-test"));
}

#[test]
fn interim_answers_are_passed_on() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(request("POST", &origin, "/", "Expect: 100-continue\r\nContent-Length: 4\r\n"));
    let mut server = origin.accept();
    assert_eq!(field(&server.head(), "expect"), Some("100-continue"));
    server.send("HTTP/1.1 100 Continue\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 100 Continue\r\n"));
    client.send("body");
    assert_eq!(server.exactly(4), b"body");
    server.send("HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\nContent-Length: 3\r\n\r\n");
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 103 Early Hints\r\n"));
    assert!(field(&head, "link").is_some() && field(&head, "content-length").is_none());
    server.send(ok("done"));
    assert!(client.head().starts_with("HTTP/1.1 200 "));
    assert_eq!(client.exactly(4), b"done");
}

#[test]
fn a_refused_expectation_costs_no_body() {
    for status in ["413 Content Too Large", "417 Expectation Failed"] {
        let (relay, origin) = (Relay::new(), Origin::new());
        let mut client = relay.client();
        let fields = "Expect: 100-continue\r\nContent-Length: 1000000000\r\n";
        client.send(request("POST", &origin, "/", fields));
        let mut server = origin.accept();
        server.head();
        server.send(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nno"));
        let head = client.head();
        assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{head}");
        assert_eq!(field(&head, "connection"), Some("close"), "the body will not be read");
        assert_eq!(client.until_end(), "no");
        server.is_gone();
    }
}

#[test]
fn an_http_1_0_client_gets_no_interim_answers() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(format!("GET http://{}/ HTTP/1.0\r\n\r\n", origin.name));
    let mut server = origin.accept();
    server.head();
    server.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".to_owned() + &ok("x"));
    let answer = client.until_end();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nx"), "{answer}");
}

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n";
const SWITCH: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

#[test]
fn an_upgrade_becomes_a_tunnel_with_early_bytes_both_ways() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(get(&origin, "/chat", UPGRADE) + "early up");
    let mut server = origin.accept();
    let head = server.head();
    assert_eq!(field(&head, "upgrade"), Some("websocket"));
    assert_eq!(field(&head, "connection"), Some("upgrade"));
    assert_eq!(field(&head, "sec-websocket-key"), Some("k"));
    server.send(SWITCH.to_owned() + "early down");
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 101 "));
    assert_eq!(field(&head, "upgrade"), Some("websocket"));
    assert_eq!(client.exactly(10), b"early down");
    assert_eq!(server.exactly(8), b"early up");
    client.send("ping");
    assert_eq!(server.exactly(4), b"ping");
    server.send("pong");
    assert_eq!(client.exactly(4), b"pong");
    client.finish();
    assert_eq!(server.until_end(), "");
    server.send("after the client's end");
    drop(server);
    assert_eq!(client.until_end(), "after the client's end");
}

#[test]
fn a_server_may_decline_to_upgrade() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(get(&origin, "/chat", UPGRADE));
    let mut server = origin.accept();
    server.head();
    server.send(ok("no"));
    client.head();
    assert_eq!(client.exactly(2), b"no");
    client.send(get(&origin, "/next", ""));
    assert!(server.head().starts_with("GET /next "));
}

#[test]
fn refuses_an_unrequested_upgrade() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(get(&origin, "/", ""));
    let mut server = origin.accept();
    server.head();
    server.send(SWITCH.to_owned() + "surprise");
    let answer = client.until_end();
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("unasked"), "{answer}");
}

#[test]
fn refuses_an_upgrade_within_a_body() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    let fields = UPGRADE.to_owned() + "Content-Length: 10\r\n";
    client.send(request("POST", &origin, "/", &fields) + "half");
    let mut server = origin.accept();
    server.head();
    server.send(SWITCH);
    let answer = client.until_end();
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("within"), "{answer}");
}

/// No proxy is asked for, so no log-in either.
#[test]
fn browsers_get_a_script_that_names_this_relay() {
    let relay = Relay::with(|settings| {
        settings.pac.direct = vec!["*.lan.example".to_owned()];
    });
    let ask = |request: &str| {
        let mut client = relay.client();
        client.send(request);
        client.until_end()
    };
    let answer = ask("GET /proxy.pac HTTP/1.1\r\nHost: Relay.example:3128\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert_eq!(field(&answer, "content-type"), Some("application/x-ns-proxy-autoconfig"));
    assert!(answer.contains("return \"PROXY relay.example:3128; DIRECT\";"), "{answer}");
    assert!(answer.contains("dnsDomainIs(host, \".lan.example\")"), "{answer}");
    let by_address = ask("GET /wpad.dat HTTP/1.0\r\n\r\n");
    assert!(by_address.contains(&format!("\"PROXY {}; DIRECT\"", relay.address)), "{by_address}");
    // what is no host does not get into a script
    let odd = ask("GET /proxy.pac HTTP/1.1\r\nHost: a\";alert(1)\r\n\r\n");
    assert!(odd.starts_with("HTTP/1.1 400") && !odd.contains("alert"), "{odd}");
    let head = ask("HEAD /proxy.pac HTTP/1.1\r\nHost: relay.example\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    // the page is not made for its length alone
    let page = ask("HEAD / HTTP/1.1\r\nHost: relay.example\r\n\r\n");
    assert!(page.starts_with("HTTP/1.1 200") && page.ends_with("\r\n\r\n"), "{page}");
    assert_eq!(field(&page, "content-length"), None, "{page}");
    let post = ask("POST /proxy.pac HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert!(post.starts_with("HTTP/1.1 400"), "{post}");
    let off = Relay::with(|settings| settings.pac.serve = false);
    let mut client = off.client();
    client.send("GET /proxy.pac HTTP/1.1\r\nHost: relay.example\r\n\r\n");
    assert!(client.until_end().starts_with("HTTP/1.1 400"));
}
