//! Cached name resolution, one address family at a time.

use crate::outbound::kept_addresses::KeptAddresses;
use crate::outbound::lookups::Lookups;
use crate::outbound::name_places::NamePlaces;
use crate::settings::{Dns, DnsServer, Family};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::connect::happy_eyeballs::{FamilyAnswers, MOST_ADDRESSES};
use ekiden_model::dns::Asker;
use ekiden_model::units::Span;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::rr::{RData, RecordType};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

/// After a try that was not answered, which the library forgets a moment later.
const PAUSE: Duration = Duration::from_millis(20);
/// Why a lookup whose place gave way has failed.
const TOO_MANY: &str = "too many names are being looked up";

/// What all are told that wait for a lookup; `None`: it is on its way.
type Told = Option<Result<Vec<IpAddr>, String>>;

#[derive(Debug)]
pub(crate) struct Resolver {
    inner: TokioResolver,
    limit: Duration,
    prefer: Family,
    kept: Mutex<KeptAddresses>,
    /// The longest times of what is kept. The library sees to the shortest one.
    max_ttl: Span,
    negative_ttl: Span,
    answers: Mutex<FamilyAnswers>,
    lookups: Lookups,
    /// Of all configurations.
    places: Arc<NamePlaces>,
    /// Lookups on their way, by name and whether they are for IPv6.
    on_their_way: Mutex<BTreeMap<(String, bool), watch::Receiver<Told>>>,
}

/// A lookup that equal ones wait for, until it is dropped.
#[derive(Debug)]
struct FirstLookup<'a> {
    resolver: &'a Resolver,
    key: (String, bool),
    tell: watch::Sender<Told>,
}

impl Drop for FirstLookup<'_> {
    fn drop(&mut self) {
        locked(&self.resolver.on_their_way).remove(&self.key);
    }
}

