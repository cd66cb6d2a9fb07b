//! A stream whose connection is cut off.

use super::*;
use crate::inbound::http::plan::head_limits;
use crate::inbound::tls::begin_stream;
use crate::inbound::tls::h2::serve;
use crate::observe::access_log::AccessLog;
use crate::session::tests::{Fixture, fixture};
use crate::settings::{AccessLog as Setting, Settings};
use crate::transfer::tls::TlsTransport;
use ekiden_model::units;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Keeps a failing test from hanging.
const LONG: Duration = Duration::from_secs(60);

/// A client's connection, whose lines go to `path`.
async fn logging(path: &Path, mut settings: Settings) -> Fixture {
    settings.access.allow_destinations = vec!["127.0.0.0/8".parse().unwrap()];
    let mut outer = fixture("127.0.0.1", None, settings).await;
    outer.session.log = Arc::new(AccessLog::open(&Setting::File(path.to_owned())).unwrap());
    outer
}

/// Who cut the only stream, and the result, once its session is gone.
async fn logged(outer: &Fixture, path: &Path) -> [String; 2] {
    let gone = async {
        while outer.registry.len() > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, gone).await.expect("its session goes on");
    assert!(outer.session.log.pending_lines().wait(LONG));
    let line = fs::read_to_string(path).unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    ["cut_by", "result"].map(|field| line[field].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_stream_within_a_connection_that_was_cut_is_logged_as_the_relay_s_cut() {
    for (evicted, result) in [(false, "cut off"), (true, "closed to make room")] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let outer = logging(&path, Settings::default()).await;
        let session = &outer.session;
        let (inside, entry) = begin_stream(session, None, &Arc::default()).unwrap();
        let inside = End::Pipe(Arc::new(inside));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        let asked = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\nhalf");
        write_all(&inside, asked.as_bytes()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        server.read_exact(&mut [0; 4]).await.unwrap();
        let all = Common::unused();
        let held = session.permit.hold(STREAM).await.unwrap();
        let (tunnel, of) = ((Method::CONNECT, Tunnel::Bytes), (1, Arc::new(all), entry));
        let patience = [Span::from_secs(600); 2];
        let stream = H2Stream::new(inside, tunnel, head_limits(session), patience, held, of);
        let connection = &session.registration.entry;
        connection.evicted.store(evicted, Relaxed);
        connection.end();
        drop(stream);
        let ended = server.read(&mut [0; 1]).await;
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(logged(&outer, &path).await, ["relay", result]);
    }
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_HEADERS: u8 = 4;

/// A frame (RFC 9113 §4.1).
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream][..], payload].concat()
}

#[tokio::test]
async fn a_stream_of_a_connection_without_memory_is_logged_as_the_relay_s_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let mut settings = Settings::default();
    // a head that goes on takes more than all of it
    settings.budgets.sessions = units::Bytes::mib(1);
    settings.budgets.head = units::Bytes::kib(256);
    let mut outer = logging(&path, settings).await;
    let (session, client) = (&outer.session, &mut outer.client);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap().to_string();
    let asking = async {
        let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        let field = |name: &str, value: &str| [vec![0], text(name), text(value)].concat();
        let head = [field(":method", "CONNECT"), field(":authority", &to)].concat();
        let begun = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            frame(SETTINGS, 0, 0, b""),
            frame(HEADERS, END_HEADERS, 1, &head),
            frame(DATA, 0, 1, b"half"),
        ];
        client.write_all(&begun.concat()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        server.read_exact(&mut [0; 4]).await.unwrap();
        // `:method: GET`, and more to come
        client.write_all(&frame(HEADERS, 0, 3, &[0x82])).await.unwrap();
        server
    };
    let transport = TlsTransport::new(session.client.clone(), Vec::new());
    let serving = Box::pin(serve(session, None, transport, Arc::default()));
    let both = async { tokio::join!(serving, asking) };
    let (ended, mut server) = tokio::time::timeout(LONG, both).await.expect("it goes on");
    ended.unwrap();
    let ended = server.read(&mut [0; 1]).await;
    assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(logged(&outer, &path).await, ["relay", "cut off"]);
}
