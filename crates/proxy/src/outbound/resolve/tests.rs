//! Lookups of servers that answer, and of one that does not.

use super::*;
use crate::settings::Budgets;
use hickory_resolver::proto::op::{Message, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, SOA};
use hickory_resolver::proto::rr::{Name, Record};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// Sixty addresses for each name, but none for those that begin with `none` or have no dot; all for ten minutes. Of those
/// that begin with `v4`, there are none of IPv6, and nobody says for how long.
fn answer(query: &Message) -> Message {
    let name = query.queries[0].name().clone();
    let mut reply = Message::response(query.id, OpCode::Query);
    reply.add_query(query.queries[0].clone());
    if name.to_ascii().starts_with("none") || name.num_labels() == 1 {
        let zone = Name::from_ascii("example.").unwrap();
        let soa = SOA::new(zone.clone(), zone.clone(), 1, 2, 3, 4, 600);
        reply.metadata.response_code = ResponseCode::NXDomain;
        reply.add_authority(Record::from_rdata(zone, 600, RData::SOA(soa)));
    } else if name.to_ascii().starts_with("v4") && query.queries[0].query_type() == RecordType::AAAA
    {
        // as dnsmasq answers for local names
    } else {
        for n in 0..60 {
            let address = RData::A(A::new(192, 0, 2, n));
            reply.add_answer(Record::from_rdata(name.clone(), 600, address));
        }
    }
    reply
}

/// By the files of a folder.
fn system(folder: &Path) -> Arc<SystemNames> {
    Arc::new(SystemNames::new(&folder.join("resolv.conf"), &folder.join("hosts"), true))
}

fn no_system() -> Arc<SystemNames> {
    system(Path::new("/none"))
}

fn rate(dns: &Dns) -> Arc<NameRate> {
    Arc::new(NameRate::new(dns))
}

/// A resolver, and how many questions its server had.
async fn resolver(change: impl FnOnce(&mut Dns)) -> (Resolver, Arc<AtomicUsize>) {
    resolver_by(no_system(), change).await
}

async fn resolver_by(
    system: Arc<SystemNames>,
    change: impl FnOnce(&mut Dns),
) -> (Resolver, Arc<AtomicUsize>) {
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let servers = vec![server.local_addr().unwrap().into()];
    let mut dns = Dns { servers, hosts_file: false, ..Dns::default() };
    change(&mut dns);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut buffer = [0; 1_500];
        while let Ok((n, from)) = server.recv_from(&mut buffer).await {
            count.fetch_add(1, Relaxed);
            let reply = answer(&Message::from_vec(&buffer[..n]).unwrap());
            server.send_to(&reply.to_vec().unwrap(), from).await.unwrap();
        }
    });
    let places = Arc::new(NamePlaces::new(&Budgets::default()));
    (Resolver::new(&dns, Span::from_secs(60), places, system, rate(&dns)).unwrap(), asked)
}

#[tokio::test]
async fn of_a_long_answer_the_first_addresses_are_kept() {
    let (resolver, asked) = resolver(|_| {}).await;
    let first: Vec<IpAddr> = (0..32).map(|n| [192, 0, 2, n].into()).collect();
    for _ in 0..3 {
        let found = resolver.lookup("long.example", false, &Asker::Relay).await;
        assert_eq!(found, Ok(first.clone()));
    }
    assert_eq!(asked.load(Relaxed), 1);
    assert_eq!(resolver.looking().inner.options().cache_size, 0, "the library keeps no messages");
}

#[tokio::test]
async fn answers_are_asked_for_again_after_the_times_of_the_settings() {
    async fn asked(name: &str, change: impl FnOnce(&mut Dns)) -> usize {
        let (resolver, asked) = resolver(change).await;
        for _ in 0..3 {
            resolver.lookup(name, false, &Asker::Relay).await.unwrap();
        }
        asked.load(Relaxed)
    }
    assert_eq!(asked("none.example", |_| {}).await, 1);
    assert_eq!(asked("none.example", |dns| dns.negative_ttl = Span::ZERO).await, 3);
    // each of the two times holds for its own answers
    assert_eq!(asked("none.example", |dns| dns.max_ttl = Span::ZERO).await, 1);
    assert_eq!(asked("long.example", |dns| dns.negative_ttl = Span::ZERO).await, 1);
    assert_eq!(asked("long.example", |dns| dns.max_ttl = Span::ZERO).await, 3);
}