impl Resolver {
    /// Fails in words, when the resolver cannot be built.
    pub(crate) fn new(dns: &Dns, timeout: Span, places: Arc<NamePlaces>) -> Result<Self, String> {
        let plain = |server: &DnsServer| match server {
            DnsServer::Plain(at) => Some(*at),
            DnsServer::Tls { .. } | DnsServer::Https { .. } | DnsServer::Tunnel { .. } => None,
        };
        let servers: Option<Vec<_>> = dns.servers.iter().map(plain).collect();
        let (config, mut options) = match servers.as_deref() {
            // `outbound::dns` asks them; addresses and the hosts file are read here
            None => (ResolverConfig::from_parts(None, vec![], vec![]), ResolverOpts::default()),
            Some([]) => hickory_resolver::system_conf::read_system_conf().unwrap_or_else(|error| {
                // without name servers, addresses and the hosts file still work
                tracing::warn!(%error, "no name servers: /etc/resolv.conf cannot be used; only addresses and the hosts file will resolve");
                (ResolverConfig::from_parts(None, vec![], vec![]), ResolverOpts::default())
            }),
            Some(servers) => (configured(servers), ResolverOpts::default()),
        };
        // it would keep whole messages, each of which a zone's owner may make take a MiB
        options.cache_size = 0;
        options.positive_min_ttl = Some(dns.min_ttl.into());
        options.positive_max_ttl = Some(dns.max_ttl.into());
        options.negative_max_ttl = Some(dns.negative_ttl.into());
        options.use_hosts_file =
            if dns.hosts_file { ResolveHosts::Always } else { ResolveHosts::Never };
        // one try and one retry within the time-out
        let limit = Duration::from(timeout);
        options.timeout = limit / 2;
        options.attempts = 1;
        let inner = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            .with_options(options)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self {
            inner,
            limit,
            prefer: dns.prefer,
            kept: Mutex::new(KeptAddresses::new(dns.cache as usize)),
            max_ttl: dns.max_ttl,
            negative_ttl: dns.negative_ttl,
            answers: Mutex::default(),
            lookups: Lookups::default(),
            places,
            on_their_way: Mutex::default(),
        })
    }

    /// Which families to query: IPv6, IPv4.
    pub(crate) const fn families(&self) -> (bool, bool) {
        (!matches!(self.prefer, Family::Ipv4Only), !matches!(self.prefer, Family::Ipv6Only))
    }

    /// What is known of the preferred family's answers, to ask or to tell.
    pub(crate) fn answers<T>(&self, act: impl FnOnce(&mut FamilyAnswers) -> T) -> T {
        act(&mut locked(&self.answers))
    }

    /// Names that are being looked up.
    pub(crate) const fn lookups(&self) -> &Lookups {
        &self.lookups
    }

    /// The first of equal lookups, or what it will tell.
    fn first(&self, name: &str, ipv6: bool) -> Result<FirstLookup<'_>, watch::Receiver<Told>> {
        let key = (name.to_owned(), ipv6);
        let mut all = locked(&self.on_their_way);
        if let Some(first) = all.get(&key) {
            return Err(first.clone());
        }
        let (tell, told) = watch::channel(None);
        all.insert(key.clone(), told);
        Ok(FirstLookup { resolver: self, key, tell })
    }

    /// `None`: its place gave way to another's.
    async fn lookup_in_place(
        &self,
        (name, ipv6): (&str, bool),
        asker: &Asker,
        end: Instant,
    ) -> Option<Result<Lookup, NetError>> {
        let kind = if ipv6 { RecordType::AAAA } else { RecordType::A };
        // absolute, so that no search domain is appended; a name without dots is local
        let absolute = if name.contains('.') { format!("{name}.") } else { name.to_owned() };
        // given back once the sockets are closed
        let mut place;
        let mut looking = pin!(self.lookup_in_time(absolute, kind, end));
        // what is known here, as by the hosts file, is there at once and takes no place
        if let Poll::Ready(found) = poll_fn(|cx| Poll::Ready(looking.as_mut().poll(cx))).await {
            return Some(found);
        }
        place = self.places.take(asker);
        tokio::select! {
            found = &mut looking => Some(found),
            () = place.gave_way() => None,
        }
    }

    async fn lookup_in_time(
        &self,
        name: String,
        kind: RecordType,
        end: Instant,
    ) -> Result<Lookup, NetError> {
        loop {
            match self.inner.lookup(name.as_str(), kind).await {
                Err(NetError::Timeout) if Instant::now() < end => sleep(PAUSE).await,
                outcome => return outcome,
            }
        }
    }

    /// The first [`MOST_ADDRESSES`] of one family, possibly none; fails in words: no such name, no answer, too many
    /// lookups of this asker. Equal lookups are one, of whoever asks first. One that outlives it has its whole time.
    pub(crate) async fn lookup(
        &self,
        name: &str,
        ipv6: bool,
        asker: &Asker,
    ) -> Result<Vec<IpAddr>, String> {
        let known = locked(&self.kept).used(clock::now(), name, ipv6);
        if let Some(known) = known {
            return Ok(known);
        }
        let _lookup = self.lookups.begin(name);
        let end = Instant::now() + self.limit;
        let first = loop {
            let mut telling = match self.first(name, ipv6) {
                Ok(first) => break first,
                Err(telling) => telling,
            };
            // or each of those that wait for a silent server would have its tries after the others'
            let told = timeout_at(end, telling.wait_for(Option::is_some)).await;
            let told = told.map_err(|_| NetError::Timeout.to_string())?;
            // else it ended without an answer, and another is the first
            if let Some(found) = told.ok().and_then(|told| (*told).clone()) {
                return found;
            }
        };
        let Some(found) = self.lookup_in_place((name, ipv6), asker, end).await else {
            return Err(TOO_MANY.to_owned());
        };
        let found = match found {
            // others may have more time
            Err(error @ NetError::Timeout) => return Err(error.to_string()),
            found => self.keep(name, ipv6, found),
        };
        first.tell.send_replace(Some(found.clone()));
        found
    }

    /// Keeps what was found for its time.
    fn keep(
        &self,
        name: &str,
        ipv6: bool,
        found: Result<Lookup, NetError>,
    ) -> Result<Vec<IpAddr>, String> {
        let (found, ttl) = match found {
            Ok(found) => {
                let left = found.valid_until().saturating_duration_since(std::time::Instant::now());
                // what no server was asked for is valid for a day
                (addresses(&found), Span::from(left).min(self.max_ttl))
            }
            Err(NetError::Dns(DnsError::NoRecordsFound(none))) => {
                // without the zone's word it may be asked for again at once (RFC 2308 §5)
                let ttl = Span::from_secs(none.negative_ttl.unwrap_or(0).into());
                (Vec::new(), ttl.min(self.negative_ttl))
            }
            Err(error) => return Err(error.to_string()),
        };
        locked(&self.kept).keep(clock::now(), name, ipv6, &found, ttl);
        Ok(found)
    }
}

