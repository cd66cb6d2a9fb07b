//! Upstream proxies within TLS: this relay's own, HAProxy with squid behind it, and ones that go wrong.
use crate::common::certificate::certify;
use crate::common::wire::{Origin, PATIENCE, Relay, Wire, get, ok};
use ekiden_model::units::Span;
use ekiden_proxy::observe::status::{LegStatus, UpstreamStatus};
use ekiden_proxy::settings::{Route, Settings, Tls, Upstream, UpstreamProtocol, UpstreamTls};
use ekiden_testkit::Authority;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tempfile::TempDir;

/// Valid whenever this test runs.
pub(crate) const NOW: [i32; 2] = [2000, 4000];

pub(crate) struct Place {
    folder: TempDir,
    authority: Authority,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(folder.path(), "ca");
        Self { folder, authority }
    }

    fn certify(&self, subject: &str, years: [i32; 2]) -> Tls {
        certify(&self.authority, self.folder.path(), subject, years)
    }

    /// A relay with TLS whose certificate is for this name.
    pub(crate) fn far(&self, subject: &str, years: [i32; 2]) -> Relay {
        let tls = self.certify(subject, years);
        Relay::with(|settings| {
            settings.tls = tls;
            // no two have one name: that would be a loop
            static NTH: AtomicUsize = AtomicUsize::new(0);
            settings.name = format!("far-{}", NTH.fetch_add(1, Relaxed));
        })
    }

    pub(crate) fn trust(&self) -> UpstreamTls {
        UpstreamTls { authorities: Some(self.authority.file.clone()), fingerprint: None }
    }
}

fn upstream(settings: &mut Settings, name: &str, port: u16, tls: UpstreamTls) {
    let protocol = match tls == UpstreamTls::default() {
        true => UpstreamProtocol::Http,
        false => UpstreamProtocol::Https,
    };
    let upstream = Upstream { tls, ..Upstream::new(protocol, "localhost", port) };
    settings.upstreams.insert(name.to_owned(), upstream);
    settings.timeouts.handshake = Span::from_millis(500);
}

fn route(settings: &mut Settings, chains: &[&[&str]]) {
    let chain = |hops: &&[&str]| hops.iter().map(|hop| (*hop).to_owned()).collect();
    settings.routes = vec![Route {
        to: Vec::new(),
        through: chains.iter().map(chain).collect(),
        leg: "direct".to_owned(),
        client_leg: "client".to_owned(),
    }];
}

fn through(port: u16, tls: UpstreamTls) -> Relay {
    through_with(port, tls, |_| {})
}

pub(crate) fn through_with(port: u16, tls: UpstreamTls, edit: impl FnOnce(&mut Settings)) -> Relay {
    Relay::with(|settings| {
        upstream(settings, "far", port, tls);
        route(settings, &[&["far"]]);
        edit(settings);
    })
}

fn connect(relay: &Relay, origin: &Origin) -> Wire {
    let mut client = relay.client();
    let name = &origin.name;
    client.send(format!("CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n\r\n"));
    client
}

fn upstream_leg(relay: &Relay) -> LegStatus {
    let connection = relay.status().connections.remove(0);
    connection.legs.into_iter().find(|leg| leg.side == "upstream").unwrap()
}

fn status(relay: &Relay) -> UpstreamStatus {
    relay.status().upstreams.remove(0)
}

#[test]
fn tunnels_and_requests_go_through_tls_and_sessions_are_resumed() {
    let (place, origin) = (Place::new(), Origin::new());
    let far = place.far("localhost", NOW);
    let relay = through(far.address.port(), place.trust());
    let mut client = connect(&relay, &origin);
    assert!(client.head().starts_with("HTTP/1.1 200"));
    let mut server = origin.accept();
    client.send("up");
    assert_eq!(server.exactly(2), b"up");
    let leg = upstream_leg(&relay);
    assert_eq!(leg.peer, Some(far.address), "the figures are those of the path");
    assert_eq!(leg.tls.as_deref(), Some("TLS 1.3, TLS13_AES_256_GCM_SHA384"));
    assert_eq!(status(&relay).protocol, UpstreamProtocol::Https);
    // one direction ends, the other goes on
    client.finish();
    assert_eq!(server.until_end(), "");
    server.send("down");
    server.finish();
    assert_eq!(client.until_end(), "down");
    drop((client, server));
    relay.settles();

    // two requests on one connection to the proxy, which is told the whole URL
    let mut client = relay.client();
    let mut server = None;
    for nth in ["1", "2"] {
        client.send(get(&origin, "/x", ""));
        let server = server.get_or_insert_with(|| origin.accept());
        let head = server.head();
        assert!(head.starts_with("GET /x HTTP/1.1") && head.contains("far"), "{head}");
        let tls = upstream_leg(&relay).tls.unwrap_or_default();
        assert!(tls.ends_with("SHA384, resumed"), "{tls}");
        server.send(ok(nth));
        client.until(&format!("\r\n\r\n{nth}"));
    }
    assert_eq!(far.status().totals.accepted, 2, "the second is used twice");
    drop((client, server));
}

