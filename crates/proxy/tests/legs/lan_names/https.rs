//! A server over HTTPS: one connection for all questions, and responses that are none.

use super::server::*;
use super::{code, dns, relay};
use crate::harness::{loopback, wait_for};
use bytes::Bytes;
use ekiden_proxy::settings::{DnsServer, Family};
use ekiden_testkit::Authority;
use h2::server::SendResponse;
use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::RecordType;
use http::{Request, Response};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use socket2::{Domain, Socket, Type};
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

const MEDIA_TYPE: &str = "application/dns-message";

/// The head of a request, and its body.
type Seen = (Request<()>, Vec<u8>);

/// A server for `dns.example`, and what it saw.
struct HttpsServer {
    at: SocketAddr,
    authorities: PathBuf,
    connections: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Opens for names that are held.
    gate: Arc<Semaphore>,
}

impl HttpsServer {
    /// `protocol`: the one that it speaks within TLS.
    fn start(folder: &Path, protocol: &[u8]) -> Self {
        let authority = Authority::new(folder, "ca");
        let made = authority.certify(folder, "dns.example", [2020, 2090]);
        let chain = CertificateDer::pem_file_iter(&made.certificate).unwrap();
        let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_file(&made.key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        if !protocol.is_empty() {
            config.alpn_protocols = vec![protocol.to_vec()];
        }
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = std::net::TcpListener::bind(loopback(0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let server = Self {
            at: listener.local_addr().unwrap(),
            authorities: authority.file,
            connections: Arc::default(),
            seen: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
        };
        let (connections, seen) = (Arc::clone(&server.connections), Arc::clone(&server.seen));
        let gate = Arc::clone(&server.gate);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        std::thread::spawn(move || {
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    connections.fetch_add(1, Relaxed);
                    let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
                    tokio::spawn(serve(acceptor, stream, seen, Arc::clone(&gate)));
                }
            });
        });
        server
    }

    fn setting(&self, name: &str) -> DnsServer {
        format!("https://{}/dns-query#{name}", self.at).parse().unwrap()
    }
}

async fn serve(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    seen: Arc<Mutex<Vec<Seen>>>,
    gate: Arc<Semaphore>,
) {
    let mut unanswered = Vec::new();
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        let (head, mut body) = request.into_parts();
        let mut message = Vec::new();
        // the question is shorter than the window
        while let Some(Ok(data)) = std::future::poll_fn(|cx| {
            let _ = connection.poll_closed(cx).is_ready();
            body.poll_data(cx)
        })
        .await
        {
            message.extend_from_slice(&data);
        }
        let again = seen.lock().unwrap().len();
        seen.lock().unwrap().push((Request::from_parts(head, ()), message.clone()));
        let query = Message::from_vec(&message).unwrap();
        let name = query.queries[0].name().to_ascii();
        if name.starts_with("gone") && again < 2 {
            return;
        }
        let kind = name.split('.').nth(1).unwrap_or_default();
        match kind {
            "slow" => unanswered.push(respond),
            "held" => {
                let gate = Arc::clone(&gate);
                tokio::spawn(async move {
                    gate.acquire().await.unwrap().forget();
                    answer(&query, &name, respond);
                });
            }
            _ => answer(&query, &name, respond),
        }
    }
}

fn answer(query: &Message, name: &str, mut respond: SendResponse<Bytes>) {
    let here = if name.starts_with("here") { "127.0.0.1" } else { "192.0.2.7" };
    let fine = addresses(query, &[here], 60).remove(0);
    let (status, media, body) = match name.split('.').next().unwrap() {
        "busy" => (503, MEDIA_TYPE, fine),
        "html" => (200, "text/html", fine),
        "long" => (200, MEDIA_TYPE, vec![0; 70_000]),
        "other" => (200, MEDIA_TYPE, [&[1, 1], &fine[2..]].concat()),
        _ => (200, MEDIA_TYPE, fine),
    };
    let mut response = Response::builder().status(status).header("content-type", media);
    if name.starts_with("old") {
        response = response.header("age", "50");
    }
    let mut body_to = respond.send_response(response.body(()).unwrap(), false).unwrap();
    body_to.send_data(body.into(), true).unwrap();
}

