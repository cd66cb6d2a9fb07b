//! Several threads on the far relay's address.

use super::*;
use crate::core::TunnelEnd;
use std::sync::atomic::{AtomicUsize, Ordering};

const STOP: usize = usize::MAX;

/// A device that translates addresses, and takes another port for its way out when `nth` changes. `at`: the far relay.
fn translate(at: SocketAddr, nth: Arc<AtomicUsize>) -> SocketAddr {
    let open = || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    let (inside, mut outside) = (open(), open());
    let address = inside.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        let (mut client, mut current) = (None, 0);
        loop {
            match nth.load(Ordering::Relaxed) {
                STOP => break,
                wanted if wanted != current => (outside, current) = (open(), wanted),
                _ => {}
            }
            let mut came = false;
            while let Ok((n, from)) = inside.recv_from(&mut buffer) {
                (client, came) = (Some(from), true);
                let _ = outside.send_to(&buffer[..n], at);
            }
            while let Ok((n, _)) = outside.recv_from(&mut buffer) {
                came = true;
                let _ = client.map(|client| inside.send_to(&buffer[..n], client));
            }
            if !came {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    });
    address
}

/// Twelve ports, each of which the kernel gives to one of four threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_changes_its_address_keeps_its_tunnel() {
    let port = Arc::new(AtomicUsize::new(0));
    let mut pair = pair_through("127.0.0.1:0", mbit(20), |at| translate(at, Arc::clone(&port)));
    let (mut client, mut server) = flow(&mut pair).await;
    for nth in 0..12_u8 {
        port.store(nth.into(), Ordering::Relaxed);
        client.write_all(&[nth; 1_000]).await.unwrap();
        // a tunnel of which no packet arrives is lost in 7 s, and its flows with it
        let mut room = [0; 1_000];
        server.read_exact(&mut room).await.unwrap();
        server.write_all(&room).await.unwrap();
        client.read_exact(&mut room).await.unwrap();
        assert_eq!(room, [nth; 1_000]);
    }
    port.store(STOP, Ordering::Relaxed);
}

/// Tunnels of each thread are seen as tunnels of the one relay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnels_are_spread_over_threads() {
    let pair = pair(mbit(20));
    let far = &pair.far.inner;
    assert_eq!((far.listening.len(), far.addresses.len()), (4, 1));
    let address = far.addresses[0];
    // one thread at most would bind a port that is taken
    assert!(UdpSocket::bind(address).is_err());
    let mut nears = Vec::new();
    for nth in 0..12 {
        let name = format!("near-{nth}");
        let folder = tempfile::tempdir().unwrap();
        let secret = trust::random().unwrap();
        let kind = PeerKind::Invited { invitation: hash(&secret).into() };
        let terms = Terms::new(mbit(20), mbit(20));
        pair.stores[1].add(Peer { name: name.clone(), kind, terms }).unwrap();
        let token = Token {
            address: address.to_string(),
            fingerprint: pair.stores[1].credentials().unwrap().fingerprint(),
            secret,
            send: mbit(20),
            receive: mbit(20),
            made: None,
        };
        let store = Store::new(folder.path().join("near"));
        store.add(token.peer("far".to_owned())).unwrap();
        let settings = Settings { store, listen: vec![], ..pair.near.inner.settings.clone() };
        nears.push((Peers::start(settings, mpsc::channel(1).0).unwrap(), folder, name));
    }
    for (near, _, name) in &nears {
        while !(near.is_up("far") && pair.far.is_up(name)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let count = |driver: &Arc<Driver>| locked(&driver.shared.core).snapshots().len();
    let each: Vec<usize> = far.listening.iter().map(count).collect();
    assert!(each.iter().filter(|count| **count > 0).count() > 1, "{each:?}");
    // a tunnel of one thread ends, and those with its number on others do not
    let (near, _, gone) = nears.pop().unwrap();
    near.close().await;
    while pair.far.is_up(&gone) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(nears.iter().all(|(_, _, name)| pair.far.is_up(name)));
}

/// The task of each thread hears of its own tunnels: of one that has ended while the other is still there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_whose_tunnels_end_together_has_none() {
    let mut pair = pair(mbit(20));
    let (far, peer) = (Arc::clone(&pair.far.inner), pair.near.inner.credentials.fingerprint());
    while !(pair.near.is_up("far") && pair.far.is_up("near")) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let beside = Peers::start(pair.near.inner.settings.clone(), mpsc::channel(1).0).unwrap();
    let tunnels_on = |driver: &Arc<Driver>| -> Vec<Ready> {
        let core = locked(&driver.shared.core);
        let tunnels = core.tunnels_of(peer);
        tunnels.map(|tunnel| Ready { driver: Arc::clone(driver), tunnel }).collect()
    };
    let tunnels = || -> Vec<Ready> { far.listening.iter().flat_map(tunnels_on).collect() };
    while !beside.is_up("far") || tunnels().len() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // from here on nobody else hears of their ends, nor connects again
    for task in pair.far.tasks.drain(..) {
        task.abort();
        let _ = task.await;
    }
    for near in [&pair.near, &beside] {
        locked(&near.inner.known)["far"].connecting.as_ref().unwrap().abort();
    }
    let [first, second] = <[Ready; 2]>::try_from(tunnels()).unwrap();
    let known = locked(&far.known);
    known["near"].ready.send_replace(Some(first.clone()));
    first.driver.close(first.tunnel, "a test");
    let hearing = Arc::clone(&far);
    let hears = std::thread::spawn(move || {
        let end = TunnelEnd::from("a test".to_owned());
        hearing.on_down((&first.driver, first.tunnel), peer, &end, None);
    });
    // it may have looked for another tunnel, and cannot say yet that this is the one in use
    std::thread::sleep(Duration::from_millis(100));
    // what hears of this end changes nothing: it is not in use
    second.driver.close(second.tunnel, "a test");
    drop(known);
    hears.join().unwrap();
    assert!(!pair.far.is_up("near"));
}
