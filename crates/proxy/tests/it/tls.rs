//! TLS on the port of all doors.
use crate::common::wait_until;
use crate::common::wire::{Origin, PATIENCE, Relay, get, ok};
use ekiden_model::units::Span;
use ekiden_proxy::settings::{Account, Limits, Settings};
use ekiden_testkit::Certificate;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// A certificate for "localhost" in a folder, and the relay that shows it.
pub(crate) struct Shown {
    folder: tempfile::TempDir,
    certificate: Certificate,
}

impl Shown {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certificate = own(folder.path());
        Self { folder, certificate }
    }

    pub(crate) fn settings(&self, settings: &mut Settings) {
        settings.tls.certificate = Some(self.certificate.certificate.clone());
        settings.tls.key = Some(self.certificate.key.clone());
    }

    pub(crate) fn relay(&self) -> Relay {
        Relay::with(|settings| self.settings(settings))
    }

    /// A client of HTTP/1.1 that trusts this certificate alone.
    pub(crate) fn client(&self, relay: &Relay) -> Client {
        self.within(TcpStream::connect(relay.address).unwrap(), b"http/1.1")
    }

    /// The same over a connection that is there, for another protocol.
    pub(crate) fn within(&self, stream: TcpStream, protocol: &[u8]) -> Client {
        let config = self.config(&[protocol]);
        let connection = ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(StreamOwned::new(connection, stream))
    }

    pub(crate) fn config(&self, protocols: &[&[u8]]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der.clone().into()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Arc::new(config)
    }
}

fn own(folder: &Path) -> Certificate {
    Certificate::self_signed(folder, "own", &["localhost"])
}

pub(crate) struct Client(pub(crate) StreamOwned<ClientConnection, TcpStream>);

impl Client {
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
        self.0.flush().unwrap();
    }

    pub(crate) fn until(&mut self, end: &str) -> String {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end.as_bytes()) {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            bytes.push(byte[0]);
        }
        String::from_utf8(bytes).unwrap()
    }

    /// Ends its direction alone.
    fn finish(&mut self) {
        self.0.conn.send_close_notify();
        self.0.flush().unwrap();
    }
}

#[test]
fn a_client_within_tls_that_has_asked_again_keeps_its_place() {
    let (shown, origin) = (Shown::new(), Origin::new());
    let relay = Relay::with(|settings| {
        shown.settings(settings);
        // its own, and the session within
        settings.budgets.connections = 2;
        settings.pool.connections = 0;
    });
    let mut working = shown.client(&relay);
    working.send(get(&origin, "/", ""));
    let mut server = origin.accept();
    server.head();
    working.send(get(&origin, "/again", ""));
    let mut waiting = relay.client();
    waiting.send(get(&origin, "/", ""));
    wait_until(|| relay.status().pressure.waiting == 1, || format!("{:?}", relay.status()));
    server.send(ok("x"));
    working.until("\r\n\r\nx");
    let mut server = origin.accept();
    assert!(server.head().starts_with("GET /again "));
    assert_eq!(relay.status().pressure.waiting, 1);
    server.send(ok("y"));
    working.until("\r\n\r\ny");
    let mut server = origin.accept();
    server.head();
    server.send(ok("z"));
    waiting.until("\r\n\r\nz");
}

#[test]
fn an_end_that_comes_with_the_last_bytes_goes_on() {
    let (shown, origin) = (Shown::new(), Origin::new());
    let relay = shown.relay();
    let mut client = shown.client(&relay);
    let name = &origin.name;
    client.send(format!("CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n\r\n"));
    client.until("\r\n\r\n");
    let mut server = origin.accept();
    // one segment
    client.0.conn.writer().write_all(b"last").unwrap();
    client.finish();
    assert_eq!(server.until_end(), "last");
    server.send("answer");
    client.until("answer");
}