/// As many as a connection tries.
fn addresses(found: &Lookup) -> Vec<IpAddr> {
    let addresses = found.answers().iter().filter_map(|record| match record.data {
        RData::A(address) => Some(IpAddr::V4(address.0)),
        // an address that maps an IPv4 address is that address, for the rules and the kernel
        RData::AAAA(address) => Some(IpAddr::V6(address.0).to_canonical()),
        _ => None,
    });
    addresses.take(MOST_ADDRESSES).collect()
}

fn configured(servers: &[std::net::SocketAddr]) -> ResolverConfig {
    let servers = servers.iter().map(|server| {
        let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
        for connection in &mut connections {
            connection.port = server.port();
        }
        NameServerConfig::new(server.ip(), true, connections)
    });
    ResolverConfig::from_parts(None, vec![], servers.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Budgets;
    use hickory_resolver::proto::op::{Message, OpCode, ResponseCode};
    use hickory_resolver::proto::rr::rdata::{A, SOA};
    use hickory_resolver::proto::rr::{Name, Record};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use tokio::net::UdpSocket;
    use tokio::task::JoinHandle;

    /// Sixty addresses for each name, but none for those that begin with `none`; all for ten minutes.
    fn answer(query: &Message) -> Message {
        let name = query.queries[0].name().clone();
        let mut reply = Message::response(query.id, OpCode::Query);
        reply.add_query(query.queries[0].clone());
        if name.to_ascii().starts_with("none") {
            let zone = Name::from_ascii("example.").unwrap();
            let soa = SOA::new(zone.clone(), zone.clone(), 1, 2, 3, 4, 600);
            reply.metadata.response_code = ResponseCode::NXDomain;
            reply.add_authority(Record::from_rdata(zone, 600, RData::SOA(soa)));
        } else {
            for n in 0..60 {
                let address = RData::A(A::new(192, 0, 2, n));
                reply.add_answer(Record::from_rdata(name.clone(), 600, address));
            }
        }
        reply
    }

    /// A resolver, and how many questions its server had.
    async fn resolver(change: impl FnOnce(&mut Dns)) -> (Resolver, Arc<AtomicUsize>) {
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
        (Resolver::new(&dns, Span::from_secs(60), places).unwrap(), asked)
    }

    #[tokio::test]
    async fn of_a_long_answer_so_many_addresses_are_kept_as_are_tried() {
        let (resolver, asked) = resolver(|_| {}).await;
        let first: Vec<IpAddr> = (0..32).map(|n| [192, 0, 2, n].into()).collect();
        for _ in 0..3 {
            let found = resolver.lookup("long.example", false, &Asker::Relay).await;
            assert_eq!(found, Ok(first.clone()));
        }
        assert_eq!(asked.load(Relaxed), 1);
        assert_eq!(resolver.inner.options().cache_size, 0, "the library keeps no messages");
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
        (Arc::new(Resolver::new(&dns, Span::from_secs(60), places).unwrap()), server)
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

    #[tokio::test]
    async fn many_lookups_of_one_client_take_no_place_of_anothers() {
        let (resolver, _server) = silent().await;
        let mut one: Vec<_> = (0..20).map(|n| look(&resolver, n, 1)).collect();
        for gone in one.drain(..4) {
            assert_eq!(gone.await.unwrap(), Err(TOO_MANY.to_owned()));
        }
        let other = look(&resolver, "other", 2);
        assert_eq!(one.remove(0).await.unwrap(), Err(TOO_MANY.to_owned()));
        // what is known here takes no place, and an equal lookup no second one
        assert!(
            resolver.lookup("localhost", false, &Asker::at([192, 0, 2, 3].into())).await.is_ok()
        );
        let beside = look(&resolver, 19, 4);
        tokio::task::yield_now().await;
        assert!(one.iter().chain([&other, &beside]).all(|lookup| !lookup.is_finished()));
        assert_eq!(one.len(), 15);
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
        tokio::spawn(async move {
            while let Ok((n, from)) = server.recv_from(&mut buffer).await {
                let reply = answer(&Message::from_vec(&buffer[..n]).unwrap());
                server.send_to(&reply.to_vec().unwrap(), from).await.unwrap();
            }
        });
        assert_eq!(second.await.unwrap().unwrap().len(), MOST_ADDRESSES);
        assert!(locked(&resolver.on_their_way).is_empty());
    }
}
