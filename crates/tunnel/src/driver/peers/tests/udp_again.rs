//! Tunnels that begin in an outage of UDP, which then ends.

use super::*;
use ekiden_model::connect::failover::{Config, Health};
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::UdpSocket;

/// Longer than anything here takes: a test fails then, and does not hang.
const LIMIT: Duration = Duration::from_secs(60);

/// Passes datagrams on to the relay and back while it is open, and drops them else.
async fn pass(inside: UdpSocket, to: SocketAddr, open: Arc<AtomicBool>) {
    let outside = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (mut there, mut back) = (vec![0; 65_536], vec![0; 65_536]);
    let mut client = None;
    loop {
        tokio::select! {
            came = inside.recv_from(&mut there) => {
                let (n, from) = came.unwrap();
                client = Some(from);
                if open.load(Ordering::Relaxed) {
                    let _ = outside.send_to(&there[..n], to).await;
                }
            }
            came = outside.recv_from(&mut back) => {
                let (n, _) = came.unwrap();
                if let Some(client) = client.filter(|_| open.load(Ordering::Relaxed)) {
                    let _ = inside.send_to(&back[..n], client).await;
                }
            }
        }
    }
}

/// A port at which TCP leads on to the relay, and UDP to this socket.
fn port(to: SocketAddr) -> (SocketAddr, std::net::UdpSocket, watch::Sender<bool>) {
    loop {
        let (at, cut) = tcp_alone(to, true);
        // else it is another's
        if let Ok(inside) = std::net::UdpSocket::bind(at) {
            inside.set_nonblocking(true).unwrap();
            return (at, inside, cut);
        }
    }
}

/// A port at which TCP leads on to the relay, and UDP while it is open.
fn gate(to: SocketAddr, open: &Arc<AtomicBool>) -> (SocketAddr, watch::Sender<bool>) {
    let (at, inside, cut) = port(to);
    let inside = UdpSocket::from_std(inside).unwrap();
    tokio::spawn(pass(inside, to, Arc::clone(open)));
    (at, cut)
}

/// `near` connects anew, and would try UDP again soon.
fn try_udp_soon(pair: &Pair) {
    let near = &pair.near.inner;
    let peer = pair.stores[0].peers().unwrap().remove(0);
    let soon = Config { first_rest: Span::from_millis(100), longest_rest: Span::from_millis(200) };
    let joined = Joined { udp: Mutex::new(Health::new(soon)), ..Joined::of(&peer).unwrap() };
    let joined = Arc::new(joined);
    let mut known = locked(&near.known);
    let far = known.get_mut("far").unwrap();
    far.joined = Some(Arc::clone(&joined));
    let connecting = tokio::spawn(Arc::clone(near).connect(joined));
    far.connecting.replace(connecting).unwrap().abort();
}

/// Two relays whose tunnel came up over TCP, because UDP was closed. `near` tries UDP again soon.
struct Gated {
    pair: Pair,
    open: Arc<AtomicBool>,
    /// Dropped it would cut TCP.
    _cut: watch::Sender<bool>,
}

impl Gated {
    /// With a flow over TCP.
    async fn begin() -> (Self, (FlowStream, FlowStream)) {
        let (open, mut cut) = (Arc::new(AtomicBool::new(false)), None);
        let mut pair = pair_through("127.0.0.1:0", mbit(40), |far| {
            let (at, stop) = gate(far, &open);
            cut = Some(stop);
            at
        });
        try_udp_soon(&pair);
        let old = flow(&mut pair).await;
        let relays = Self { pair, open, _cut: cut.unwrap() };
        assert_eq!(relays.status().map(|peer| peer.over_tcp.is_some()), [true; 2]);
        (relays, old)
    }

    fn status(&self) -> [TunnelStatus; 2] {
        [&self.pair.near, &self.pair.far].map(|relays| relays.status().remove(0))
    }

    /// UDP gets through or no longer does, and both relays have noticed.
    async fn set(&self, open: bool) {
        self.open.store(open, Ordering::Relaxed);
        self.until("another carrier", || {
            self.status()
                .iter()
                .all(|peer| peer.tunnel.is_some() && peer.over_tcp.is_none() == open)
        })
        .await;
    }