#[test]
fn tls_carries_every_protocol_beside_the_plain_ones() {
    let (shown, origin) = (Shown::new(), Origin::new());
    let relay = shown.relay();
    // two requests on one connection
    let mut client = shown.client(&relay);
    client.send(get(&origin, "/one", ""));
    assert_eq!(client.0.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    let mut server = origin.accept();
    assert!(server.head().starts_with("GET /one"));
    server.send(ok("1"));
    client.until("\r\n\r\n1");
    client.send(get(&origin, "/two", ""));
    assert!(server.head().starts_with("GET /two"));
    server.send(ok("2"));
    client.until("\r\n\r\n2");
    // one row: the requests within TLS, by the client's own connection
    let shown_once = relay.status().connections;
    assert_eq!(shown_once.len(), 1);
    assert_eq!(shown_once[0].protocol, "http");
    let leg = shown_once[0].legs.iter().find(|leg| leg.side == "client").unwrap();
    assert_eq!(leg.peer, Some(shown_once[0].client));
    drop((client, server));

    let mut client = shown.client(&relay);
    let name = &origin.name;
    client.send(format!("CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n\r\nup"));
    client.until("\r\n\r\n");
    let mut server = origin.accept();
    assert_eq!(server.exactly(2), b"up");
    // one direction ends, the other goes on
    client.finish();
    assert_eq!(server.until_end(), "");
    server.send("down");
    client.until("down");
    server.finish();
    assert_eq!(client.0.read(&mut [0]).unwrap(), 0);
    drop((client, server));

    let mut client = shown.client(&relay);
    client.send([&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1][..], &origin.port().to_be_bytes()].concat());
    let mut answer = [0; 12];
    client.0.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..4], [5, 0, 5, 0]);
    origin.accept();
    drop(client);

    let mut client = relay.client();
    client.send(get(&origin, "/plain", ""));
    assert!(origin.accept().head().starts_with("GET /plain"));
    drop(client);
    relay.settles();
}

/// One place of its account for a client, and not one for its connection and another for what it says within.
#[test]
fn a_client_counts_once_in_its_account() {
    let (shown, origin) = (Shown::new(), Origin::new());
    let relay = Relay::with(|settings| {
        shown.settings(settings);
        settings.sharing.list = vec![Account {
            name: "home".to_owned(),
            addresses: vec!["127.0.0.0/8".parse().unwrap()],
            peers: vec![],
            limits: Limits { connections: Some(1), ..Limits::default() },
        }];
    });
    let used = || {
        let usage = relay.server.as_ref().unwrap().handle().accounts().usage();
        (usage[0].down, usage[0].up)
    };
    let (mut down, mut up) = (0, 0);
    for before in 0..2 {
        let mut client = shown.client(&relay);
        client.send(get(&origin, "/", ""));
        let mut server = origin.accept();
        up += server.head().len() as u64;
        server.send(ok("12345"));
        down += client.until("\r\n\r\n12345").len() as u64;
        let seen = relay.status().sharing.unwrap().accounts.remove(0);
        // the handshakes before count, too; this one's at its end
        let is_counted = || before == 0 || used().0 > down;
        wait_until(is_counted, || format!("{:?}", used()));
        let beside = [used().0 - down, used().1 - up];
        let of_each = (400..4_000).contains(&(beside[0] / before.max(1)));
        assert_eq!((seen.connections, beside == [0; 2]), (1, before == 0), "{beside:?}");
        assert!(before == 0 || of_each, "{beside:?}");
        let (mut second, mut answer) = (relay.client(), String::new());
        second.send(get(&origin, "/", ""));
        while !answer.contains("429") {
            answer = second.until("\r\n");
        }
        drop((client, second, server));
        relay.settles();
    }
}

