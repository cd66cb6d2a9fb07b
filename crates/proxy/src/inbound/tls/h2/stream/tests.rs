//! A stream whose connection is cut off.

use super::*;
use crate::inbound::http::plan::head_limits;
use crate::inbound::tls::begin_stream;
use crate::observe::access_log::AccessLog;
use crate::session::tests::fixture;
use crate::settings::{AccessLog as Setting, Settings};
use std::fs;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

/// Keeps a failing test from hanging.
const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_stream_within_a_connection_that_was_cut_is_logged_as_the_relay_s_cut() {
    for (evicted, result) in [(false, "cut off"), (true, "closed to make room")] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let mut settings = Settings::default();
        settings.access.allow_destinations = vec!["127.0.0.0/8".parse().unwrap()];
        let mut outer = fixture("127.0.0.1", None, settings).await;
        outer.session.log = Arc::new(AccessLog::open(&Setting::File(path.clone())).unwrap());
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
        let gone = async {
            while outer.registry.len() > 1 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, gone).await.expect("its session goes on");
        assert!(session.log.pending_lines().wait(LONG));
        let line = fs::read_to_string(&path).unwrap();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        let found = [&line["cut_by"], &line["result"]].map(|field| field.as_str());
        assert_eq!(found, [Some("relay"), Some(result)]);
    }
}
