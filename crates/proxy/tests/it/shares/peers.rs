//! What one peer may take of a relay beside clients and other peers. The peers are tunnels of this process, whose flows
//! the tests open one by one.
use super::{OTHER, PLACES, is_served, places};
use crate::accounts::Book;
use crate::common::wait_until;
use crate::common::wire::{Origin, PATIENCE, Relay};
use ekiden_model::units::{Rate, Span};
use ekiden_proxy::policy::accounts::Directory;
use ekiden_proxy::settings::{AccessLog, Account, Limits as AccountLimits, Settings};
use ekiden_tunnel::core::{Limits, Terms};
use ekiden_tunnel::driver::{self, Flow, Peers, TransportMode};
use ekiden_tunnel::frame::reason::Reason;
use ekiden_tunnel::frame::{Carries, Host, Opening, Target};
use ekiden_tunnel::trust::{self, PeerKind, Store, Token};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::Arc;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

const MEASURES: &str = "measure.ekiden.invalid";

/// A relay, and its peers by their names.
struct Joined {
    relay: Relay,
    peers: Vec<Peers>,
    runtime: Runtime,
    _folder: TempDir,
}

impl Joined {
    fn new(names: &[&str], edit: impl FnOnce(&mut Settings)) -> Self {
        Self::of(None, names, edit)
    }

    fn of(
        directory: Option<Arc<dyn Directory>>,
        names: &[&str],
        edit: impl FnOnce(&mut Settings),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = |name: &str| Store::new(folder.path().join(name));
        let far = store("far itself");
        let address = loop {
            let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            if TcpListener::bind(address).is_ok() {
                break address;
            }
        };
        let rate: Rate = "100 Mbit/s".parse().unwrap();
        for name in names {
            let secret = trust::random().unwrap();
            let kind = PeerKind::Invited { invitation: trust::hash(&secret).into() };
            let (name, terms) = ((*name).to_owned(), Terms::new(rate, rate));
            far.add(trust::Peer { name: name.clone(), kind, terms }).unwrap();
            let fingerprint = far.credentials().unwrap().fingerprint();
            let address = address.to_string();
            let token =
                Token { address, fingerprint, secret, send: rate, receive: rate, made: None };
            store(&name).add(token.peer("far".to_owned())).unwrap();
        }
        let relay = Relay::of(directory, |settings| {
            settings.tunnel.state = Some(far.directory().to_owned());
            settings.tunnel.listen = vec![address];
            edit(settings);
        });
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.unwrap();
        let entered = runtime.enter();
        let start = |name: &&str| {
            let settings = driver::Settings {
                store: store(name),
                listen: vec![],
                carrier: TransportMode::Udp,
                dscp: [34, 0],
                limits: Limits::default(),
                threads: 1,
            };
            Peers::start(settings, mpsc::channel(1).0).unwrap()
        };
        let peers = names.iter().map(start).collect();
        drop(entered);
        Self { relay, peers, runtime, _folder: folder }
    }

    /// A flow by the peer of this number, once it is accepted. Errors: the relay's refusal.
    fn flow(
        &self,
        peer: usize,
        target: Target,
        carries: Carries,
    ) -> Result<Flow, (Reason, String)> {
        self.runtime.block_on(async {
            let opening = Opening { target, carries, ..Opening::named("", 0) };
            let patience = Span::from_secs(60);
            let flow = self.peers[peer].open("far", opening, patience).await.unwrap();
            if carries.is_packets() {
                // one that is refused already carries none
                let _carried = flow.send_packet(b"packet"[..].into());
            }
            flow.answered().await.map(|()| flow)
        })
    }

    /// Asks for a flow to here, and does not wait for the answer.
    fn asked(&self, peer: usize, port: u16) -> Flow {
        let opening = Opening { target: here(port), ..Opening::named("", 0) };
        let open = self.peers[peer].open("far", opening, Span::from_secs(60));
        self.runtime.block_on(open).unwrap()
    }

    fn stream(&self, peer: usize, port: u16) -> Result<Flow, (Reason, String)> {
        self.flow(peer, here(port), Carries::Stream)
    }

    fn measure(&self, peer: usize, port: u16) -> Result<Flow, (Reason, String)> {
        let target = Target { host: Host::Name(MEASURES.to_owned()), port };
        self.flow(peer, target, Carries::Stream)
    }
}

fn here(port: u16) -> Target {
    Target { host: Host::Address(Ipv4Addr::LOCALHOST.into()), port }
}

