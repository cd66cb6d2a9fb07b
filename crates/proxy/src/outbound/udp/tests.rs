//! Datagrams to names, from sockets of this machine, with a name server of the test's own.

use super::direct::DirectSockets;
use super::route::{DatagramError, DatagramOwner, Received};
use crate::destination::{Destination, Host};
use crate::resources::Resources;
use crate::runtime::RuntimeConfig;
use crate::runtime::shared::Shared;
use crate::settings::{Budgets, DnsServer, Family, Settings};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::overload::Source;
use ekiden_model::units::{Bytes, Span, Time};
use ekiden_testkit::PATIENCE;
use hickory_resolver::proto::op::{Message, OpCode};
use hickory_resolver::proto::rr::rdata::A;
use hickory_resolver::proto::rr::{RData, Record};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Answers for A with an address that may change; for `held.…` once the gate opens, for `silent.…` never.
struct Names {
    at: SocketAddr,
    address: Mutex<Ipv4Addr>,
    asked: AtomicUsize,
    gate: Semaphore,
}

async fn names() -> Arc<Names> {
    let socket = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
    let names = Arc::new(Names {
        at: socket.local_addr().unwrap(),
        address: Mutex::new(Ipv4Addr::LOCALHOST),
        asked: AtomicUsize::new(0),
        gate: Semaphore::new(0),
    });
    let server = Arc::clone(&names);
    tokio::spawn(async move {
        let mut buffer = [0; 1_500];
        loop {
            let (n, from) = socket.recv_from(&mut buffer).await.unwrap();
            let query = Message::from_vec(&buffer[..n]).unwrap();
            let (server, socket) = (Arc::clone(&server), Arc::clone(&socket));
            tokio::spawn(async move { server.answer(&query, &socket, from).await });
        }
    });
    names
}

impl Names {
    async fn answer(&self, query: &Message, socket: &UdpSocket, from: SocketAddr) {
        self.asked.fetch_add(1, Relaxed);
        let name = query.queries[0].name().clone();
        let text = name.to_ascii();
        if text.starts_with("silent") {
            return;
        }
        if text.starts_with("held") {
            self.gate.acquire().await.unwrap().forget();
        }
        let mut reply = Message::response(query.id, OpCode::Query);
        reply.add_query(query.queries[0].clone());
        let address = RData::A(A(*locked(&self.address)));
        reply.add_answer(Record::from_rdata(name, 0, address));
        socket.send_to(&reply.to_vec().unwrap(), from).await.unwrap();
    }

    /// A relay's configuration that asks this server alone, each time, and lets loopback be reached; with so much memory
    /// for bytes in transit.
    fn config(&self, memory: Bytes) -> Arc<RuntimeConfig> {
        let mut settings = Settings::default();
        settings.budgets.memory = memory;
        settings.dns.servers = vec![DnsServer::Plain(self.at)];
        settings.dns.prefer = Family::Ipv4Only;
        settings.dns.max_ttl = Span::ZERO;
        settings.access.allow_destinations = vec!["127.0.0.0/8".parse().unwrap()];
        let (resources, _admitted) = Resources::new(&settings, false);
        let shared = Shared::new(&settings, resources, None);
        Arc::new(RuntimeConfig::new(Arc::new(settings), shared, None, None).unwrap())
    }
}

struct Client {
    config: Arc<RuntimeConfig>,
    sockets: DirectSockets,
}

impl Client {
    fn of(names: &Names) -> Self {
        let config = names.config(Budgets::default().memory);
        Self::at(&config, Ipv4Addr::LOCALHOST.into())
    }

    /// With this source's share of the memory.
    fn at(config: &Arc<RuntimeConfig>, source: IpAddr) -> Self {
        let config = Arc::clone(config);
        let owner = DatagramOwner::Client(Ipv4Addr::LOCALHOST.into(), None);
        let memory = config.shared.transfer_of(Source::from(source));
        Self { sockets: DirectSockets::new(Arc::clone(&config), owner, memory), config }
    }

    /// Whether a datagram of so many bytes waits for a name that is never found.
    fn keeps(&mut self, bytes: usize) -> bool {
        let to = Destination { host: Host::from_name("silent.example").unwrap(), port: 9 };
        let route = Arc::clone(self.config.route(&to));
        matches!(self.sockets.send_at(clock::now(), &route, &to, &vec![0; bytes]), Ok(false))
    }

    fn send(&mut self, now: Time, name: &str, port: u16, n: u8) -> Result<bool, DatagramError> {
        let to = Destination { host: Host::from_name(name).unwrap(), port };
        let route = Arc::clone(self.config.route(&to));
        self.sockets.send_at(now, &route, &to, &[n])
    }