#[tokio::test]
async fn a_changed_hosts_file_holds_at_once_and_a_missing_one_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let hosts = folder.path().join("hosts");
    fs::write(&hosts, "192.0.2.1 box.example\n").unwrap();
    let (system, places) = (system(folder.path()), Arc::new(NamePlaces::new(&Budgets::default())));
    let dns = Dns::default();
    let limit = Span::from_secs(60);
    let resolver = Resolver::new(&dns, limit, places, Arc::clone(&system), rate(&dns)).unwrap();
    let look = || resolver.lookup("box.example", false, &Asker::Relay);
    assert_eq!(look().await, Ok(vec![[192, 0, 2, 1].into()]));
    fs::write(&hosts, "192.0.2.22 box.example\n").unwrap();
    system.refresh();
    assert_eq!(look().await, Ok(vec![[192, 0, 2, 22].into()]));
    fs::remove_file(&hosts).unwrap();
    system.refresh();
    assert_eq!(look().await, Ok(vec![[192, 0, 2, 22].into()]));
}

#[tokio::test]
async fn a_changed_hosts_file_comes_before_what_is_kept_and_leaves_other_names_kept() {
    let folder = tempfile::tempdir().unwrap();
    let system = system(folder.path());
    let (resolver, asked) = resolver_by(Arc::clone(&system), |dns| dns.hosts_file = true).await;
    let look = |name: &'static str| resolver.lookup(name, false, &Asker::Relay);
    for name in ["a.example", "b.example"] {
        assert_eq!(look(name).await.unwrap().len(), MOST_ADDRESSES);
    }
    fs::write(folder.path().join("hosts"), "192.0.2.200 a.example\n").unwrap();
    system.refresh();
    assert_eq!(look("a.example").await, Ok(vec![[192, 0, 2, 200].into()]));
    assert_eq!(look("b.example").await.unwrap().len(), MOST_ADDRESSES);
    assert_eq!(asked.load(Relaxed), 2);
}

#[tokio::test]
async fn a_name_without_dots_is_looked_for_in_the_hosts_file_and_the_search_domains() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("resolv.conf"), "search lan\nnameserver 192.0.2.1\n").unwrap();
    fs::write(folder.path().join("hosts"), "192.0.2.200 box\n").unwrap();
    // with servers of the settings
    let (resolver, asked) = resolver_by(system(folder.path()), |dns| dns.hosts_file = true).await;
    let look = |name: &'static str| resolver.lookup(name, false, &Asker::Relay);
    assert_eq!(look("box").await, Ok(vec![[192, 0, 2, 200].into()]));
    // it has no other addresses, wherever
    assert_eq!(resolver.lookup("box", true, &Asker::Relay).await, Ok(Vec::new()));
    assert_eq!(asked.load(Relaxed), 0);
    assert_eq!(look("printer").await.unwrap().len(), MOST_ADDRESSES);
}

#[tokio::test]
async fn names_beyond_the_number_of_the_settings_are_asked_for_again() {
    let (resolver, asked) = resolver(|dns| dns.cache = 2).await;
    for name in ["a.example", "b.example", "c.example", "c.example", "a.example"] {
        resolver.lookup(name, false, &Asker::Relay).await.unwrap();
    }
    assert_eq!(asked.load(Relaxed), 4);
}

#[tokio::test]
async fn equal_questions_on_their_way_are_one() {
    let (resolver, asked) = resolver(|dns| dns.max_ttl = Span::ZERO).await;
    let look = || resolver.lookup("long.example", false, &Asker::Relay);
    let (one, two, three) = tokio::join!(look(), look(), look());
    assert!(one.is_ok() && one == two && two == three);
    assert_eq!(asked.load(Relaxed), 1);
}

