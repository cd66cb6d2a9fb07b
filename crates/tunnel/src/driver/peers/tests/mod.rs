//! Two relays on loopback.

mod crowd;
mod joins;
mod panics;
mod streams;
mod threads;
mod udp_again;

use super::listening::both;
use super::tcp_places::Door;
use super::*;
use crate::core::Endpoint;
use crate::core::Terms;
use crate::driver::{Ended, FlowStream};
use crate::frame::Carries;
use crate::trust::{Peer, PeerKind, Token, hash};
use ekiden_model::units::Rate;
use sha2::{Digest, Sha256};
use std::net::UdpSocket;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn mbit(n: u64) -> Rate {
    Rate::from_bits_per_second(n * 1_000_000)
}

struct Pair {
    _folder: tempfile::TempDir,
    near: Peers,
    far: Peers,
    incoming: mpsc::Receiver<Incoming>,
    stores: [Store; 2],
}

/// `far` invites, `near` joins.
fn pair(rate: Rate) -> Pair {
    pair_through("127.0.0.1:0", rate, |at| at)
}

/// The same, where `far` listens so and `near` is told another address of it.
fn pair_through(listen: &str, rate: Rate, told: impl FnOnce(SocketAddr) -> SocketAddr) -> Pair {
    pair_within(Limits::default(), listen, rate, told)
}

/// The same, where `near` has these limits.
fn pair_within(
    near: Limits,
    listen: &str,
    rate: Rate,
    told: impl FnOnce(SocketAddr) -> SocketAddr,
) -> Pair {
    let folder = tempfile::tempdir().unwrap();
    let stores = ["near", "far"].map(|name| Store::new(folder.path().join(name)));
    let secret = trust::random().unwrap();
    let terms = Terms::new(rate, rate);
    let kind = PeerKind::Invited { invitation: hash(&secret).into() };
    stores[1].add(Peer { name: "near".to_owned(), kind, terms }).unwrap();
    let fingerprint = stores[1].credentials().unwrap().fingerprint();
    let settings = |nth: usize, listen| Settings {
        store: stores[nth].clone(),
        listen,
        carrier: TransportMode::Auto,
        dscp: [34, 0],
        limits: if nth == 0 { near } else { Limits::default() },
        threads: 4,
    };
    let (sender, incoming) = mpsc::channel(100);
    let far = Peers::start(settings(1, vec![listen.parse().unwrap()]), sender).unwrap();
    let address = told(far.addresses()[0]).to_string();
    let token = Token { address, fingerprint, secret, send: rate, receive: rate, made: None };
    stores[0].add(token.peer("far".to_owned())).unwrap();
    let (sender, _) = mpsc::channel(100);
    let near = Peers::start(settings(0, vec![]), sender).unwrap();
    Pair { _folder: folder, near, far, incoming, stores }
}

fn opening(port: u16) -> Opening {
    Opening::named("example.org", port)
}

const PATIENCE: Span = Span::from_secs(10);

