//! No credential in any log: neither the access log nor what the relay says of its own doings, at
//! the finest level.
use crate::common::wire::{Origin, Relay, get, ok, request};
use ekiden_proxy::settings::{AccessLog, Credentials, Route, Upstream, UpstreamProtocol};
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps everything that is said, of every level.
#[derive(Clone, Default)]
struct Everything(Arc<Mutex<String>>);

impl Everything {
    fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

struct Writer<'a>(&'a mut String);

impl Visit for Writer<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Everything {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        attributes.record(&mut Writer(&mut self.0.lock().unwrap()));
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Writer(&mut self.0.lock().unwrap()));
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = self.0.lock().unwrap();
        text.push('\n');
        event.record(&mut Writer(&mut text));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The word no log may hold, alone and as it stands in `Basic` credentials.
const SECRET: &str = "geheimnis";
const ENCODED: &str = "bWU6Z2VoZWltbmlz";

#[test]
fn no_credential_in_any_log() {
    let said = Everything::default();
    tracing::subscriber::set_global_default(said.clone()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("access.log");
    let (origin, proxy) = (Origin::new(), Origin::new());
    let relay = Relay::with(|settings| {
        settings.access_log = AccessLog::File(log.clone());
        let credentials = Credentials { user: "me".to_owned(), password: SECRET.to_owned() };
        settings.upstreams.insert(
            "far".to_owned(),
            Upstream {
                credentials: Some(credentials),
                ..Upstream::new(UpstreamProtocol::Http, "127.0.0.1", proxy.port())
            },
        );
        settings.routes.push(Route {
            to: vec![ekiden_proxy::settings::Pattern {
                host: ekiden_proxy::settings::HostPattern::Below("proxied.example".to_owned()),
                ports: None,
            }],
            through: vec![vec!["far".to_owned()]],
            leg: "direct".to_owned(),
            client_leg: "client".to_owned(),
        });
    });

    // requests that are carried out
    let fields = format!(
        "Authorization: Basic {ENCODED}\r\nProxy-Authorization: Basic {ENCODED}\r\nCookie: {SECRET}\r\n"
    );
    let mut client = relay.client();
    client.send(get(&origin, &format!("/path?token={SECRET}"), &fields));
    let mut server = origin.accept();
    server.head();
    server.send(format!("HTTP/1.1 200 OK\r\nSet-Cookie: {SECRET}\r\nContent-Length: 0\r\n\r\n"));
    client.head();
    // and break off, malformed, or not understood
    client.send(get(&origin, &format!("/path?token={SECRET}"), &fields));
    server.head();
    server.send(format!("{SECRET} is no HTTP\r\n\r\n"));
    assert!(client.until_end().starts_with("HTTP/1.1 502 "));
    let o = &origin.name;
    for refused in [
        format!("GET http://me:{SECRET}@{o}/ HTTP/1.1\r\nHost: {o}\r\n\r\n"),
        format!("GET http://{o}/?{SECRET}#{SECRET} HTTP/1.1\r\nHost: {o}\r\n\r\n"),
        format!("CONNECT me:{SECRET}@{o} HTTP/1.1\r\nHost: {o}\r\n\r\n"),
        format!("GET http://{o}/ HTTP/1.1\r\nHost: me:{SECRET}@{o}\r\n\r\n"),
        format!("GET http://{o}/ HTTP/1.1\r\nHost: {o}\r\nAuthorization : {SECRET}\r\n\r\n"),
        format!("GET http://{o}/ HTTP/1.1\r\nHost: {o}\r\nAuthorization: {SECRET}\0\r\n\r\n"),
        format!("GET http://{o}/ HTTP/1.1\r\nHost: {o}\r\nConnection: {SECRET} x\r\n\r\n"),
        format!("\x05\x01\x00\x01\x02me\x09{SECRET}"),
    ] {
        let mut client = relay.client();
        client.send(refused);
        let _ = client.rest();
    }
    // the relay's own, to an upstream that takes it and to one that does not
    for answer in [ok(""), "HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n".to_owned()] {
        let mut client = relay.client();
        client.send("GET http://a.proxied.example/ HTTP/1.1\r\nHost: a.proxied.example\r\n\r\n");
        let mut server = proxy.accept();
        assert!(server.head().contains(ENCODED));
        server.send(answer);
        client.head();
        let mut client = relay.client();
        client.send("CONNECT a.proxied.example:443 HTTP/1.1\r\nHost: a.proxied.example\r\n\r\n");
        let mut server = proxy.accept();
        assert!(server.head().contains(ENCODED));
        server.send("HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n");
        client.head();
    }
    // a user name is not a secret, but SOCKS4's may hold anything
    let mut client = relay.client();
    client.send([&[4, 1, 0, 0, 127, 0, 0, 1][..], SECRET.as_bytes(), &[0]].concat());
    let _ = client.rest();
    let mut client = relay.client();
    client.send(request("POST", &origin, "/", "Transfer-Encoding: chunked\r\n"));
    client.send(format!("{SECRET}\r\n"));
    let _ = client.rest();
    drop((client, server));
    relay.settles();

    let access = relay.logged(&log);
    let said = said.text();
    let status = serde_json::to_string(&relay.status()).unwrap();
    assert!(access.contains("/path") && said.contains("/path"), "the logs do say what happened");
    for (name, text) in [("access log", &access), ("log", &said), ("status", &status)] {
        for secret in [SECRET, ENCODED] {
            assert!(!text.contains(secret), "{secret} in the {name}: {text}");
        }
    }
}