/// A resolver with 16 places whose server never answers.
async fn silent() -> (Arc<Resolver>, UdpSocket) {
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let servers = vec![server.local_addr().unwrap().into()];
    let dns = Dns { servers, hosts_file: false, ..Dns::default() };
    let budgets = Budgets { lookups: 16, ..Budgets::default() };
    let places = Arc::new(NamePlaces::new(&budgets));
    let resolver =
        Resolver::new(&dns, Span::from_secs(60), places, no_system(), rate(&dns)).unwrap();
    (Arc::new(resolver), server)
}

/// A lookup of the client with this number.
fn look(
    resolver: &Arc<Resolver>,
    name: impl std::fmt::Display,
    client: u8,
) -> JoinHandle<Result<Vec<IpAddr>, String>> {
    let (resolver, name) = (Arc::clone(resolver), format!("{name}.example"));
    let asker = Asker::at([192, 0, 2, client].into());
    tokio::spawn(async move { resolver.lookup(&name, false, &asker).await })
}

/// Answers all that a server of [`silent`] is asked from now on, and was asked before.
fn speak(server: UdpSocket) {
    tokio::spawn(async move {
        let mut buffer = [0; 1_500];
        while let Ok((n, from)) = server.recv_from(&mut buffer).await {
            let reply = answer(&Message::from_vec(&buffer[..n]).unwrap());
            server.send_to(&reply.to_vec().unwrap(), from).await.unwrap();
        }
    });
}

/// Of all that wait for a place, whose it would be.
fn waiting(resolver: &Resolver) -> Vec<Asker> {
    let looking = resolver.looking();
    let all = locked(&looking.on_their_way);
    let waits = |tell: &Arc<watch::Sender<Told>>| match &*tell.borrow() {
        Told::Waits(of) => Some(of.clone()),
        Told::OnItsWay | Told::Ended(_) => None,
    };
    all.values().filter_map(waits).collect()
}

/// All that can go on without a server and a later time has gone on.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn three_hundred_new_names_of_one_client_at_once_are_all_found() {
    let (resolver, server) = silent().await;
    let all: Vec<_> = (0..300).map(|n| look(&resolver, n, 1)).collect();
    settle().await;
    assert_eq!(resolver.looking().places.waiting(), 300 - 16);
    speak(server);
    for one in all {
        assert_eq!(one.await.unwrap().unwrap().len(), MOST_ADDRESSES);
    }
    assert_eq!(resolver.looking().places.waiting(), 0);
}

#[tokio::test]
async fn a_crowd_of_one_client_keeps_no_name_from_another_and_goes_on() {
    let (resolver, server) = silent().await;
    let mut all: Vec<_> = (0..20).map(|n| look(&resolver, n, 1)).collect();
    settle().await;
    // a name of its own, and one that the crowd waits for: each takes a place of the crowd's
    all.extend([look(&resolver, "other", 2), look(&resolver, 19, 2)]);
    settle().await;
    assert_eq!(resolver.looking().places.waiting(), 6);
    speak(server);
    for one in all {
        assert_eq!(one.await.unwrap().unwrap().len(), MOST_ADDRESSES);
    }
    assert!(locked(&resolver.looking().on_their_way).is_empty());
}

#[tokio::test(start_paused = true)]
async fn many_lookups_of_one_client_take_no_place_of_another() {
    let (resolver, _server) = silent().await;
    let mut one: Vec<_> = (0..20).map(|n| look(&resolver, n, 1)).collect();
    // once they are old
    for gone in one.drain(..4) {
        assert_eq!(gone.await.unwrap(), Err(TOO_MANY.to_owned()));
    }
    let other = look(&resolver, "other", 2);
    assert_eq!(one.remove(0).await.unwrap(), Err(TOO_MANY.to_owned()));
    // what is known here takes no place, and an equal lookup no second one
    assert!(resolver.lookup("localhost", false, &Asker::at([192, 0, 2, 3].into())).await.is_ok());
    let beside = look(&resolver, 19, 4);
    settle().await;
    assert!(one.iter().chain([&other, &beside]).all(|lookup| !lookup.is_finished()));
    assert_eq!((one.len(), resolver.looking().places.waiting()), (15, 0));
}

