//! Handshakes of clients, in turn. A key agreement and a signature take a third of a millisecond, as long as ten requests.
//! A burst of them would occupy every thread, and the runtime looks for what has arrived only between some sixty tasks.
//! So a processor answers one of them, and looks at all else in between: while all have much to do, some hundred a second.

use crate::transfer::tls::TlsTransport;
use rustls::ServerConfig;
use rustls::server::Acceptor;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::thread::available_parallelism;
use tokio::sync::Semaphore;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

static TURNS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(available_parallelism().map_or(1, usize::from)));

/// The handshake of a client. Nobody waits for one whose messages are still under way.
pub(super) async fn accept(
    config: Arc<ServerConfig>,
    client: TlsTransport,
) -> io::Result<TlsStream<TlsTransport>> {
    in_turn(&TURNS, config, client).await
}

async fn in_turn(
    turns: &Semaphore,
    config: Arc<ServerConfig>,
    client: TlsTransport,
) -> io::Result<TlsStream<TlsTransport>> {
    // this reads and computes nothing
    let hello = LazyConfigAcceptor::new(Acceptor::default(), client).await?;
    let turn = turns.acquire().await.map_err(io::Error::other)?;
    // woken after the runtime has looked for what has arrived
    tokio::task::yield_now().await;
    // the key agreement and the signature are made here
    let mut answering = pin!(hello.into_stream(config));
    let first = poll_fn(|context| Poll::Ready(answering.as_mut().poll(context))).await;
    drop(turn);
    match first {
        Poll::Ready(done) => done,
        // little is left to compute, and who had a turn does not wait for another
        Poll::Pending => answering.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::crypto::ring::default_provider;
    use rustls::pki_types::ServerName;
    use rustls::server::{ClientHello, ResolvesServerCert};
    use rustls::sign::CertifiedKey;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use std::sync::atomic::AtomicU32;
    use std::sync::atomic::Ordering::SeqCst;
    use tokio::net::{TcpListener, TcpStream};

    /// Counts the handshakes that begin to compute, and has no key for any.
    #[derive(Debug, Default)]
    struct Asked(AtomicU32);

    impl ResolvesServerCert for Asked {
        fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            self.0.fetch_add(1, SeqCst);
            None
        }
    }

    fn hello() -> Vec<u8> {
        let config = ClientConfig::builder_with_provider(default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let name = ServerName::try_from("relay.test").unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    #[tokio::test]
    async fn a_handshake_computes_in_its_turn_alone() {
        let asked = Arc::new(Asked::default());
        let config = ServerConfig::builder_with_provider(default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&asked) as Arc<dyn ResolvesServerCert>);
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let transport = |early| TlsTransport::new(server.into(), early);
        let turns = Semaphore::new(1);
        let mine = turns.acquire().await.unwrap();
        let mut waits = pin!(in_turn(&turns, config, transport(hello())));
        for _ in 0..3 {
            let now = poll_fn(|context| Poll::Ready(waits.as_mut().poll(context))).await;
            assert!(now.is_pending());
            tokio::task::yield_now().await;
        }
        assert_eq!(asked.0.load(SeqCst), 0);
        drop(mine);
        assert!(waits.await.is_err(), "there is no key");
        assert_eq!((asked.0.load(SeqCst), turns.available_permits()), (1, 1));
    }
}
