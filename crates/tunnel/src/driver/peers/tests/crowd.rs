//! Many that come over TCP and say nothing.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Keeps so many connections of one address, which say nothing; `open` counts those that are.
fn flood(
    from: &str,
    to: SocketAddr,
    open: &Arc<AtomicUsize>,
    tasks: &mut tokio::task::JoinSet<()>,
) {
    let from: SocketAddr = from.parse().unwrap();
    for _ in 0..200 {
        let open = Arc::clone(open);
        tasks.spawn(async move {
            loop {
                let socket = tokio::net::TcpSocket::new_v4().unwrap();
                socket.bind(from).unwrap();
                if let Ok(mut stream) = socket.connect(to).await {
                    open.fetch_add(1, Ordering::Relaxed);
                    let _ = stream.read(&mut [0; 1]).await;
                    open.fetch_sub(1, Ordering::Relaxed);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
    }
}

/// TCP alone leads to the relay, and one address takes all connections that it can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_joins_over_tcp_while_one_address_floods() {
    let pair = pair(mbit(20));
    pair.near.close().await;
    let (open, mut tasks) = (Arc::new(AtomicUsize::new(0)), tokio::task::JoinSet::new());
    let to = pair.far.addresses()[0];
    flood("127.0.0.2:0", to, &open, &mut tasks);
    // longer than a burst takes
    tokio::time::sleep(Duration::from_secs(2)).await;
    let settings = Settings { carrier: TransportMode::Tcp, ..pair.near.inner.settings.clone() };
    let near = Peers::start(settings, mpsc::channel(1).0).unwrap();
    let joined = async {
        while !near.is_up("far") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // less than a handshake of TLS may take, after which others would leave places
    let joined = tokio::time::timeout(Duration::from_secs(6), joined).await;
    assert!(joined.is_ok(), "{:?}", near.status());
    assert_eq!(near.status()[0].over_tcp, Some(to));
    // a quarter of the places, and a few that are closed as they come
    let few = async {
        while open.load(Ordering::Relaxed) > 40 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(6), few).await.is_ok());
}

/// A connection of TLS to the relay, as a stranger makes it.
async fn stranger(pair: &Pair) -> tokio_rustls::client::TlsStream<TcpStream> {
    let far = pair.far.inner.credentials.fingerprint();
    let tls = Credentials::generate().unwrap().carrier_client(far).unwrap();
    let to = pair.far.addresses()[0];
    let stream = TcpStream::connect(to).await.unwrap();
    tokio_rustls::TlsConnector::from(tls).connect(to.ip().into(), stream).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_carrier_of_a_stranger_ends_after_some_initials() {
    let pair = pair(mbit(20));
    let mut stream = stranger(&pair).await;
    let initial = [0, 5, 0xc0, 0, 0, 0, 1];
    stream.write_all(&initial.repeat(64)).await.unwrap();
    // more of others may come
    stream.write_all(&[0, 1, 0x40].repeat(500)).await.unwrap();
    let mut room = [0; 1];
    let ended = tokio::time::timeout(Duration::from_secs(2), stream.read(&mut room)).await;
    assert!(ended.is_err(), "{ended:?}");
    stream.write_all(&initial).await.unwrap();
    stream.flush().await.unwrap();
    // long before it would have to be claimed
    let ended = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut room)).await;
    assert!(!matches!(ended.unwrap(), Ok(1..)));
}

/// In short datagrams, so that more come than a stranger may send.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_carrier_with_a_tunnel_carries_all_that_comes() {
    let limits = Limits { datagram: 1_200, ..Limits::default() };
    let mut pair = pair_within(limits, "127.0.0.1:0", mbit(400), |at| at);
    pair.near.close().await;
    let settings = Settings { carrier: TransportMode::Tcp, ..pair.near.inner.settings.clone() };
    pair.near = Peers::start(settings, mpsc::channel(1).0).unwrap();
    let (mut client, mut server) = flow(&mut pair).await;
    let over = pair.far.status()[0].over_tcp;
    assert!(over.is_some());
    let sent = tokio::spawn(async move {
        client.write_all(&vec![7; 8_000_000]).await.unwrap();
        client.shutdown().await.unwrap();
        client
    });
    let mut received = Vec::new();
    server.read_to_end(&mut received).await.unwrap();
    assert_eq!(received.len(), 8_000_000);
    assert!(sent.await.is_ok());
    assert_eq!(pair.far.status()[0].over_tcp, over, "the same connection");
}
