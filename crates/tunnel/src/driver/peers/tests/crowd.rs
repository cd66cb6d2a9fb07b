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
