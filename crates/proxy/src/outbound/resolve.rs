//! Cached name resolution, one address family at a time.

pub(crate) mod system_names;

use crate::outbound::dns::name_rate::NameRate;
use crate::outbound::kept_addresses::KeptAddresses;
use crate::outbound::lookups::Lookups;
use crate::outbound::name_places::NamePlaces;
use crate::settings::{Dns, DnsServer, Family};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::connect::happy_eyeballs::FamilyAnswers;
use ekiden_model::dns::Asker;
use ekiden_model::units::Span;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverOpts};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use system_names::{Known, SystemNames};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

/// Addresses of one family that are kept of an answer. Fewer are tried, but rules may deny some of them.
const MOST_ADDRESSES: usize = 32;
/// After a try that was not answered, which the library forgets a moment later.
const PAUSE: Duration = Duration::from_millis(20);
/// Why a lookup has failed that had no place in time, whose place gave way, or which was above the rate of its asker.
pub(crate) const TOO_MANY: &str = "too many names are being looked up";

/// A name, and whether its addresses of IPv6 are wanted.
type Key = (String, bool);
/// What all are told that wait for a lookup.
#[derive(Debug, Clone)]
enum Told {
    OnItsWay,
    /// It waits for a place of this asker.
    Waits(Asker),
    Ended(LookupEnd),
}

impl Told {
    /// Whether this asker has nothing more to wait for: in the line of others nobody else waits.
    fn is_over_for(&self, asker: &Asker) -> bool {
        match self {
            Self::OnItsWay => false,
            Self::Waits(of) => of != asker.whole(),
            Self::Ended(_) => true,
        }
    }
}

#[derive(Debug, Clone)]
enum LookupEnd {
    Found(Result<Vec<IpAddr>, String>),
    /// No server has answered in its time.
    Late,
    /// It had no place of this asker in time, or one that gave way.
    GaveWay(Asker),
}

#[derive(Debug)]
pub(crate) struct Resolver {
    dns: Dns,
    system: Arc<SystemNames>,
    /// By what `/etc/resolv.conf` says.
    looking: Mutex<Arc<Looking>>,
    limit: Duration,
    answers: Mutex<FamilyAnswers>,
    lookups: Lookups,
    /// Where plain servers alone are asked. If not, this resolver asks none.
    rate: Option<Arc<NameRate>>,
}

type OnTheirWay = BTreeMap<Key, Arc<watch::Sender<Told>>>;

/// What lookups need. They are tasks, because one goes on for others when who began it leaves.
#[derive(Debug)]
struct Looking {
    inner: TokioResolver,
    /// Whether it asks any.
    has_servers: bool,
    known: Arc<Known>,
    kept: Mutex<KeptAddresses>,
    /// The longest times of what is kept. The library sees to the shortest one.
    max_ttl: Span,
    negative_ttl: Span,
    /// Of all configurations.
    places: Arc<NamePlaces>,
    on_their_way: Mutex<OnTheirWay>,
}

/// A lookup that others may join, until it is dropped.
#[derive(Debug)]
struct OnItsWay {
    looking: Arc<Looking>,
    key: Key,
    tell: Arc<watch::Sender<Told>>,
}

impl OnItsWay {
    /// Whether nobody waits, and nobody joins it from now on.
    fn is_left(&self) -> bool {
        let mut all = locked(&self.looking.on_their_way);
        let left = self.tell.receiver_count() == 0;
        if left {
            self.leave(&mut all);
        }
        left
    }

    /// Nobody joins it from now on.
    fn leave(&self, all: &mut OnTheirWay) {
        // another one may have begun
        if all.get(&self.key).is_some_and(|tell| Arc::ptr_eq(tell, &self.tell)) {
            all.remove(&self.key);
        }
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.leave(&mut locked(&self.looking.on_their_way));
    }
}

impl Resolver {
    /// Fails in words, when the resolver cannot be built.
    pub(crate) fn new(
        dns: &Dns,
        timeout: Span,
        places: Arc<NamePlaces>,
        system: Arc<SystemNames>,
        rate: Arc<NameRate>,
    ) -> Result<Self, String> {
        let (known, limit) = (system.known(), Duration::from(timeout));
        if dns.servers.is_empty() && known.servers.is_none() {
            // without name servers, addresses and the hosts file still work
            tracing::warn!(
                "there is no name server in /etc/resolv.conf; until it names one, only addresses and the hosts file will resolve"
            );
        }
        let looking = Looking::new(dns, limit, known, places)?;
        let are_plain = dns.servers.iter().all(|server| matches!(server, DnsServer::Plain(_)));
        Ok(Self {
            dns: dns.clone(),
            system,
            looking: Mutex::new(Arc::new(looking)),
            limit,
            answers: Mutex::default(),
            lookups: Lookups::default(),
            rate: are_plain.then_some(rate),
        })
    }