#[test]
fn flows_of_one_peer_leave_places_to_clients_and_to_another_peer() {
    let (joined, origin) = (Joined::new(&["one", "two"], places), Origin::new());
    let packets = UdpSocket::bind("127.0.0.1:0").unwrap();
    let packets = here(packets.local_addr().unwrap().port());
    let (mut flows, mut servers) = (Vec::new(), Vec::new());
    let refusal = loop {
        // some carry packets
        let flow = match flows.len() % 3 {
            0 => joined.flow(0, packets.clone(), Carries::Packets),
            _ => joined.stream(0, origin.port()).inspect(|_| servers.push(origin.accept())),
        };
        match flow {
            Ok(flow) => flows.push(flow),
            Err(refusal) => break refusal,
        }
    };
    // a ninth is left
    assert_eq!(flows.len(), 267);
    assert!(refusal.0 == Reason::Exhausted && refusal.1.contains("beside others"), "{refusal:?}");
    let refusal = joined.stream(0, origin.port()).map(drop).unwrap_err();
    assert!(refusal.0 == Reason::Exhausted && refusal.1.contains("beside others"), "{refusal:?}");
    for _ in 0..35 {
        is_served(&mut joined.relay.client_at(OTHER), &origin);
    }
    let other = joined.stream(1, origin.port()).unwrap();
    let pressure = joined.relay.status().pressure;
    assert_eq!((pressure.share_refused, pressure.refused, pressure.silent_evicted), (2, 0, 0));
    assert_eq!(pressure.largest_source, 267);
    assert_eq!(pressure.largest_source_name.as_deref(), Some("peer one"));
    // those that end make room for others
    flows.truncate(200);
    wait_until(|| joined.stream(0, origin.port()).is_ok(), || "no place".to_owned());
    drop((flows, servers, other));
    joined.relay.settles();
}

#[test]
fn a_peer_closes_no_silent_connection_of_an_address_that_holds_as_few() {
    let (joined, origin) = (Joined::new(&["one"], places), Origin::new());
    let silent: Vec<_> = (0..PLACES / 2).map(|_| joined.relay.client()).collect();
    let used = || joined.relay.status().budgets[0].used;
    wait_until(|| used() == silent.len() as u64, || format!("{} connections", used()));
    let mut flows = Vec::new();
    for _ in 0..PLACES / 2 {
        flows.push((joined.stream(0, origin.port()).unwrap(), origin.accept()));
    }
    // for packets, too, which do not wait
    let refusals = [Carries::Stream, Carries::Packets].map(|carries| {
        let refused = joined.flow(0, here(origin.port()), carries);
        refused.map(drop).unwrap_err()
    });
    for (reason, words) in refusals {
        assert!(reason == Reason::Exhausted && words.contains("no room"), "{reason}: {words}");
    }
    assert_eq!(joined.relay.status().pressure.silent_evicted, 0);
    // somebody who holds nothing gets a silent one's place, and no flow's
    is_served(&mut joined.relay.client_at(OTHER), &origin);
    let status = joined.relay.status();
    assert_eq!(status.pressure.silent_evicted, 1);
    assert_eq!(status.tunnels[0].flows, flows.len() as u64);
    drop((silent, flows));
    joined.relay.settles();
}

#[test]
fn flows_that_wait_are_refused_once_their_peer_has_its_share() {
    let (joined, origin) = (
        Joined::new(&["one"], |settings| {
            settings.budgets.connections = 20;
            settings.pressure.waiting = 3;
            settings.pressure.patience = Span::from_secs(600);
        }),
        Origin::new(),
    );
    let mut clients: Vec<_> = (0..10).map(|_| joined.relay.client()).collect();
    let used = || joined.relay.status().budgets[0].used;
    wait_until(|| used() == 10, || format!("{} connections", used()));
    let mut flows = Vec::new();
    for _ in 0..10 {
        flows.push((joined.stream(0, origin.port()).unwrap(), origin.accept()));
    }
    let waiting: Vec<Flow> = (0..3).map(|_| joined.asked(0, origin.port())).collect();
    let wait = || joined.relay.status().pressure.waiting;
    wait_until(|| wait() == 3, || format!("{} wait", wait()));
    // what the clients ask for now leaves nothing to the peer
    let connect = format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.name);
    let mut servers = Vec::new();
    for client in &mut clients[..8] {
        client.send(&connect);
        assert!(client.head().starts_with("HTTP/1.1 200 "));
        servers.push(origin.accept());
    }
    clients.pop();
    for flow in waiting {
        let (reason, words) = joined.runtime.block_on(flow.answered()).unwrap_err();
        assert!(
            reason == Reason::Exhausted && words.contains("beside others"),
            "{reason}: {words}"
        );
    }
    // and nobody waits behind them
    is_served(&mut joined.relay.client_at(OTHER), &origin);
    let pressure = joined.relay.status().pressure;
    assert_eq!((pressure.share_refused, pressure.waiting), (3, 0));
    drop((flows, clients, servers));
    joined.relay.settles();
}