#[test]
fn a_failed_handshake_is_said_in_words_and_another_way_is_taken() {
    let (place, origin) = (Place::new(), Origin::new());
    let other = Place::new();
    let pinned = UpstreamTls { authorities: None, fingerprint: Some([7; 32]) };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let plain = Relay::new();
    let relays = [
        (
            place.far("other.example", NOW),
            place.trust(),
            "for other.example, and not for localhost",
        ),
        (place.far("localhost", [2000, 2001]), place.trust(), "expired on 2001-01-01"),
        (place.far("localhost", [3000, 3001]), place.trust(), "set the clock if that is wrong"),
        (place.far("localhost", NOW), other.trust(), "if it is yours, set `ca`; to trust exactly"),
        (place.far("localhost", NOW), pinned, "than the pinned one"),
    ];
    let ports = relays.iter().map(|(relay, trust, why)| (relay.address.port(), trust, *why));
    let (trust, silent) = (place.trust(), silent.local_addr().unwrap().port());
    let others = [
        (plain.address.port(), &trust, "does not speak TLS on that port; use `http://`"),
        (silent, &trust, "did not finish the TLS handshake within 500 ms"),
        (closing(), &trust, "closed the connection during the TLS handshake"),
    ];
    for (port, trust, why) in ports.chain(others) {
        let relay = through(port, trust.clone());
        let mut client = connect(&relay, &origin);
        let answer = client.until_end();
        assert!(answer.starts_with("HTTP/1.1 50") && answer.contains(why), "{answer}");
        let seen = status(&relay);
        assert!(!seen.available && seen.last_error.unwrap().contains(why), "{why}");
        drop(client);
        relay.settles();

        let relay = Relay::with(|settings| {
            upstream(settings, "far", port, trust.clone());
            route(settings, &[&["far"], &[]]);
        });
        let mut client = connect(&relay, &origin);
        assert!(client.head().starts_with("HTTP/1.1 200"), "{why}");
    }
}

/// A port whose connections are closed when something was said.
fn closing() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut bytes = [0; 4096];
            // all of it, so that the end is no reset
            let _ = (&stream).read(&mut bytes);
        }
    });
    port
}

#[test]
fn tls_goes_through_tls_in_a_chain() {
    let (place, origin) = (Place::new(), Origin::new());
    let (near, far) = (place.far("localhost", NOW), place.far("localhost", NOW));
    let relay = Relay::with(|settings| {
        upstream(settings, "near", near.address.port(), place.trust());
        upstream(settings, "far", far.address.port(), place.trust());
        route(settings, &[&["near", "far"]]);
    });
    let mut client = connect(&relay, &origin);
    assert!(client.head().starts_with("HTTP/1.1 200"));
    let mut server = origin.accept();
    client.send("up");
    assert_eq!(server.exactly(2), b"up");
    server.send("down");
    assert_eq!(client.exactly(4), b"down");
    let leg = upstream_leg(&relay);
    assert!(leg.peer == Some(near.address) && leg.tls.is_some(), "{leg:?}");
    drop((client, server));
    [&relay, &near, &far].into_iter().for_each(Relay::settles);
}

/// A server that goes on after TLS's handshake as it is told.
fn scripted(tls: &Tls, play: fn(&mut rustls::ServerConnection, &mut TcpStream)) -> u16 {
    use rustls::pki_types::pem::PemObject as _;
    let read = |file: &Option<PathBuf>| std::fs::read(file.as_ref().unwrap()).unwrap();
    let chain = rustls::pki_types::CertificateDer::from_pem_slice(&read(&tls.certificate)).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(&read(&tls.key)).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .unwrap();
    let config = std::sync::Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut tls = rustls::ServerConnection::new(config.clone()).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut both = rustls::Stream::new(&mut tls, &mut stream);
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                both.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            both.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf").unwrap();
            play(&mut tls, &mut stream);
        }
    });
    port
}

#[test]
fn a_cut_is_no_end_of_stream() {
    let (place, origin) = (Place::new(), Origin::new());
    let tls = place.certify("localhost", NOW);
    // TCP's end without TLS's
    let cut = scripted(&tls, |_, stream| stream.shutdown(std::net::Shutdown::Write).unwrap());
    let relay = through(cut, place.trust());
    let mut client = connect(&relay, &origin);
    client.until("half");
    assert_eq!(client.stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    drop(client);
    relay.settles();

    let ended = scripted(&tls, |tls, stream| {
        tls.send_close_notify();
        tls.write_tls(stream).unwrap();
    });
    let relay = through(ended, place.trust());
    let mut client = connect(&relay, &origin);
    client.until("half");
    assert_eq!(client.stream.read(&mut [0]).unwrap(), 0);
    drop(client);
    relay.settles();
}

#[test]
fn a_proxy_that_never_ends_is_left_when_its_client_is_gone() {
    let (place, origin) = (Place::new(), Origin::new());
    let tls = place.certify("localhost", NOW);
    let port = scripted(&tls, |_, stream| {
        // takes everything, and closes when the other side is gone
        let mut bytes = [0; 4096];
        while stream.read(&mut bytes).is_ok_and(|n| n > 0) {}
        std::thread::sleep(PATIENCE);
    });
    let relay = Relay::with(|settings| {
        upstream(settings, "far", port, place.trust());
        route(settings, &[&["far"]]);
        for leg in settings.legs.values_mut() {
            leg.half_closed_timeout = Span::from_millis(200);
        }
    });
    let mut client = connect(&relay, &origin);
    client.until("half");
    client.finish();
    assert_eq!(client.until_end(), "");
    let status = || relay.status();
    crate::common::wait_until(
        || status().budgets.iter().all(|budget| budget.used == 0),
        || format!("left behind: {:?}", status().budgets),
    );
}