async fn flow(pair: &mut Pair) -> (FlowStream, FlowStream) {
    let flow = pair.near.open("far", opening(80), PATIENCE).await.unwrap();
    let incoming = pair.incoming.recv().await.unwrap();
    assert_eq!((&incoming.opening, incoming.peer.as_str()), (&opening(80), "near"));
    incoming.flow.accept();
    flow.answered().await.unwrap();
    (flow.into_stream(|_, _, _| ()), incoming.flow.into_stream(|_, _, _| ()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_go_through_and_each_direction_ends_by_itself() {
    let mut pair = pair(mbit(400));
    let (mut client, mut server) = flow(&mut pair).await;
    let upload: Vec<u8> = (0..3_000_000_u32).map(|n| (n * 7 + n / 301) as u8).collect();
    let (sent, length) = (Sha256::digest(&upload), upload.len());
    let sender = tokio::spawn(async move {
        client.write_all(&upload).await.unwrap();
        client.shutdown().await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        answer
    });
    let mut received = Vec::new();
    server.read_to_end(&mut received).await.unwrap();
    assert_eq!((received.len(), Sha256::digest(&received)), (length, sent));
    // after the other direction has ended
    server.write_all(&received[..1_000_000]).await.unwrap();
    drop(server);
    assert_eq!(sender.await.unwrap(), received[..1_000_000]);
    let seen = pair.near.status();
    let tunnel = seen[0].tunnel.as_ref().unwrap();
    assert_eq!((tunnel.flows, tunnel.sent), (0, 3_000_000));
    assert!(pair.far.status()[0].tunnel.is_some());
}

/// 2,600 Initials a second, all valid, from one port, for as long as requests go through the tunnel and 4 s at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_go_through_beside_a_flood_of_initials() {
    const EACH_SECOND: usize = 2_600;
    let mut pair = pair(mbit(100));
    let (mut client, mut server) = flow(&mut pair).await;
    let (to, fingerprint) = (pair.far.addresses()[0], pair.far.inner.credentials.fingerprint());
    let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stop = Arc::clone(&over);
    let flood = std::thread::spawn(move || {
        let credentials = Credentials::generate().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (now, terms) = (ekiden_model::units::Time::ZERO, Terms::new(mbit(1), mbit(1)));
        let (mut sent, mut buffer, begun) = (0, Vec::new(), Instant::now());
        while sent < 4 * EACH_SECOND && !stop.load(std::sync::atomic::Ordering::Acquire) {
            let (own, limits) = (credentials.clone(), Limits::default());
            let mut crowd = Endpoint::new(own, limits, false, begun, None);
            let (secret, key) = (bytes::Bytes::new(), (sent as u64, false));
            crowd.connect(now, to, fingerprint, secret, terms, key).unwrap();
            while let Some(out) = crowd.transmit(now, &mut buffer) {
                socket.send_to(&buffer[..out.size], to).unwrap();
                sent += 1;
            }
            let due = Duration::from_secs_f64(sent as f64 / EACH_SECOND as f64);
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
        }
        sent
    });
    let mut answer = vec![0; 20_000];
    for request in 0..40_u8 {
        client.write_all(&[request; 500]).await.unwrap();
        let mut asked = [0; 500];
        server.read_exact(&mut asked).await.unwrap();
        assert_eq!(asked, [request; 500]);
        server.write_all(&[request; 20_000]).await.unwrap();
        client.read_exact(&mut answer).await.unwrap();
        assert!(answer.iter().all(|byte| *byte == request));
    }
    over.store(true, std::sync::atomic::Ordering::Release);
    assert!(flood.join().unwrap() > 0);
    assert!(pair.far.status()[0].tunnel.is_some());
}

/// Who closes after writing leaves the rest to the relay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_bytes_arrive_after_a_close() {
    let mut pair = pair(mbit(10));
    let (mut client, mut server) = flow(&mut pair).await;
    client.shutdown().await.unwrap();
    server.read_to_end(&mut Vec::new()).await.unwrap();
    server.write_all(&[7; 200_000]).await.unwrap();
    drop(server);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer.len(), 200_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_told() {
    let mut pair = pair(mbit(100));
    let flow = pair.near.open("far", opening(81), PATIENCE).await.unwrap();
    let incoming = pair.incoming.recv().await.unwrap();
    incoming.flow.refuse(Reason::NoName, "example.org has no address".to_owned());
    let refused = flow.answered().await.unwrap_err();
    assert_eq!(refused, (Reason::NoName, "example.org has no address".to_owned()));
    let unknown = pair.near.open("moon", opening(1), PATIENCE).await.unwrap_err();
    assert!(unknown.words.contains("`moon`"), "{unknown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_relay_is_cut_off_and_a_lost_tunnel_comes_back() {
    let mut pair = pair(mbit(100));
    let (mut client, _server) = flow(&mut pair).await;
    assert!(matches!(pair.stores[1].peers().unwrap()[0].kind, PeerKind::Peer { .. }));
    // the far relay is restarted
    let listen = pair.far.addresses().to_vec();
    let settings = Settings { listen, ..pair.far.inner.settings.clone() };
    let (sender, incoming) = mpsc::channel(100);
    drop(std::mem::replace(&mut pair.incoming, incoming));
    drop(pair.far);
    let mut room = [0; 9];
    let ended = tokio::time::timeout(Duration::from_secs(10), client.read(&mut room)).await;
    let error = ended.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the tunnel was lost");
    assert!(client.write(b"more").await.is_err() && client.is_broken());
    // the port is free once the thread has ended
    let (mut far, mut tries) = (None, 0..50);
    while far.is_none() && tries.next().is_some() {
        tokio::time::sleep(Duration::from_millis(200)).await;
        far = Peers::start(settings.clone(), sender.clone()).ok();
    }
    let far = far.unwrap();
    let flow = pair.near.open("far", opening(80), PATIENCE).await.unwrap();
    pair.incoming.recv().await.unwrap().flow.accept();
    flow.answered().await.unwrap();
    // and now it is revoked
    pair.stores[1].remove("near").unwrap();
    let gone = async {
        while pair.near.status()[0].tunnel.is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), gone).await.unwrap();
    let error = pair.near.open("far", opening(80), Span::from_secs(2)).await.unwrap_err();
    assert!(
        error.words.contains("revoked") || error.words.contains("is not a peer of this one"),
        "{error}"
    );
    drop(far);
}

/// A machine has several addresses, and the peer was told one that its routes would not choose.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_on_all_addresses_answers_from_the_one_that_was_asked() {
    let other = |at: SocketAddr| SocketAddr::from(([127, 0, 0, 2], at.port()));
    let mut pair = pair_through("0.0.0.0:0", mbit(100), other);
    let (mut client, mut server) = flow(&mut pair).await;
    client.write_all(&[7; 100_000]).await.unwrap();
    server.read_exact(&mut [0; 100_000]).await.unwrap();
    assert_eq!(pair.near.status()[0].over_tcp, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_store_is_read_again() {
    let mut pair = pair(mbit(100));
    // it looks when it is told to, and not by itself
    for task in pair.far.tasks.drain(..) {
        task.abort();
        let _ = task.await;
    }
    let (inner, store) = (&pair.far.inner, &pair.stores[1]);
    let mut watch = Watch { seen: store.changed(), said: None };
    store.remove("near").unwrap();
    let path = store.directory().join("relays.json");
    let revoked = std::fs::read(&path).unwrap();
    let changed = SystemTime::now() + Duration::from_secs(10);
    // as where there is no descriptor to read it with: its time is known, what is in it is not
    std::fs::write(&path, "{").unwrap();
    let file = std::fs::File::options().append(true).open(&path).unwrap();
    file.set_modified(changed).unwrap();
    watch.look(inner);
    assert!(watch.said.is_some() && locked(&inner.known).contains_key("near"));
    std::fs::write(&path, revoked).unwrap();
    file.set_modified(changed).unwrap();
    watch.look(inner);
    assert!(watch.said.is_none() && locked(&inner.known).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_a_flow_ends_is_told_also_after_it_was_answered() {
    let mut pair = pair(mbit(100));
    for answered in [false, true] {
        let opening = Opening { carries: Carries::Packets, ..opening(80) };
        let flow = pair.near.open("far", opening, PATIENCE).await.unwrap();
        let incoming = pair.incoming.recv().await.unwrap();
        if answered {
            incoming.flow.accept();
            flow.answered().await.unwrap();
        }
        incoming.flow.abort(Reason::Denied, "not any more".to_owned());
        drop(incoming);
        let ended = flow.packet().await.unwrap_err();
        assert_eq!(ended, Ended::There(Reason::Denied, "not any more".to_owned()), "{answered}");
    }
}

/// A port at which TCP leads on to the relay, and UDP to nobody. `told`: whether the relay learns it when connections are
/// cut.
fn tcp_alone(to: SocketAddr, told: bool) -> (SocketAddr, watch::Sender<bool>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let (cut, stops) = watch::channel(false);
    tokio::spawn(async move {
        let listener = TcpListener::from_std(listener).unwrap();
        while let Ok((mut one, _)) = listener.accept().await {
            let mut stops = stops.clone();
            stops.mark_unchanged();
            tokio::spawn(async move {
                let mut other = TcpStream::connect(to).await.unwrap();
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut one, &mut other) => {}
                    _ = stops.changed() => {}
                }
                if !told {
                    drop(one);
                    // and the other one stays
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    (at, cut)
}

/// UDP goes nowhere; and the connection of TCP breaks in the middle, which flows outlive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn falls_back_to_tcp_when_udp_is_blocked() {
    let mut cut = None;
    let mut pair = pair_through("127.0.0.1:0", mbit(40), |far| {
        let (at, stop) = tcp_alone(far, true);
        cut = Some(stop);
        at
    });
    let (mut client, mut server) = flow(&mut pair).await;
    let over = |relays: &Peers| relays.status()[0].over_tcp;
    assert!(over(&pair.near).is_some() && over(&pair.far).is_some());
    let end = pair.far.status()[0].tunnel.as_ref().and_then(|tunnel| tunnel.address).unwrap();
    assert!(pair.far.inner.listening[0].with(|core| core.tunnel_at(end)).is_some());
    let upload: Vec<u8> = (0..4_000_000_u32).map(|n| (n * 7 + n / 301) as u8).collect();
    let (sent, length) = (Sha256::digest(&upload), upload.len());
    tokio::spawn(async move {
        client.write_all(&upload).await.unwrap();
        client.shutdown().await.unwrap();
        // its own direction stays open until the other end closes
        let _ = client.read_to_end(&mut Vec::new()).await;
    });
    let mut received = vec![0; 1_000_000];
    server.read_exact(&mut received).await.unwrap();
    // dropped it would cut for ever
    let cut = cut.unwrap();
    cut.send_replace(true);
    let read = server.read_to_end(&mut received).await;
    assert!(read.is_ok(), "{read:?} {:?}", pair.near.status());
    assert_eq!((received.len(), Sha256::digest(&received)), (length, sent));
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_carrier_is_for_the_relay_with_the_right_certificate() {
    let pair = pair(mbit(40));
    let to = pair.far.addresses()[0];
    let stranger = pair.near.inner.credentials.fingerprint();
    let credentials = &pair.near.inner.credentials;
    let refused = tcp_fallback::connect(credentials, stranger, to).await;
    let refused = refused.err().unwrap().to_string();
    assert!(refused.contains("another certificate"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_carrier_over_which_no_tunnel_goes_is_closed() {
    let pair = pair(mbit(40));
    let Peers { inner: far, .. } = &pair.far;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap();
    let fingerprint = far.credentials.fingerprint();
    let connecting = tcp_fallback::connect(&pair.near.inner.credentials, fingerprint, to);
    let taking = async {
        let (stream, from) = listener.accept().await.unwrap();
        let acceptor = far.credentials.carrier_server().unwrap().into();
        let driver = Arc::clone(&far.listening[0]);
        let inside = FallbackTarget { driver, carried: Arc::clone(&far.carried) };
        let mut door = Door::new(clock::now(), &Limits::default());
        let place = door.on_attempt(clock::now(), from.ip()).unwrap();
        let claim = Duration::from_millis(50);
        tcp_fallback::incoming(&acceptor, stream, from, (&inside, place), claim).await
    };
    let (connected, ended) = tokio::join!(connecting, taking);
    assert!(connected.is_ok());
    assert_eq!(ended.unwrap().to_string(), "no tunnel goes over it");
    assert!(locked(&far.carried).is_empty());
}

/// As where a packet filter drops the tunnel's UDP port on all devices, that of loopback too: TCP alone leads to the relay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_carries_where_the_udp_port_is_filtered_on_loopback_too() {
    let mut pair = pair(mbit(40));
    let far = Arc::clone(&pair.far.inner);
    // a second way in, whose UDP socket takes nothing
    let (deaf, listener) = both("127.0.0.1:0".parse().unwrap(), TransportMode::Auto).unwrap();
    let drop_all = [socket2::SockFilter::new(6, 0, 0, 0)];
    socket2::SockRef::from(&deaf).attach_filter(&drop_all).unwrap();
    let listener = listener.expect("a port that is free for UDP and TCP");
    let to = listener.local_addr().unwrap();
    let core = Endpoint::new(far.credentials.clone(), Limits::default(), true, far.origin, None);
    let (driver, mut events) = Driver::start(core, deaf, [34, 0]).unwrap();
    let driver = Arc::new(driver);
    let (peers, invited) = trust::admitted(&pair.stores[1].peers().unwrap());
    driver.with(|core| core.admit(clock::now(), &peers, &invited));
    let inside = FallbackTarget { driver: Arc::clone(&driver), carried: Arc::clone(&far.carried) };
    let door = Arc::new(Mutex::new(Door::new(clock::now(), &Limits::default())));
    let (listener, credentials) = (Arc::new(listener), far.credentials.clone());
    tokio::spawn(tcp_fallback::listen(listener, credentials, inside, door));
    let attending = Arc::clone(&far);
    tokio::spawn(async move { drop(attending.attend(&driver, &mut events, None).await) });
    // the near relay knows this way alone
    let mut peer = pair.stores[0].remove("far").unwrap();
    let PeerKind::Joined { address, .. } = &mut peer.kind else { panic!("{peer:?}") };
    *address = to.to_string();
    pair.stores[0].add(peer).unwrap();
    let moved = async {
        while pair.near.status()[0].over_tcp != Some(to) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), moved).await.unwrap();
    let (mut client, mut server) = flow(&mut pair).await;
    client.write_all(b"hello").await.unwrap();
    let mut came = [0; 5];
    server.read_exact(&mut came).await.unwrap();
    assert_eq!(&came, b"hello");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_joins_over_udp_or_tcp_and_says_what_is_closed() {
    let mut cut = None;
    let pair = pair_through("127.0.0.1:0", mbit(40), |far| {
        let (at, stop) = tcp_alone(far, true);
        cut = Some(stop);
        at
    });
    let credentials = pair.near.inner.credentials.clone();
    let [near, _far] = &pair.stores;
    let mut peer = near.peers().unwrap().remove(0);
    let seen = probe(&credentials, &peer).await;
    assert!(seen.udp.as_ref().unwrap_err().contains("nothing listens"), "{seen:?}");
    assert!(seen.tcp.is_ok() && seen.refused.is_none(), "{seen:?}");
    let PeerKind::Joined { address, .. } = &mut peer.kind else { panic!("{peer:?}") };
    *address = pair.far.addresses()[0].to_string();
    let seen = probe(&credentials, &peer).await;
    assert!(seen.udp.is_ok() && seen.tcp.is_ok(), "{seen:?}");
    // the invitation is this relay's now, and nobody else's
    let stranger = Credentials::generate().unwrap();
    let seen = probe(&stranger, &peer).await;
    assert!(seen.udp.is_err() && seen.refused.unwrap().contains("not a peer of this one"));
    // and where nobody is
    let PeerKind::Joined { address, .. } = &mut peer.kind else { panic!("{peer:?}") };
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    *address = nobody.to_string();
    let seen = probe(&credentials, &peer).await;
    assert!(!seen.reached() && seen.tcp.unwrap_err().contains("refused"));
}