#[test]
fn flows_that_wait_at_a_stop_are_refused() {
    let origin = Origin::new();
    let mut joined = Joined::new(&["one"], |settings| {
        settings.budgets.connections = 20;
        settings.pressure.waiting = 3;
        settings.pressure.patience = Span::from_secs(600);
        settings.timeouts.request_head = Span::from_secs(600);
    });
    let mut clients: Vec<_> = (0..10).map(|_| joined.relay.client()).collect();
    // half a head, with which a stop is waited for
    clients.iter_mut().for_each(|client| client.send("GET http://exa"));
    let used = || joined.relay.status().budgets[0].used;
    wait_until(|| used() == 10, || format!("{} connections", used()));
    let mut flows = Vec::new();
    for _ in 0..10 {
        flows.push((joined.stream(0, origin.port()).unwrap(), origin.accept()));
    }
    let waiting: Vec<Flow> = (0..3).map(|_| joined.asked(0, origin.port())).collect();
    let wait = || joined.relay.status().pressure.waiting;
    wait_until(|| wait() == 3, || format!("{} wait", wait()));
    let stopping = joined.relay.begin_stop();
    for flow in waiting {
        let answered = async { tokio::time::timeout(PATIENCE, flow.answered()).await };
        let answered = joined.runtime.block_on(answered).expect("it waits for ever");
        let (reason, words) = answered.unwrap_err();
        assert!(reason == Reason::Exhausted && words.contains("no room"), "{reason}: {words}");
    }
    drop((clients, flows));
    assert_eq!(stopping.join().unwrap().cut, 0);
}

#[test]
fn a_flow_of_packets_that_is_cut_off_is_logged_as_the_relay_s_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let log = |settings: &mut Settings| settings.access_log = AccessLog::File(path.clone());
    let joined = Joined::new(&["one"], log);
    let beyond = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = here(beyond.local_addr().unwrap().port());
    let flow = joined.flow(0, to, Carries::Packets).unwrap();
    joined.relay.server.as_ref().unwrap().handle().cut();
    let left = || joined.relay.status().connections;
    wait_until(|| left().is_empty(), || format!("{:?}", left()));
    drop(flow);
    let text = joined.relay.logged(&path);
    let cut = "\"cut_by\":\"relay\",\"result\":\"cut off; 1 datagrams up, 0 down\"";
    assert!(text.contains(cut), "{text}");
}

#[test]
fn a_peer_measures_a_few_times_at_once() {
    let joined = Joined::new(&["one", "two"], |_| {});
    // the relay waits for bytes, and none are sent
    let mut running: Vec<_> = (0..4).map(|_| joined.measure(0, 130).unwrap()).collect();
    let (reason, words) = joined.measure(0, 130).map(drop).unwrap_err();
    assert!(reason == Reason::Exhausted && words.contains("measures"), "{reason}: {words}");
    let _other = joined.measure(1, 130).unwrap();
    running.pop();
    running.push(joined.measure(0, 130).unwrap());
}

#[test]
fn measurements_of_a_peer_count_against_the_account_behind_it() {
    // with accounts in a database, to none of which it belongs, too
    for directory in [None, Some(Arc::new(Book::default()) as Arc<dyn Directory>)] {
        measurements_count(directory);
    }
}

fn measurements_count(directory: Option<Arc<dyn Directory>>) {
    let joined = Joined::of(directory, &["one"], |settings| {
        settings.sharing.list = vec![Account {
            name: "home".to_owned(),
            addresses: vec![],
            peers: vec!["one".to_owned()],
            limits: AccountLimits::default(),
        }];
    });
    let flow = joined.measure(0, 101).unwrap().into_stream(|_, _, _| ());
    joined.runtime.block_on(async {
        let (mut from, mut to) = tokio::io::split(flow);
        let sending = async {
            while to.write_all(&[0; 10_000]).await.is_ok() {}
            std::future::pending::<()>().await;
        };
        let measured = tokio::select! {
            rate = from.read_u64() => rate.unwrap(),
            () = sending => unreachable!(),
        };
        assert!(measured > 0);
    });
    let account = joined.relay.status().sharing.unwrap().accounts.remove(0);
    assert!(account.name == "home" && account.bytes_up >= 10_000, "{account:?}");
}
