//! Cached name resolution, one address family at a time.

use crate::outbound::lookups::Lookups;
use crate::settings::{Dns, DnsServer, Family};
use ekiden_model::connect::happy_eyeballs::FamilyAnswers;
use ekiden_model::units::Span;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{RData, RecordType};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// After a try that was not answered, which the library forgets a moment later.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Resolver {
    inner: TokioResolver,
    limit: Duration,
    prefer: Family,
    answers: Mutex<FamilyAnswers>,
    lookups: Lookups,
}

impl Resolver {
    /// Fails in words, when the resolver cannot be built.
    pub(crate) fn new(dns: &Dns, timeout: Span) -> Result<Self, String> {
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
        options.cache_size = dns.cache.into();
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
        let (answers, lookups) = (Mutex::default(), Lookups::default());
        Ok(Self { inner, limit, prefer: dns.prefer, answers, lookups })
    }

    /// Which families to query: IPv6, IPv4.
    pub(crate) const fn families(&self) -> (bool, bool) {
        (!matches!(self.prefer, Family::Ipv4Only), !matches!(self.prefer, Family::Ipv6Only))
    }

    /// What is known of the preferred family's answers, to ask or to tell.
    pub(crate) fn answers<T>(&self, act: impl FnOnce(&mut FamilyAnswers) -> T) -> T {
        act(&mut self.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Names that are being looked up.
    pub(crate) const fn lookups(&self) -> &Lookups {
        &self.lookups
    }

    /// Equal questions share tries. One that joins another's last try gets tries of its own, for as long as it may take.
    async fn lookup_in_time(&self, name: String, kind: RecordType) -> Result<Lookup, NetError> {
        let end = Instant::now() + self.limit;
        loop {
            match self.inner.lookup(name.as_str(), kind).await {
                Err(NetError::Timeout) if Instant::now() < end => sleep(PAUSE).await,
                outcome => return outcome,
            }
        }
    }

    /// The addresses of one family, possibly none; fails in words: no such name, no answer.
    pub(crate) async fn lookup(&self, name: &str, ipv6: bool) -> Result<Vec<IpAddr>, String> {
        let _lookup = self.lookups.begin(name);
        let kind = if ipv6 { RecordType::AAAA } else { RecordType::A };
        // absolute, so that no search domain is appended; a name without dots is local
        let absolute = if name.contains('.') { format!("{name}.") } else { name.to_owned() };
        match self.lookup_in_time(absolute, kind).await {
            Ok(found) => Ok(found
                .answers()
                .iter()
                .filter_map(|record| match record.data {
                    RData::A(address) => Some(IpAddr::V4(address.0)),
                    // an address that maps an IPv4 address is that address, for the rules and the kernel
                    RData::AAAA(address) => Some(IpAddr::V6(address.0).to_canonical()),
                    _ => None,
                })
                .collect()),
            Err(error) if error.is_no_records_found() => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        }
    }
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
