//! The last bytes of sessions.

use super::*;
use crate::transfer::tls::testing::configs;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::ServerName;
use std::task::Waker;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Bytes of the client's receive buffer.
const RECEIVES: u32 = 256 * 1024;

/// A session, and its client.
async fn pair() -> (Arc<TlsSession>, TlsStream<TcpStream>) {
    let (server, client) = configs([default_provider(), default_provider()]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // one that does not grow
    let far = TcpSocket::new_v4().unwrap();
    far.set_recv_buffer_size(RECEIVES).unwrap();
    let far = far.connect(listener.local_addr().unwrap()).await.unwrap();
    let near = End::from(listener.accept().await.unwrap().0);
    let name = ServerName::try_from("relay.test").unwrap();
    let connector = TlsConnector::from(Arc::new(client));
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let accepting = acceptor.accept(TlsTransport::new(near, Vec::new()));
    let (far, near) = tokio::join!(connector.connect(name, far), accepting);
    let (transport, tls) = near.unwrap().into_inner();
    (Arc::new(TlsSession::new(transport, tls, None, None)), far.unwrap())
}

/// Writes until the kernel has found room for no more.
async fn fill(session: &TlsSession) {
    let pause = Duration::from_millis(100);
    while tokio::time::timeout(pause, session.carrier.writable()).await.is_ok() {
        while session.try_write(&[7; 4_096]).is_ok() {}
    }
}

/// Reads to the end, which is announced.
async fn ends(far: &mut TlsStream<TcpStream>) {
    let mut came = Vec::new();
    let read = far.read_to_end(&mut came);
    let read = tokio::time::timeout(DRAIN_WITHOUT_PROGRESS, read).await;
    assert!(matches!(read, Ok(Ok(_))), "{read:?}");
}

/// So much time passes, and nothing comes meanwhile.
async fn passes(time: Duration) {
    tokio::time::pause();
    tokio::time::sleep(time).await;
    tokio::time::resume();
}

/// As TCP needs them after some outage.
#[tokio::test]
async fn the_end_comes_after_long_standstills_while_somebody_waits() {
    let (session, mut far) = pair().await;
    fill(&session).await;
    session.finish();
    passes(6 * DRAIN_WITHOUT_PROGRESS).await;
    ends(&mut far).await;
}

#[tokio::test]
async fn the_end_comes_to_a_reader_that_is_slow() {
    let (session, mut far) = pair().await;
    fill(&session).await;
    session.finish();
    drop(session);
    // its kernel tells of so much room, and the relay's takes more once a third of some megabytes has gone
    let mut some = vec![0; RECEIVES as usize];
    for _ in 0..4 {
        far.read_exact(&mut some).await.unwrap();
        passes(DRAIN_WITHOUT_PROGRESS * 2 / 3).await;
    }
    ends(&mut far).await;
}

#[tokio::test]
async fn all_tasks_that_send_the_last_of_a_session_end_soon() {
    let (session, mut far) = pair().await;
    fill(&session).await;
    session.finish();
    tokio::task::yield_now().await;
    assert_eq!(Arc::strong_count(&session), 2, "a task waits to send the rest");
    // so do a second one, and a pump
    let mut came = Vec::new();
    let ended = async {
        let pump = session.poll_flush(&mut Context::from_waker(Waker::noop()));
        assert!(pump.is_pending());
        let (_, read) = tokio::join!(session.flushed(), far.read_to_end(&mut came));
        read.unwrap();
        while Arc::strong_count(&session) > 1 {
            tokio::task::yield_now().await;
        }
    };
    let ended = tokio::time::timeout(DRAIN_WITHOUT_PROGRESS / 2, ended).await;
    assert!(ended.is_ok(), "one sleeps");
}