    /// Made anew where `/etc/resolv.conf` has changed. Lookups on their way end by what it said before.
    fn looking(&self) -> Arc<Looking> {
        // it keeps many names, and goes when others need not wait for the lock any more
        let _before;
        let mut looking = locked(&self.looking);
        let known = self.system.known();
        if !Arc::ptr_eq(&looking.known, &known) {
            let places = Arc::clone(&looking.places);
            if let Ok(new) = Looking::new(&self.dns, self.limit, known, places) {
                _before = std::mem::replace(&mut *looking, Arc::new(new));
            }
        }
        Arc::clone(&looking)
    }

    /// Which families to query: IPv6, IPv4.
    pub(crate) const fn families(&self) -> (bool, bool) {
        (!matches!(self.dns.prefer, Family::Ipv4Only), !matches!(self.dns.prefer, Family::Ipv6Only))
    }

    /// What is known of the preferred family's answers, to ask or to tell.
    pub(crate) fn answers<T>(&self, act: impl FnOnce(&mut FamilyAnswers) -> T) -> T {
        act(&mut locked(&self.answers))
    }

    /// Names that are being looked up.
    pub(crate) const fn lookups(&self) -> &Lookups {
        &self.lookups
    }

    /// The addresses of one family that the hosts file has, where the settings want it. `None`: the name is not in it. One
    /// that is in it with the other family alone has none: as for other programs, no server is asked for it.
    pub(crate) fn in_hosts_file(&self, name: &str, ipv6: bool) -> Option<Vec<IpAddr>> {
        if !self.dns.hosts_file {
            return None;
        }
        let name = Name::from_utf8(name).ok()?;
        let query = |ipv6| {
            let kind = if ipv6 { RecordType::AAAA } else { RecordType::A };
            Query::query(name.clone(), kind)
        };
        self.system.hosts(|hosts| {
            let found = hosts.lookup_static_host(&query(ipv6)).map(|found| addresses(&found));
            found.or_else(|| hosts.lookup_static_host(&query(!ipv6)).map(|_| Vec::new()))
        })
    }

    /// The first [`MOST_ADDRESSES`] of one family, possibly none; fails in words: no such name, no answer, [`TOO_MANY`] of
    /// this asker. Equal lookups are one, in the place of whoever has one first. Who outlives it has tries of its own.
    pub(crate) async fn lookup(
        &self,
        name: &str,
        ipv6: bool,
        asker: &Asker,
    ) -> Result<Vec<IpAddr>, String> {
        // before what is kept, which it may contradict since it was changed
        if let Some(here) = self.in_hosts_file(name, ipv6) {
            return Ok(here);
        }
        let known = locked(&self.looking().kept).used(clock::now(), name, ipv6);
        if let Some(known) = known {
            return Ok(known);
        }
        let _lookup = self.lookups.begin(name);
        let key = (name.to_owned(), ipv6);
        let end = Instant::now() + self.limit;
        loop {
            let mut telling = self.begin(&key, asker).ok_or(TOO_MANY)?;
            let told = timeout_at(end, telling.wait_for(|told| told.is_over_for(asker))).await;
            let told = told.map_err(|_| NetError::Timeout.to_string())?;
            match told.ok().map(|told| (*told).clone()) {
                Some(Told::Ended(LookupEnd::Found(found))) => return found,
                Some(Told::Ended(LookupEnd::GaveWay(of))) if of == *asker.whole() => {
                    return Err(TOO_MANY.to_owned());
                }
                // others have a place of their own, and perhaps more time
                _ if Instant::now() < end => {}
                _ => return Err(NetError::Timeout.to_string()),
            }
        }
    }

    /// What tells of a lookup, be it a new one. `None`: that would be above the rate of `asker`.
    fn begin(&self, key: &Key, asker: &Asker) -> Option<watch::Receiver<Told>> {
        let looking = self.looking();
        let is_known = || locked(&looking.kept).has_addresses(clock::now(), &key.0, !key.1);
        let is_within = |rate: &Arc<NameRate>| rate.on_question(asker, is_known());
        looking.join(key, asker.whole(), self.limit, || self.rate.as_ref().is_none_or(is_within))
    }
}

