//! Relays that join while their peer cannot save them, and one that is replaced.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_cannot_be_saved_is_refused_and_its_invitation_stays_good() {
    let pair = pair(mbit(40));
    let store = &pair.stores[1];
    let (secret, rate) = (trust::random().unwrap(), mbit(1));
    let invited = PeerKind::Invited { invitation: hash(&secret).into() };
    let ship = Peer { name: "ship".to_owned(), kind: invited, terms: Terms::new(rate, rate) };
    // the first peer has to be in before nothing can be saved
    pair.near.open("far", opening(80), PATIENCE).await.unwrap();
    store.add(ship.clone()).unwrap();
    let known = || pair.far.status().iter().any(|peer| peer.name == "ship");
    while !known() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let address = pair.far.addresses()[0].to_string();
    let fingerprint = pair.far.inner.credentials.fingerprint();
    let token = Token { address, fingerprint, secret, send: rate, receive: rate, made: None };
    let far = token.peer("far".to_owned());
    let [first, second] = [(); 2].map(|()| Credentials::generate().unwrap());
    // also for root, whom no permissions stop
    let obstacle = store.directory().join(".relays.json.new");
    std::fs::create_dir(&obstacle).unwrap();
    let seen = probe(&first, &far).await;
    assert!(seen.refused.as_ref().is_some_and(|why| why.contains("cannot save you")), "{seen:?}");
    let why = pair.far.unsaved().unwrap();
    assert!(why.contains("relays.json"), "{why}");
    let status = pair.far.status().into_iter().find(|peer| peer.name == "ship").unwrap();
    assert!(status.last_error.unwrap().contains("relays.json") && status.tunnel.is_none());
    assert!(store.peers().unwrap().contains(&ship));
    // it is mended: whoever comes first is the peer, and stays it
    std::fs::remove_dir(&obstacle).unwrap();
    let seen = probe(&second, &far).await;
    assert!(seen.reached() && seen.refused.is_none(), "{seen:?}");
    assert_eq!(pair.far.unsaved(), None);
    assert!(!store.peers().unwrap().contains(&ship));
    let seen = probe(&first, &far).await;
    assert!(seen.refused.is_some_and(|why| why.contains("not a peer of this one")));
}

/// One thread for all tasks: what waits for the disk in one of them stops all.
#[tokio::test]
async fn flows_open_while_the_disk_keeps_a_relay_that_joins_waiting() {
    let mut pair = pair(mbit(40));
    let (_client, _server) = flow(&mut pair).await;
    let store = pair.stores[1].clone();
    let (secret, rate) = (trust::random().unwrap(), mbit(1));
    let invited = PeerKind::Invited { invitation: hash(&secret).into() };
    store
        .add(Peer { name: "ship".to_owned(), kind: invited, terms: Terms::new(rate, rate) })
        .unwrap();
    while !pair.far.status().iter().any(|peer| peer.name == "ship") {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let address = pair.far.addresses()[0].to_string();
    let fingerprint = pair.far.inner.credentials.fingerprint();
    let token = Token { address, fingerprint, secret, send: rate, receive: rate, made: None };
    // the store is in use elsewhere, as by a command; given back in the end, whatever this thread does
    let lock = std::fs::File::open(store.directory().join("lock")).unwrap();
    lock.lock().unwrap();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let holder = std::thread::spawn(move || {
        let asked = released.recv_timeout(Duration::from_secs(30)).is_ok();
        drop(lock);
        asked
    });
    let credentials = Credentials::generate().unwrap();
    let joining =
        tokio::spawn(async move { probe(&credentials, &token.peer("far".to_owned())).await });
    while pair.far.inner.changes.try_lock().is_ok() {
        assert!(!holder.is_finished(), "all waited for the disk");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (mut client, mut server) = flow(&mut pair).await;
    client.write_all(b"hello").await.unwrap();
    server.read_exact(&mut [0; 5]).await.unwrap();
    drop((client, server));
    let _ = release.send(());
    assert!(holder.join().unwrap(), "all waited for the disk");
    let seen = joining.await.unwrap();
    assert!(seen.reached(), "{seen:?}");
}

/// Its task is aborted while it waits for what is known, and then goes on. Here no task runs beside the test.
#[tokio::test]
async fn a_tunnel_of_a_relay_that_was_replaced_is_not_used_for_another_of_its_name() {
    let pair = pair(mbit(40));
    pair.near.open("far", opening(80), PATIENCE).await.unwrap();
    let near = &pair.near.inner;
    let ready = || locked(&near.known)["far"].ready.borrow().clone();
    let up = ready().unwrap();
    let old = locked(&near.known)["far"].joined.clone().unwrap();
    let far = pair.far.inner.credentials.fingerprint();
    // another relay, and then the same one, which invited this one again
    for fingerprint in [Credentials::generate().unwrap().fingerprint(), far] {
        let (secret, rate) = (trust::random().unwrap(), mbit(1));
        let address = "127.0.0.1:1".to_owned();
        let token = Token { address, fingerprint, secret, send: rate, receive: rate, made: None };
        let replaced = pair.stores[0].put(token.peer("far".to_owned()), |_| true);
        assert!(replaced.unwrap().is_some());
        near.look().unwrap();
        near.on_up(&up.driver, up.tunnel, far, Some(&old));
        assert!(ready().is_none());
    }
}
