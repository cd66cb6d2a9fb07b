//! Threads that panic.

use super::*;
use std::sync::atomic::Ordering;

/// Longer than anything here takes: a test fails then, and does not hang.
const LIMIT: Duration = Duration::from_secs(60);

/// The thread panics with its next datagram, as with a fault of this program.
fn panic(driver: &Driver) {
    driver.shared.panics.store(true, Ordering::Release);
    driver.shared.ring();
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, what).await.expect("it hangs")
}

/// The peer has a tunnel there that is not the one before.
async fn comes_again(peers: &Peers, name: &str, before: &Ready) {
    let mut ready = locked(&peers.inner.known)[name].ready.subscribe();
    let other = |ready: &Option<Ready>| {
        ready.as_ref().is_some_and(|ready| {
            ready.tunnel != before.tunnel || !Arc::ptr_eq(&ready.driver, &before.driver)
        })
    };
    within(ready.wait_for(other)).await.unwrap();
}

/// A reader, a writer, a flow without an answer, and one of packets: all of them wait, and none for ever.
async fn ends_flows_and_connects_again(of_far: bool) {
    let mut pair = pair(mbit(20));
    let (client, mut server) = flow(&mut pair).await;
    let unanswered = pair.near.open("far", opening(81), PATIENCE).await.unwrap();
    let packets = Opening { carries: Carries::Packets, ..opening(82) };
    let packets = pair.near.open("far", packets, PATIENCE).await.unwrap();
    let _unserved = [pair.incoming.recv().await.unwrap(), pair.incoming.recv().await.unwrap()];
    let (peers, name) = if of_far { (&pair.far, "near") } else { (&pair.near, "far") };
    let before = locked(&peers.inner.known)[name].ready.borrow().clone().unwrap();
    let (mut reader, mut writer) = tokio::io::split(client);
    let waiting = tokio::spawn(async move {
        let (mut none, more) = ([0; 1], [7; 65_536]);
        tokio::join!(reader.read(&mut none), async {
            while writer.write_all(&more).await.is_ok() {}
        })
    });
    panic(&before.driver);
    let (read, ()) = within(waiting).await.unwrap();
    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    let (reason, _) = within(unanswered.answered()).await.unwrap_err();
    assert_eq!(reason, Reason::TunnelLost);
    let ended = within(packets.packet()).await.unwrap_err();
    assert!(matches!(ended, Ended::There(Reason::TunnelLost, _)), "{ended:?}");
    let mut rest = Vec::new();
    assert!(within(server.read_to_end(&mut rest)).await.is_err());
    let says_why = || {
        let error = locked(&peers.inner.known)[name].last_error();
        error.is_some_and(|error| error.contains("its thread panicked: a test asked for it"))
    };
    within(async {
        while !says_why() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    within(comes_again(peers, name, &before)).await;
    let (mut client, mut server) = within(flow(&mut pair)).await;
    client.write_all(b"hello").await.unwrap();
    within(server.read_exact(&mut [0; 5])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_joined_relays_thread_that_panics_ends_its_flows_and_another_connects() {
    ends_flows_and_connects_again(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listening_thread_that_panics_ends_its_flows_and_listens_again() {
    ends_flows_and_connects_again(true).await;
}

/// The tunnel that nobody attends to any more is not used again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_task_of_a_joined_relay_that_panics_connects_again() {
    let mut pair = pair(mbit(20));
    drop(flow(&mut pair).await);
    let peers = &pair.near;
    let before = locked(&peers.inner.known)["far"].ready.borrow().clone().unwrap();
    peers.inner.panics.store(true, Ordering::Release);
    before.driver.close(before.tunnel, "a test");
    within(comes_again(peers, "far", &before)).await;
    let (mut client, mut server) = within(flow(&mut pair)).await;
    client.write_all(b"hello").await.unwrap();
    within(server.read_exact(&mut [0; 5])).await.unwrap();
}

/// The end of a tunnel is lost with the panic: its peer comes again nonetheless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_task_of_an_address_that_panics_goes_on_with_the_next_event() {
    let mut pair = pair(mbit(20));
    drop(flow(&mut pair).await);
    let before = locked(&pair.near.inner.known)["far"].ready.borrow().clone().unwrap();
    let seen = locked(&pair.far.inner.known)["near"].ready.borrow().clone().unwrap();
    pair.far.inner.panics.store(true, Ordering::Release);
    before.driver.close(before.tunnel, "a test");
    within(comes_again(&pair.far, "near", &seen)).await;
    within(comes_again(&pair.near, "far", &before)).await;
    let (mut client, mut server) = within(flow(&mut pair)).await;
    client.write_all(b"hello").await.unwrap();
    within(server.read_exact(&mut [0; 5])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnels_whose_begin_or_end_was_lost_are_found() {
    let mut pair = pair(mbit(20));
    let _flow = flow(&mut pair).await;
    let far = &pair.far.inner;
    let ready = || locked(&far.known)["near"].ready.borrow().clone();
    let set = |ready| drop(locked(&far.known)["near"].ready.send_replace(ready));
    let up = ready().unwrap();
    let is_up = || ready().is_some_and(|it| it.tunnel == up.tunnel);
    set(None);
    far.catch_up();
    assert!(is_up());
    // one of a socket that is not far's, as if it had ended
    let gone = locked(&pair.near.inner.known)["far"].ready.borrow().clone();
    assert!(!Arc::ptr_eq(&gone.as_ref().unwrap().driver, &up.driver));
    set(gone);
    far.catch_up();
    assert!(is_up() && ready().is_some_and(|it| Arc::ptr_eq(&it.driver, &up.driver)));
    far.catch_up();
    assert!(is_up());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_of_tcp_that_panics_takes_the_next_carrier() {
    let pair = pair(mbit(20));
    let (near, far) = (&pair.near.inner.credentials, &pair.far.inner);
    let (driver, carried) = (Arc::clone(&far.listening[0]), Arc::clone(&far.carried));
    let inside = FallbackTarget { driver, carried };
    let listener = Arc::new(tcp_fallback::listener("127.0.0.1:0".parse().unwrap()).unwrap());
    let to = listener.local_addr().unwrap();
    let door = Arc::new(Mutex::new(Door::new(clock::now(), &Limits::default())));
    locked(&door).panics = true;
    let credentials = far.credentials.clone();
    let task = tokio::spawn(restarted("a test", move || {
        let (listener, door) = (Arc::clone(&listener), Arc::clone(&door));
        tcp_fallback::listen(listener, credentials.clone(), inside.clone(), door)
    }));
    let peer = far.credentials.fingerprint();
    assert!(within(tcp_fallback::connect(near, peer, to)).await.is_err());
    assert!(within(tcp_fallback::connect(near, peer, to)).await.is_ok());
    task.abort();
}

/// Handles of flows that were lost do not mean flows of later tunnels.
#[test]
fn a_core_that_begins_anew_uses_no_number_of_a_tunnel_again() {
    let (credentials, origin) = (Credentials::generate().unwrap(), Instant::now());
    let mut core = Endpoint::new(credentials.clone(), Limits::default(), false, origin, None);
    let now = ekiden_model::units::Time::ZERO;
    let connect = |core: &mut Endpoint| {
        let (to, terms) = ("127.0.0.1:1".parse().unwrap(), Terms::new(mbit(1), mbit(1)));
        let secret = bytes::Bytes::new();
        core.connect(now, to, credentials.fingerprint(), secret, terms, (1, false)).unwrap()
    };
    let first = connect(&mut core);
    core.abandon("a test");
    let event = core.event().unwrap();
    assert!(
        matches!(event, crate::core::Event::Down { tunnel, .. } if tunnel == first),
        "{event:?}"
    );
    assert!(core.snapshots().is_empty() && connect(&mut core) != first);
}
