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

/// Writes until it has happened: packets show the far relay the way that the tunnel goes now.
async fn write_until(client: &mut FlowStream, happened: impl Fn() -> bool) {
    while !happened() {
        client.write_all(&[7]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_that_moves_keeps_its_two_newest_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (at, cut) = tcp_alone(listener.local_addr().unwrap(), false);
    let mut pair = pair_through("127.0.0.1:0", mbit(40), |_| at);
    let door = Arc::new(Mutex::new(Door::new(clock::now(), &Limits::default())));
    let ended = Arc::new(Mutex::new(Vec::<String>::new()));
    let (far, at_door, ends) = (Arc::clone(&pair.far.inner), Arc::clone(&door), Arc::clone(&ended));
    tokio::spawn(async move {
        let acceptor: tokio_rustls::TlsAcceptor = far.credentials.carrier_server().unwrap().into();
        let driver = Arc::clone(&far.listening[0]);
        let inside = FallbackTarget { driver, carried: Arc::clone(&far.carried) };
        while let Ok((stream, from)) = listener.accept().await {
            let place = locked(&at_door).on_attempt(clock::now(), from.ip()).unwrap();
            let (acceptor, inside, ends) = (acceptor.clone(), inside.clone(), Arc::clone(&ends));
            tokio::spawn(async move {
                // it is not looked again whether they are used
                let claim = Duration::from_secs(3_600);
                let inside = (&inside, place);
                let why = tcp_fallback::incoming(&acceptor, stream, from, inside, claim).await;
                locked(&ends).push(why.unwrap_or_else(|error| error).to_string());
            });
        }
    });
    let (mut client, _server) = flow(&mut pair).await;
    write_until(&mut client, || locked(&door).claimed() == 1).await;
    cut.send_replace(true);
    write_until(&mut client, || locked(&door).claimed() == 2).await;
    for gone in [1, 2] {
        cut.send_replace(true);
        write_until(&mut client, || locked(&ended).len() >= gone).await;
    }
    assert_eq!(*locked(&ended), ["its tunnel goes over newer ones"; 2]);
    assert_eq!(locked(&door).claimed(), 2);
}

#[tokio::test]
async fn a_connection_counts_for_the_tunnel_that_goes_over_it_now() {
    let credentials = Credentials::generate().unwrap();
    let peer = credentials.fingerprint();
    let mut core = Endpoint::new(credentials, Limits::default(), false, Instant::now(), None);
    let [one, other] = [1, 2].map(|session| {
        let (to, terms) = (SocketAddr::from(([127, 0, 0, 1], 1)), Terms::new(mbit(1), mbit(1)));
        let (now, secret) = (ekiden_model::units::Time::ZERO, bytes::Bytes::new());
        core.connect(now, to, peer, secret, terms, (session, false)).unwrap()
    });
    let now = clock::now();
    let mut door = Door::new(now, &Limits::default());
    let mut come = |tunnel| {
        let place = door.on_attempt(now, [127, 0, 0, 1].into()).unwrap();
        place.identified(now, tunnel)
    };
    let [first, second] = [one, one].map(&mut come);
    let [mut first, _second] = [first, second].map(|claim| claim.taken_over(other));
    let _third = come(other);
    assert_eq!(door.claimed(), 2);
    first.lost().await;
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