impl Looking {
    /// Fails in words, when the library's resolver cannot be built.
    fn new(
        dns: &Dns,
        limit: Duration,
        known: Arc<Known>,
        places: Arc<NamePlaces>,
    ) -> Result<Self, String> {
        let plain = |server: &DnsServer| match server {
            DnsServer::Plain(at) => Some(*at),
            DnsServer::Tls { .. } | DnsServer::Https { .. } | DnsServer::Tunnel { .. } => None,
        };
        let servers: Option<Vec<_>> = dns.servers.iter().map(plain).collect();
        let (servers, mut options) = match (servers.as_deref(), &known.servers) {
            (Some([]), Some(of_system)) => of_system.clone(),
            // where `outbound::dns` asks them, addresses and localhost are known here
            (servers, _) => (configured(servers.unwrap_or_default()), ResolverOpts::default()),
        };
        let has_servers = !servers.is_empty();
        let config = known.asking(servers);
        // it would keep whole messages, each of which a zone's owner may make take a MiB
        options.cache_size = 0;
        options.positive_min_ttl = Some(dns.min_ttl.into());
        options.positive_max_ttl = Some(dns.max_ttl.into());
        options.negative_max_ttl = Some(dns.negative_ttl.into());
        // it was asked before
        options.use_hosts_file = ResolveHosts::Never;
        // three tries within the time-out, each of which begins anew: what is lost in one is sent again late, as the library
        // takes a lost answer for a slow server
        options.timeout = limit / 3;
        options.attempts = 2;
        let inner = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            .with_options(options)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self {
            inner,
            has_servers,
            known,
            kept: Mutex::new(KeptAddresses::new(dns.cache as usize)),
            max_ttl: dns.max_ttl,
            negative_ttl: dns.negative_ttl,
            places,
            on_their_way: Mutex::default(),
        })
    }

    /// What tells of the lookup that is on its way, or begins in a place of `asker`. `None`: it may not begin.
    fn join(
        self: &Arc<Self>,
        key: &Key,
        asker: &Asker,
        limit: Duration,
        may_begin: impl FnOnce() -> bool,
    ) -> Option<watch::Receiver<Told>> {
        let mut all = locked(&self.on_their_way);
        if let Some(tell) = all.get(key).filter(|tell| !tell.borrow().is_over_for(asker)) {
            return Some(tell.subscribe());
        }
        if !may_begin() {
            return None;
        }
        let (tell, telling) = watch::channel(Told::OnItsWay);
        let tell = Arc::new(tell);
        all.insert(key.clone(), Arc::clone(&tell));
        drop(all);
        let (looking, key, asker) = (Arc::clone(self), key.clone(), asker.clone());
        let lookup = OnItsWay { looking, key, tell };
        tokio::spawn(Self::run(lookup, asker, limit));
        Some(telling)
    }

    async fn run(lookup: OnItsWay, asker: Asker, limit: Duration) {
        let outcome = {
            let OnItsWay { looking, key, tell } = &lookup;
            let mut looking_up = pin!(looking.lookup_in_place(key, &asker, limit, tell));
            loop {
                tokio::select! {
                    outcome = &mut looking_up => break outcome,
                    () = tell.closed() => {
                        if lookup.is_left() {
                            return;
                        }
                    }
                }
            }
        };
        let (name, ipv6) = &lookup.key;
        let end = match outcome {
            Some(Err(NetError::Timeout)) => LookupEnd::Late,
            Some(found) => LookupEnd::Found(lookup.looking.keep(name, *ipv6, found)),
            None => LookupEnd::GaveWay(asker),
        };
        let tell = Arc::clone(&lookup.tell);
        // who is told may ask again at once
        drop(lookup);
        tell.send_replace(Told::Ended(end));
    }

    /// `None`: it had no place in time, or one that gave way.
    async fn lookup_in_place(
        &self,
        (name, ipv6): &Key,
        asker: &Asker,
        limit: Duration,
        tell: &watch::Sender<Told>,
    ) -> Option<Result<Lookup, NetError>> {
        let end = Instant::now() + limit;
        let kind = if *ipv6 { RecordType::AAAA } else { RecordType::A };
        // absolute, so that no search domain is appended; a name without dots is local
        let absolute = if name.contains('.') { format!("{name}.") } else { name.clone() };
        let look = || self.lookup_in_time(absolute.clone(), kind, end);
        // what is known here takes no socket
        if !self.has_servers || is_localhost(name) {
            return Some(look().await);
        }
        let waits = || {
            tell.send_replace(Told::Waits(asker.clone()));
        };
        let placed = || {
            tell.send_replace(Told::OnItsWay);
            look()
        };
        self.places.look(asker, limit, waits, placed).await
    }

    /// As long as there is time, the library's own time-outs are tried again: it may share tries that began before.
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

/// The library answers for it itself (RFC 6761 §6.3).
fn is_localhost(name: &str) -> bool {
    name.rsplit('.').next().is_some_and(|last| last.eq_ignore_ascii_case("localhost"))
}

/// As many as are kept.
fn addresses(found: &Lookup) -> Vec<IpAddr> {
    let addresses = found.answers().iter().filter_map(|record| match record.data {
        RData::A(address) => Some(IpAddr::V4(address.0)),
        // an address that maps an IPv4 address is that address, for the rules and the kernel
        RData::AAAA(address) => Some(IpAddr::V6(address.0).to_canonical()),
        _ => None,
    });
    addresses.take(MOST_ADDRESSES).collect()
}

fn configured(servers: &[SocketAddr]) -> Vec<NameServerConfig> {
    let servers = servers.iter().map(|server| {
        let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
        for connection in &mut connections {
            connection.port = server.port();
        }
        NameServerConfig::new(server.ip(), true, connections)
    });
    servers.collect()
}

#[cfg(test)]
mod tests;