#[test]
fn questions_share_one_connection_and_say_no_more_than_they_must() {
    let folder = tempfile::tempdir().unwrap();
    let server = HttpsServer::start(folder.path(), b"h2");
    let ca = server.authorities.clone();
    let (relay, at) = relay(server.setting("dns.example"), |dns| dns.authorities = Some(ca));
    for name in ["a.example.", "b.example.", "c.example."] {
        assert_eq!(found(&ask(at, name, RecordType::A)), ["192.0.2.7"]);
    }
    // the time in caches counts
    let old = ask(at, "old.example.", RecordType::A);
    assert!(old.answers[0].ttl <= 10, "{old}");
    assert_eq!((server.connections.load(Relaxed), dns(&relay).servers[0].answered), (1, 4));
    for (head, body) in server.seen.lock().unwrap().iter() {
        assert_eq!((head.method().as_str(), head.uri().path()), ("POST", "/dns-query"));
        assert_eq!(head.uri().host(), Some("dns.example"));
        assert_eq!(head.headers()["content-type"], MEDIA_TYPE);
        assert_eq!((body.len() % 128, &body[..2]), (0, &[0, 0][..]), "padded, identifier 0");
    }
}

#[test]
fn a_response_that_is_no_message_is_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let server = HttpsServer::start(folder.path(), b"h2");
    let ca = server.authorities.clone();
    let (relay, at) = relay(server.setting("dns.example"), |dns| dns.authorities = Some(ca));
    for (name, why) in [
        ("busy.example.", "HTTP status 503"),
        ("html.example.", "text/html"),
        ("long.example.", "more than 65,535 bytes"),
        ("other.example.", "another identifier"),
    ] {
        assert_eq!(code(&ask(at, name, RecordType::A)), ResponseCode::ServFail, "{name}");
        let error = dns(&relay).servers[0].last_error.clone().unwrap();
        assert!(error.contains(why), "{name}: {error}");
    }
    // asked once each, on the connection that is still there
    let asked = server.seen.lock().unwrap().len();
    assert_eq!((asked, server.connections.load(Relaxed), dns(&relay).lies), (4, 1, 1));
    assert_eq!(found(&ask(at, "a.example.", RecordType::A)), ["192.0.2.7"]);
}

#[test]
fn a_connection_that_breaks_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = HttpsServer::start(folder.path(), b"h2");
    let ca = server.authorities.clone();
    let (_relay, at) = relay(server.setting("dns.example"), |dns| dns.authorities = Some(ca));
    assert_eq!(found(&ask(at, "a.example.", RecordType::A)), ["192.0.2.7"]);
    assert_eq!(found(&ask(at, "gone.example.", RecordType::A)), ["192.0.2.7"]);
    assert_eq!((server.seen.lock().unwrap().len(), server.connections.load(Relaxed)), (3, 2));
}

#[test]
fn a_server_must_have_its_name_and_speak_http_2() {
    let folder = tempfile::tempdir().unwrap();
    for (name, protocol, why) in [
        ("other.example", &b"h2"[..], "certificate"),
        ("dns.example", b"", "does not speak HTTP/2"),
    ] {
        let server = HttpsServer::start(folder.path(), protocol);
        let ca = server.authorities.clone();
        let (relay, at) = relay(server.setting(name), |dns| dns.authorities = Some(ca));
        assert_eq!(code(&ask(at, "a.example.", RecordType::A)), ResponseCode::ServFail);
        let error = dns(&relay).servers[0].last_error.clone().unwrap();
        assert!(error.contains(why), "{error}");
        assert!(server.seen.lock().unwrap().is_empty());
    }
}

#[test]
fn destinations_in_a_slow_zone_of_one_client_take_no_name_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let server = HttpsServer::start(folder.path(), b"h2");
    let ca = server.authorities.clone();
    let (relay, _) = relay(server.setting("dns.example"), |dns| {
        dns.authorities = Some(ca);
        dns.prefer = Family::Ipv4Only;
    });
    let listener = std::net::TcpListener::bind(loopback(0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = |from: [u8; 4], name: String| {
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        client.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        client.connect(&relay.address.into()).unwrap();
        let mut client = std::net::TcpStream::from(client);
        write!(client, "CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n").unwrap();
        client
    };
    let mut other = connect([127, 0, 0, 2], "here.held.example".to_owned());
    wait_for("its question", || dns(&relay).asked == 1);
    let _all: Vec<_> = (0..600)
        .map(|n| {
            let client = connect([127, 0, 0, 1], format!("n{n}.slow.example"));
            // none is lost in a queue of the kernel
            if n % 50 == 49 {
                wait_for("the questions before", || dns(&relay).asked > n);
            }
            client
        })
        .collect();
    server.gate.add_permits(1);
    let mut answer = [0; 12];
    other.read_exact(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 200");
}
