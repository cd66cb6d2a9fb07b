//! Handshakes of clients, in turn. A key agreement and a signature take a third of a millisecond, as long as ten requests.
//! A burst of them would occupy every thread, and the runtime looks for what has arrived only between some sixty tasks.
//! So a processor answers one of them, and looks at all else in between: while all have much to do, some hundred a second.
//! While memory is short, addresses with many places get half of the turns at most: a processor stays free of them.

use crate::observe::waiting::WaitCount;
use crate::resources::AdmissionPermit;
use crate::transfer::tls::TlsTransport;
use rustls::ServerConfig;
use rustls::server::Acceptor;
use std::future::poll_fn;
use std::io;
use std::mem::replace;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::thread::available_parallelism;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::yield_now;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

static TURNS: LazyLock<Turns> =
    LazyLock::new(|| Turns::new(available_parallelism().map_or(1, usize::from)));

/// Handshakes that may compute at a time: of all clients, and of large addresses while memory is short.
struct Turns {
    all: Semaphore,
    large: Semaphore,
    waiting: WaitCount,
}

/// Handshakes that wait for their turn now.
pub(crate) fn handshakes_waiting() -> u64 {
    TURNS.waiting.now()
}

/// Its drop lets the next one compute.
type Turn<'a> = (SemaphorePermit<'a>, Option<SemaphorePermit<'a>>);

impl Turns {
    const fn new(processors: usize) -> Self {
        let half = processors.div_ceil(2);
        Self {
            all: Semaphore::const_new(processors),
            large: Semaphore::const_new(half),
            waiting: WaitCount::new(),
        }
    }

    async fn take(&self, is_large: impl Fn() -> bool) -> io::Result<Turn<'_>> {
        let _waits = self.waiting.enter();
        loop {
            let large = match is_large() {
                true => Some(self.large.acquire().await.map_err(io::Error::other)?),
                false => None,
            };
            let turn = self.all.acquire().await.map_err(io::Error::other)?;
            // memory became short meanwhile: those who came before that do not delay newcomers either
            if large.is_some() || !is_large() {
                // woken after the runtime has looked for what has arrived
                yield_now().await;
                return Ok((turn, large));
            }
        }
    }
}

/// The handshake of a client, or of the authority that asks for a challenge. Nobody waits for one whose messages are still under way.
pub(super) async fn accept(
    config: Arc<ServerConfig>,
    client: TlsTransport,
    permit: &AdmissionPermit,
) -> io::Result<TlsStream<TlsTransport>> {
    in_turn(&TURNS, config, client, || permit.is_large_while_short()).await
}

async fn in_turn(
    turns: &Turns,
    config: Arc<ServerConfig>,
    client: TlsTransport,
    is_large: impl Fn() -> bool,
) -> io::Result<TlsStream<TlsTransport>> {
    // this reads and computes nothing
    let hello = LazyConfigAcceptor::new(Acceptor::default(), client).await?;
    let mut turn = turns.take(&is_large).await?;
    // the key agreement and the signature are made here, or after the client's second hello (RFC 8446 §4.1.4)
    let mut answering = pin!(hello.into_stream(config));
    loop {
        let answered = poll_fn(|context| Poll::Ready(answering.as_mut().poll(context))).await;
        drop(turn);
        if let Poll::Ready(done) = answered {
            return done;
        }
        woken().await;
        turn = turns.take(&is_large).await?;
    }
}

/// Until what was polled last wakes this task.
async fn woken() {
    let mut waited = false;
    poll_fn(|_| if replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::end::End;
    use crate::transfer::tls::testing::configs;
    use rustls::HandshakeKind;
    use rustls::crypto::CryptoProvider;
    use rustls::crypto::ring::default_provider;
    use rustls::crypto::ring::kx_group::{SECP256R1, SECP384R1, X25519};
    use rustls::pki_types::ServerName;
    use rustls::server::{ClientHello, ResolvesServerCert};
    use rustls::sign::CertifiedKey;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};
    use std::pin::Pin;
    use std::sync::atomic::Ordering::SeqCst;
    use std::sync::atomic::{AtomicBool, AtomicU32};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::TlsConnector;

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
        let server = End::from(listener.accept().await.unwrap().0);
        let transport = || TlsTransport::new(server.clone(), hello());
        let turns = Turns::new(2);
        let mine = turns.large.acquire().await.unwrap();
        let mut waits = pin!(in_turn(&turns, Arc::clone(&config), transport(), || true));
        assert!(is_pending(waits.as_mut()).await);
        assert_eq!((asked.0.load(SeqCst), turns.waiting.now()), (0, 1));
        let small = in_turn(&turns, Arc::clone(&config), transport(), || false).await;
        assert!(small.is_err(), "there is no key");
        assert_eq!(asked.0.load(SeqCst), 1, "it waits for no large one");
        let all = turns.all.acquire_many(2).await.unwrap();
        let short = AtomicBool::new(false);
        let mut grows = pin!(in_turn(&turns, config, transport(), || short.load(SeqCst)));
        assert!(is_pending(grows.as_mut()).await);
        short.store(true, SeqCst);
        drop(all);
        assert!(is_pending(grows.as_mut()).await);
        assert_eq!(asked.0.load(SeqCst), 1, "memory became short while it waited");
        drop(mine);
        assert!(waits.await.is_err() && grows.await.is_err());
        let left = [&turns.all, &turns.large].map(Semaphore::available_permits);
        assert_eq!((asked.0.load(SeqCst), left, turns.waiting.now()), (3, [2, 1], 0));
    }

    #[tokio::test]
    async fn a_second_hello_is_answered_in_turn_too() {
        let provider = |groups| CryptoProvider { kx_groups: groups, ..default_provider() };
        // the client's first hello has a share of a group that the server lacks
        let groups = [vec![X25519, SECP256R1], vec![SECP384R1, X25519]];
        let (config, client) = configs(groups.map(provider));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let server = End::from(listener.accept().await.unwrap().0);
        let name = ServerName::try_from("relay.test").unwrap();
        let connecting = TlsConnector::from(Arc::new(client)).connect(name, stream);
        let client = tokio::spawn(connecting);
        let (turns, asked) = (Turns::new(1), AtomicU32::new(0));
        let is_large = || {
            asked.fetch_add(1, SeqCst);
            false
        };
        let transport = TlsTransport::new(server, Vec::new());
        let accepted = in_turn(&turns, Arc::new(config), transport, is_large).await.unwrap();
        let kind = accepted.get_ref().1.handshake_kind();
        assert_eq!(kind, Some(HandshakeKind::FullWithHelloRetryRequest));
        // twice for each flight of the client
        assert!(asked.load(SeqCst) >= 6, "{asked:?}");
        client.await.unwrap().unwrap();
    }

    /// Whether it waits, each time that it is polled.
    async fn is_pending<T>(mut waited: Pin<&mut impl Future<Output = T>>) -> bool {
        for _ in 0..3 {
            if poll_fn(|context| Poll::Ready(waited.as_mut().poll(context).is_ready())).await {
                return false;
            }
            yield_now().await;
        }
        true
    }
}