    async fn until(&self, what: &str, happened: impl Fn() -> bool) {
        let happening = async {
            while !happened() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let happened = tokio::time::timeout(LIMIT, happening).await;
        assert!(happened.is_ok(), "{what}: {:?}", self.status());
    }
}

/// A few bytes there and back.
async fn echo((client, server): &mut (FlowStream, FlowStream)) {
    let mut room = [0; 5];
    client.write_all(b"hello").await.unwrap();
    server.read_exact(&mut room).await.unwrap();
    server.write_all(&room).await.unwrap();
    client.read_exact(&mut room).await.unwrap();
    assert_eq!(&room, b"hello");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_flows_go_over_udp_once_it_answers_and_old_ones_end_over_tcp() {
    let (mut relays, (mut old, mut old_server)) = Gated::begin().await;
    let upload: Vec<u8> = (0..2_000_000_u32).map(|n| (n * 7 + n / 301) as u8).collect();
    let (before, after) = upload.split_at(100_000);
    old.write_all(before).await.unwrap();
    relays.set(true).await;
    let mut new = flow(&mut relays.pair).await;
    // it is alone in the tunnel that is used now
    assert_eq!(relays.status().map(|peer| peer.tunnel.unwrap().flows), [1; 2]);
    echo(&mut new).await;
    let mut received = Vec::new();
    let sending = async {
        old.write_all(after).await.unwrap();
        old.shutdown().await.unwrap();
    };
    let ((), read) = tokio::join!(sending, old_server.read_to_end(&mut received));
    read.unwrap();
    let [came, sent] = [&received, &upload].map(|bytes| (bytes.len(), Sha256::digest(bytes)));
    assert_eq!(came, sent);
    old_server.shutdown().await.unwrap();
    assert_eq!(old.read(&mut [0; 1]).await.unwrap(), 0);
    drop((old, old_server));
    let inner = [&relays.pair.near.inner, &relays.pair.far.inner];
    let tunnels = |driver: &Arc<Driver>| locked(&driver.shared.core).snapshots().len();
    let is_over = || {
        inner.iter().all(|inner| locked(&inner.carried).is_empty())
            && inner[1].listening.iter().map(tunnels).sum::<usize>() == 1
    };
    relays.until("the end over TCP", is_over).await;
    echo(&mut new).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_flows_go_over_tcp_again_where_udp_is_lost_beside_it() {
    let (mut relays, mut old) = Gated::begin().await;
    relays.set(true).await;
    let mut new = flow(&mut relays.pair).await;
    echo(&mut new).await;
    relays.set(false).await;
    let broken = tokio::time::timeout(LIMIT, new.0.read(&mut [0; 1])).await;
    assert!(broken.unwrap().is_err());
    // the tunnel from before, whose flow has gone on
    echo(&mut old).await;
    let mut newer = flow(&mut relays.pair).await;
    assert_eq!(relays.status().map(|peer| peer.tunnel.unwrap().flows), [2; 2]);
    echo(&mut newer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_is_to_use_tcp_alone_sends_nothing_over_udp() {
    let mut pair = pair(mbit(40));
    pair.near.close().await;
    let (at, udp, _cut) = port(pair.far.addresses()[0]);
    let mut peer = pair.stores[0].remove("far").unwrap();
    let PeerKind::Joined { address, .. } = &mut peer.kind else { panic!("{peer:?}") };
    *address = at.to_string();
    pair.stores[0].add(peer).unwrap();
    let settings = Settings { carrier: TransportMode::Tcp, ..pair.near.inner.settings.clone() };
    pair.near = Peers::start(settings, mpsc::channel(1).0).unwrap();
    try_udp_soon(&pair);
    let mut streams = flow(&mut pair).await;
    // UDP would have been tried several times
    tokio::time::sleep(Duration::from_secs(1)).await;
    echo(&mut streams).await;
    assert_eq!(udp.recv(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}