    async fn ready(&mut self) {
        timeout(PATIENCE, self.sockets.ready()).await.unwrap();
    }

    /// Until so many datagrams that waited for names are sent.
    async fn sends(&mut self, mut count: usize) {
        while count > 0 {
            self.ready().await;
            while let Some(received) = self.sockets.receive() {
                assert!(matches!(received, Ok(Received::Sent(1))), "{received:?}");
                count -= 1;
            }
        }
    }
}

async fn server(address: Ipv4Addr, port: u16) -> UdpSocket {
    UdpSocket::bind((address, port)).await.unwrap()
}

async fn received(server: &UdpSocket) -> u8 {
    let mut payload = [0; 9];
    let received = timeout(PATIENCE, server.recv(&mut payload)).await;
    assert_eq!(received.unwrap().unwrap(), 1);
    payload[0]
}

#[tokio::test]
async fn a_name_that_is_not_answered_takes_no_place_of_others() {
    let names = names().await;
    let mut client = Client::of(&names);
    let server = server(Ipv4Addr::LOCALHOST, 0).await;
    let port = server.local_addr().unwrap().port();
    for n in 0..40 {
        let sent = client.send(clock::now(), "silent.example", port, n);
        assert!(matches!(sent, Ok(false)), "{n}: {sent:?}");
    }
    assert!(matches!(client.send(clock::now(), "there.example", port, 7), Ok(false)));
    client.sends(1).await;
    assert_eq!(received(&server).await, 7);
}

#[tokio::test]
async fn the_newest_datagrams_wait_for_one_lookup_and_leave_in_order() {
    let names = names().await;
    let mut client = Client::of(&names);
    let server = server(Ipv4Addr::LOCALHOST, 0).await;
    let port = server.local_addr().unwrap().port();
    for n in 0..20 {
        assert!(matches!(client.send(clock::now(), "held.example", port, n), Ok(false)));
    }
    // the library may repeat the question
    names.gate.add_permits(9);
    client.sends(8).await;
    for n in 12..20 {
        assert_eq!(received(&server).await, n);
    }
    assert_eq!(client.config.shared.udp.status(0).undelivered, 12);
    assert!(matches!(client.send(clock::now(), "held.example", port, 20), Ok(true)));
    assert_eq!(received(&server).await, 20);
}

#[tokio::test]
async fn datagrams_of_one_address_that_wait_leave_memory_to_others() {
    let names = names().await;
    let config = names.config(Bytes::new(1_000));
    let [one, other] = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
    let mut first = Client::at(&config, one);
    assert_eq!((0..8).filter(|_| first.keeps(100)).count(), 5);
    assert!(!Client::at(&config, one).keeps(100), "in each of its associations");
    assert!(Client::at(&config, other).keeps(100));
    drop(first);
    assert_eq!(config.shared.transfer.status()[1].used, 0);
    assert!(Client::at(&config, one).keeps(100));
}

#[tokio::test]
async fn a_source_has_one_count_of_bytes_in_transit_while_anything_of_it_is_left() {
    let config = names().await.config(Bytes::new(1_000));
    let resources = &config.shared.resources;
    let own = resources.in_transit(Source::V4(0));
    for other in 1..1_000 {
        drop(resources.in_transit(Source::V4(other)));
    }
    assert!(Arc::ptr_eq(&own, &resources.in_transit(Source::V4(0))));
}

#[tokio::test]
async fn a_host_that_moved_is_found_again() {
    let names = names().await;
    let mut client = Client::of(&names);
    let before = server(Ipv4Addr::new(127, 0, 8, 1), 0).await;
    let port = before.local_addr().unwrap().port();
    let after = server(Ipv4Addr::new(127, 0, 8, 2), port).await;
    *locked(&names.address) = Ipv4Addr::new(127, 0, 8, 1);
    assert!(matches!(client.send(clock::now(), "there.example", port, 0), Ok(false)));
    client.sends(1).await;
    assert_eq!(received(&before).await, 0);
    *locked(&names.address) = Ipv4Addr::new(127, 0, 8, 2);
    // nothing was lost yet, as far as is known
    assert!(matches!(client.send(clock::now(), "there.example", port, 1), Ok(true)));
    assert_eq!((received(&before).await, names.asked.load(Relaxed)), (1, 1));
    let later = clock::now() + Span::from_secs(31);
    for n in 2..4 {
        // the old address is used while the name is asked for, once
        assert!(matches!(client.send(later, "there.example", port, n), Ok(true)));
        assert_eq!(received(&before).await, n);
    }
    client.ready().await;
    assert!(client.sockets.receive().is_none());
    assert!(matches!(client.send(later, "there.example", port, 4), Ok(true)));
    assert_eq!((received(&after).await, names.asked.load(Relaxed)), (4, 2));
}