#[test]
fn delivers_large_bodies_and_never_ends_a_reset_cleanly() {
    let (shown, origin) = (Shown::new(), Origin::new());
    let relay = shown.relay();
    let mut client = shown.client(&relay);
    let name = &origin.name;
    client.send(format!("CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n\r\n"));
    client.until("\r\n\r\n");
    let mut server = origin.accept();
    let sent: Vec<u8> =
        (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let expected = sent.clone();
    let sending = std::thread::spawn(move || {
        server.send(sent);
        server
    });
    let mut received = vec![0; expected.len()];
    client.0.read_exact(&mut received).unwrap();
    assert!(received == expected);
    sending.join().unwrap().reset();
    let ended = client.0.read(&mut [0]).unwrap_err().kind();
    assert!(matches!(ended, ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof), "{ended}");
    relay.settles();
}

#[test]
fn a_client_that_stays_after_its_session_holds_no_memory() {
    let (shown, origin) = (Shown::new(), Origin::new());
    let relay = Relay::with(|settings| {
        shown.settings(settings);
        settings.timeouts.keep_alive = "100 ms".parse().unwrap();
    });
    let mut client = shown.client(&relay);
    client.send(get(&origin, "/", ""));
    let mut server = origin.accept();
    server.head();
    server.send(ok("1"));
    client.until("\r\n\r\n1");
    // it could ask for more, and says nothing
    relay.settles();
    assert_eq!(client.0.read(&mut [0]).unwrap(), 0);
}

#[test]
fn serves_a_new_certificate_without_a_restart() {
    let mut shown = Shown::new();
    let (relay, origin) = (shown.relay(), Origin::new());
    let [seen] = <[_; 1]>::try_from(relay.status().certificates).unwrap();
    assert!(seen.names == ["localhost"] && seen.self_signed, "{seen:?}");
    assert_eq!(seen.file, shown.certificate.certificate.display().to_string());
    shown.certificate = own(shown.folder.path());
    let begun = Instant::now();
    loop {
        let mut client = shown.client(&relay);
        // who trusts the new one alone is not spoken to until it is there
        match client.0.write_all(get(&origin, "/", "").as_bytes()) {
            Ok(()) => break,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn ends_broken_tls_and_tls_within_tls() {
    let shown = Shown::new();
    let relay = shown.relay();
    let mut client = relay.client();
    client.send([22, 3, 1, 0, 5, 1, 2, 3, 4, 5]);
    // perhaps an alert of TLS, and the end
    let (said, _) = client.rest();
    assert!(said.is_empty() || said[0] == 21, "{said:?}");
    let mut client = shown.client(&relay);
    client.send([22, 3, 1, 0, 5, 1, 2, 3, 4, 5]);
    client.finish();
    assert!(client.until("\r\n\r\n").starts_with("HTTP/1.1 400 "));
    drop(client);
    relay.settles();
}

/// A client of HTTP/2: what is sent on its streams, and a task that drives it.
pub(crate) async fn http2(
    shown: &Shown,
    relay: &Relay,
) -> (h2::client::SendRequest<bytes::Bytes>, tokio::task::JoinHandle<()>) {
    http2_with(shown, relay, &h2::client::Builder::new()).await
}

/// The same with other settings.
pub(crate) async fn http2_with(
    shown: &Shown,
    relay: &Relay,
    settings: &h2::client::Builder,
) -> (h2::client::SendRequest<bytes::Bytes>, tokio::task::JoinHandle<()>) {
    let connector = tokio_rustls::TlsConnector::from(shown.config(&[b"h2", b"http/1.1"]));
    let stream = tokio::net::TcpStream::connect(relay.address).await.unwrap();
    let stream = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
    let (client, connection) = settings.handshake(stream).await.unwrap();
    let driving = tokio::spawn(async move { drop(connection.await) });
    (client.ready().await.unwrap(), driving)
}

async fn all(body: &mut h2::RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut bytes = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len()).unwrap();
        bytes.extend(data);
    }
    Ok(bytes)
}

pub(crate) fn asked(method: &str, uri: String) -> http::Request<()> {
    http::Request::builder().method(method).uri(uri).body(()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn browsers_speak_http_2_on_many_streams() {
    let (shown, origin) = (Shown::new(), Origin::new());
    let relay = tokio::task::block_in_place(|| shown.relay());
    let (mut client, driving) = http2(&shown, &relay).await;
    let name = origin.name.clone();

    // a request with a body of unknown length, and an answer in chunks
    let (response, mut body) =
        client.send_request(asked("POST", format!("http://{name}/x?y")), false).unwrap();
    body.send_data("hello".into(), true).unwrap();
    tokio::task::block_in_place(|| {
        let mut server = origin.accept();
        let head = server.head();
        assert!(head.starts_with("POST /x?y HTTP/1.1\r\n"), "{head}");
        server.until("0\r\n\r\n");
        server.send("HTTP/1.1 201 Made\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    });
    let mut response = response.await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["x-a"]),
        (201, &"b".try_into().unwrap())
    );
    assert!(!response.headers().contains_key("transfer-encoding"));
    assert_eq!(all(response.body_mut()).await.unwrap(), b"abcde");

    // two tunnels beside each other: one with much to carry, one that is reset
    let connect = || {
        let mut request = asked("CONNECT", name.clone());
        *request.version_mut() = http::Version::HTTP_2;
        request
    };
    let (response, mut up) = client.send_request(connect(), false).unwrap();
    let mut response = response.await.unwrap();
    assert_eq!(response.status(), 200);
    let mut server = tokio::task::block_in_place(|| origin.accept());
    let (broken, _up) = client.send_request(connect(), false).unwrap();
    let mut broken = broken.await.unwrap();
    tokio::task::block_in_place(|| origin.accept()).reset();
    let why = all(broken.body_mut()).await.unwrap_err();
    assert_eq!(why.reason(), Some(h2::Reason::CONNECT_ERROR));
    let sent: Vec<u8> =
        (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let expected = sent.clone();
    let serving = std::thread::spawn(move || {
        assert_eq!(server.exactly(2), b"up");
        server.send(&sent);
        // the client ends its direction after it has all
        assert_eq!(server.until_end(), "");
        server.send("bye");
    });
    up.send_data("up".into(), false).unwrap();
    let mut received = Vec::new();
    while received.len() < expected.len() {
        let data = response.body_mut().data().await.unwrap().unwrap();
        response.body_mut().flow_control().release_capacity(data.len()).unwrap();
        received.extend(data);
    }
    assert!(received == expected);
    up.send_data(bytes::Bytes::new(), true).unwrap();
    assert_eq!(all(response.body_mut()).await.unwrap(), b"bye");
    serving.join().unwrap();

    // what the relay itself refuses
    let (refused, _) =
        client.send_request(asked("GET", "https://a.example/".into()), true).unwrap();
    assert_eq!(refused.await.unwrap().status(), 501);
    let long = asked(&"M".repeat(65), format!("http://{name}/"));
    let (refused, _) = client.send_request(long, true).unwrap();
    assert_eq!(refused.await.unwrap().status(), 501);
    // the client goes without a word
    driving.abort();
    tokio::task::block_in_place(|| {
        relay.settles();
        drop(relay);
    });
}

/// A request that was given up is over, though nobody answers it: or a client held the places of as many as it likes.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stream_that_is_reset_ends_while_nothing_is_answered() {
    let (shown, origin) = (Shown::new(), Origin::new());
    let relay = tokio::task::block_in_place(|| shown.relay());
    let (mut client, driving) = http2(&shown, &relay).await;
    for begun in ["", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsome"] {
        let uri = format!("http://{}/", origin.name);
        let (response, _) = client.send_request(asked("GET", uri), true).unwrap();
        let mut server = tokio::task::block_in_place(|| {
            let mut server = origin.accept();
            server.head();
            server.send(begun);
            server
        });
        if begun.is_empty() {
            drop(response);
        } else {
            drop(response.await.unwrap());
        }
        tokio::task::block_in_place(|| server.is_gone());
    }
    // the client's connection is still there
    let uri = format!("http://{}/", origin.name);
    let (response, _) = client.send_request(asked("GET", uri), true).unwrap();
    tokio::task::block_in_place(|| {
        let mut server = origin.accept();
        server.head();
        server.send(ok("1"));
    });
    assert_eq!(response.await.unwrap().status(), 200);
    driving.abort();
    tokio::task::block_in_place(|| {
        relay.settles();
        drop(relay);
    });
}

/// Neither a client that never sends HTTP/2's preface nor one that never asks holds its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn silent_http_2_clients_are_closed() {
    let shown = Shown::new();
    let relay = tokio::task::block_in_place(|| {
        Relay::with(|settings| {
            shown.settings(settings);
            settings.timeouts.request_head = Span::from_secs(1);
            settings.timeouts.keep_alive = Span::from_secs(1);
        })
    });
    let connector = tokio_rustls::TlsConnector::from(shown.config(&[b"h2"]));
    let stream = tokio::net::TcpStream::connect(relay.address).await.unwrap();
    let silent = connector.connect("localhost".try_into().unwrap(), stream).await.unwrap();
    let (_asks_nothing, driving) = http2(&shown, &relay).await;
    tokio::task::block_in_place(|| relay.settles());
    drop((silent, driving));
    tokio::task::block_in_place(|| drop(relay));
}
