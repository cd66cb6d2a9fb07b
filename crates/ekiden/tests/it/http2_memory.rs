//! What clients of HTTP/2 make the real program hold, before and after log-in: no more than the budget and 64 MiB.

use crate::daemons::daemon;
use crate::leaks::peak;
use ekiden_testkit::{Certificate, Daemon, wait_for};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

type Client = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

/// A relay with little memory, and a client's TLS for it.
struct Small {
    daemon: Daemon,
    config: Arc<rustls::ClientConfig>,
    begun: u64,
    budget: u64,
    _folder: tempfile::TempDir,
}

impl Small {
    fn new(mib: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let shown = Certificate::self_signed(folder.path(), "relay", &["localhost"]);
        let daemon = daemon(&format!(
            "[access]\nallow_destinations = [\"127.0.0.0/8\"]\n[budgets]\nsessions = \"{mib} MiB\"\n\
            [tls]\ncertificate = {:?}\nkey = {:?}\n",
            shown.certificate, shown.key
        ));
        let mut roots = rustls::RootCertStore::empty();
        roots.add(shown.der.into()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let begun = peak(&daemon);
        Self { daemon, config: Arc::new(config), begun, budget: mib << 20, _folder: folder }
    }

    fn client(&self) -> Client {
        let name = "localhost".try_into().unwrap();
        let tls = rustls::ClientConnection::new(Arc::clone(&self.config), name).unwrap();
        let stream = TcpStream::connect(self.daemon.address).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        rustls::StreamOwned::new(tls, stream)
    }

    /// So many clients that send this and read nothing. The relay reads no more than it has memory for, and may close them.
    fn crowd(&self, count: usize, bytes: &[u8]) -> Vec<Client> {
        let send = |_| {
            let mut client = self.client();
            let _ = client.write_all(bytes);
            client
        };
        (0..count).map(send).collect()
    }

    fn held_at_most(&self) -> u64 {
        let status = self.daemon.status();
        let budgets = status["budgets"].as_array().unwrap();
        let sessions = budgets.iter().find(|budget| budget["name"] == "sessions").unwrap();
        sessions["peak"].as_u64().unwrap()
    }

    fn waits_until_half_is_held(&self) {
        wait_for("half of the memory is held", || self.held_at_most() > self.budget / 2);
    }

    fn stays_small(&self, what: &str) {
        let grown = peak(&self.daemon) - self.begun;
        println!("{what}: {grown} bytes");
        assert!(grown <= self.budget + (64 << 20), "{what}: {grown} bytes");
    }
}

/// A frame (RFC 9113 §4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Field lines that no table keeps (RFC 7541 §6.2.2).
fn fields(list: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    list.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

fn head_to(authority: &str) -> Vec<u8> {
    fields(&[(":method", "GET"), (":scheme", "http"), (":authority", authority), (":path", "/")])
}

/// As many short fields as a head may have. The library keeps 0.3 MB for such a head, which is 10 kB on the wire.
fn large_head() -> Vec<u8> {
    let many = (0..1_700).flat_map(|nth| fields(&[(&format!("a{nth:x}"), "")]));
    head_to("a.example").into_iter().chain(many).collect()
}

/// What a client begins with, whose streams may receive nothing at first.
fn preface() -> Vec<u8> {
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])].concat()
}

/// That, and so many requests of this head.
fn requests(count: u32, head: &[u8]) -> Vec<u8> {
    let one = |nth| frame(HEADERS, END_STREAM | END_HEADERS, 1 + 2 * nth, head);
    [preface(), (0..count).flat_map(one).collect()].concat()
}

fn grant(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

#[test]
fn whole_heads_stay_within_the_budget_and_64_mib() {
    let small = Small::new(16);
    let head = large_head();
    let bytes = requests(100, &head);
    let clients = small.crowd(12, &bytes);
    small.waits_until_half_is_held();
    small.stays_small("1,200 heads of 1,700 fields");
    drop(clients);
}

#[test]
fn unfinished_heads_stay_within_the_budget_and_64_mib() {
    let small = Small::new(48);
    let mut bytes = [preface(), frame(HEADERS, END_STREAM, 1, &large_head())].concat();
    // a value of 90,000 bytes, as far as the library takes more frames
    bytes.extend(frame(CONTINUATION, 0, 1, &[0, 1, b'x', 0x7f, 0x91, 0xbe, 5]));
    bytes.extend((0..4).flat_map(|_| frame(CONTINUATION, 0, 1, &[b'x'; 16_000])));
    let clients = small.crowd(600, &bytes);
    small.waits_until_half_is_held();
    small.stays_small("600 heads of 1,700 fields that go on");
    drop(clients);
}

#[test]
fn tables_of_fields_stay_within_the_budget_and_64_mib() {
    let small = Small::new(16);
    // `:path: /` goes to the table, and with it what it was read from; `connection` makes the head malformed
    let filler = [&[0, 1, b'x', 0x7f, 0xc1, 0x3d][..], &[b'x'; 8_000]].concat();
    let head = [&[0x44, 1, b'/'][..], &fields(&[("connection", "x")]), &filler].concat();
    let bytes = requests(107, &head);
    let clients = small.crowd(120, &bytes);
    small.waits_until_half_is_held();
    small.stays_small("120 tables of 107 paths");
    drop(clients);
}

/// A server that sends without end.
fn endless_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                let mut sent = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
                while sent.is_ok() {
                    sent = stream.write_all(&[b'x'; 16_384]);
                }
            });
        }
    });
    address
}

#[test]
fn windows_of_a_byte_stay_within_the_budget_and_64_mib() {
    let small = Small::new(16);
    let head = head_to(&endless_server().to_string());
    let streams = || (0..100).map(|nth| 1 + 2 * nth);
    let mut bytes = [preface(), grant(0, (1 << 31) - 65_536)].concat();
    bytes.extend(streams().flat_map(|of| frame(HEADERS, END_STREAM | END_HEADERS, of, &head)));
    let mut client = small.client();
    client.write_all(&bytes).unwrap();
    // the answers wait; one of them fills the way to the client
    wait_for("the answers have begun", || small.held_at_most() > small.budget / 4);
    client.write_all(&grant(1, 1 << 30)).unwrap();
    let each: Vec<u8> = streams().skip(1).flat_map(|of| grant(of, 1)).collect();
    for _ in 0..20_000 {
        if client.write_all(&each).is_err() {
            break;
        }
        // those that come together are one
        std::thread::sleep(Duration::from_micros(200));
    }
    small.stays_small("two million windows of a byte");
}