#[tokio::test]
async fn those_behind_a_tunnel_have_the_places_of_one_asker() {
    let (resolver, _server) = silent().await;
    let whole = Arc::new(Asker::Peer("near".into()));
    let client = [look(&resolver, 0, 1), look(&resolver, 1, 1)];
    let behind = |number: u8| {
        let asker = Asker::Behind(Arc::clone(&whole), number);
        let (resolver, name) = (Arc::clone(&resolver), format!("behind{number}.example"));
        tokio::spawn(async move { resolver.lookup(&name, false, &asker).await })
    };
    let peer: Vec<_> = (0..14).map(behind).collect();
    settle().await;
    assert!(waiting(&resolver).is_empty());
    let other = look(&resolver, "other", 2);
    settle().await;
    assert_eq!(waiting(&resolver), [Asker::clone(&whole)]);
    assert!(client.iter().chain(&peer).chain([&other]).all(|lookup| !lookup.is_finished()));
}

#[tokio::test]
async fn a_lookup_goes_on_for_others_that_wait_when_its_first_asker_leaves() {
    let (resolver, server) = silent().await;
    let first = look(&resolver, "a", 1);
    let mut buffer = [0; 1_500];
    server.recv_from(&mut buffer).await.unwrap();
    let second = look(&resolver, "a", 2);
    tokio::task::yield_now().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    speak(server);
    assert_eq!(second.await.unwrap().unwrap().len(), MOST_ADDRESSES);
    assert!(locked(&resolver.looking().on_their_way).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_place_that_gives_way_is_lost_to_all_lookups_of_its_asker_and_no_others() {
    let (resolver, _server) = silent().await;
    let mut one: Vec<_> = (0..32).map(|n| look(&resolver, n / 2, 1)).collect();
    let newest = look(&resolver, 16, 1);
    for gone in one.drain(..2) {
        assert_eq!(gone.await.unwrap(), Err(TOO_MANY.to_owned()));
    }
    settle().await;
    assert!(one.iter().chain([&newest]).all(|lookup| !lookup.is_finished()));
}

#[tokio::test]
async fn new_names_of_a_client_have_a_rate_and_known_ones_are_free() {
    // fifty at once
    let (resolver, asked) = resolver(|dns| dns.rate = 1).await;
    let one = Asker::at([192, 0, 2, 1].into());
    let look = |name: String, asker: &Asker| {
        let (resolver, asker) = (&resolver, asker.clone());
        async move { resolver.lookup(&name, false, &asker).await.map(|found| found.len()) }
    };
    let mut ends = Vec::new();
    for n in 0..1_000 {
        ends.push(look(format!("n{n}.example"), &one).await);
        if ends.last() == Some(&Err(TOO_MANY.to_owned())) {
            break;
        }
    }
    let found = ends.iter().filter(|end| **end == Ok(MOST_ADDRESSES)).count();
    assert!(found >= 50 && found + 1 == ends.len(), "{ends:?}");
    assert_eq!(asked.load(Relaxed), found, "the last was asked of nobody");
    for n in 0..10 {
        assert_eq!(look(format!("n{n}.example"), &one).await, Ok(MOST_ADDRESSES), "it is kept");
    }
    // others' are theirs, and the relay's own have none
    let other = Asker::at([192, 0, 2, 2].into());
    assert_eq!(look("other.example".to_owned(), &other).await, Ok(MOST_ADDRESSES));
    for n in 0..50 {
        let own = look(format!("own{n}.example"), &Asker::Relay).await;
        assert_eq!(own, Ok(MOST_ADDRESSES));
    }
}

#[tokio::test]
async fn the_other_family_of_a_known_name_has_a_rate_of_its_own() {
    // two hundred at once
    let (resolver, asked) = resolver(|dns| dns.rate = 4).await;
    let one = Asker::at([192, 0, 2, 1].into());
    assert!(resolver.lookup("v4.example", false, &one).await.is_ok());
    for _ in 0..200 {
        assert_eq!(resolver.lookup("v4.example", true, &one).await, Ok(Vec::new()));
    }
    assert_eq!(asked.load(Relaxed), 201, "nobody says for how long there is none");
    let mut more = 0;
    while resolver.lookup("v4.example", true, &one).await.is_ok() {
        more += 1;
    }
    assert!(more >= 199, "{more}");
}
