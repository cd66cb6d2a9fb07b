//! Routes: the chains of upstream proxies that lead to a destination, and their order.

use crate::destination::Destination;
use crate::error::Failure;
use crate::observe::named_leg::NamedLeg;
use crate::policy::upstream::Hop;
use crate::settings::{Pattern, Settings, UpstreamProtocol};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::connect::failover::{Config, Health};
use ekiden_model::units::Time;
use std::sync::{Arc, Mutex};

/// A way to a destination: upstream proxies in a row, nearest first. An empty chain is direct.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    pub(crate) hops: Vec<Arc<Hop>>,
    /// Health of the connections from each hop to the next, which is neither hop's own.
    between: Mutex<Option<Health>>,
}

#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) to: Vec<Pattern>,
    pub(crate) why: Arc<str>,
    /// The part of a cache key that keeps routes apart.
    pub(crate) scope: Arc<str>,
    pub(crate) chains: Vec<Chain>,
    pub(crate) leg: Arc<NamedLeg>,
    pub(crate) client_leg: Arc<NamedLeg>,
}

/// The chains of a route in one line, by their properties and not their names: the disk cache outlives names.
pub(crate) fn scope(leg: &str, through: &[Vec<String>], settings: &Settings) -> Arc<str> {
    let hop = |name: &String| {
        let upstream = settings.upstreams.get(name);
        upstream.map_or_else(String::new, |u| format!("{:?} {}:{}", u.protocol, u.host, u.port))
    };
    let chain = |chain: &Vec<String>| chain.iter().map(hop).collect::<Vec<_>>().join(" > ");
    let chains: Vec<String> = through.iter().map(chain).collect();
    let socket = settings.legs.get(leg).map(|leg| &leg.socket);
    let path = socket.map(|s| format!("{:?} {:?} {:?}", s.source, s.device, s.mark));
    format!("{}: {}", path.unwrap_or_default(), chains.join(", ")).into()
}

impl Route {
    /// Whether the route matches a destination as the client named it.
    pub(crate) fn matches(&self, to: &Destination) -> bool {
        self.to.is_empty() || self.to.iter().any(|pattern| pattern.matches(to, None))
    }

    /// The chains in the order to try them; those that back off, or whose tunnel is not up, come last.
    pub(crate) fn in_order(&self, tunnel_is_up: impl Fn(&str) -> bool) -> Vec<&Chain> {
        // settled before the first attempt: a chain that fails meanwhile must not be tried again
        let now = clock::now();
        let mut chains: Vec<_> = self.chains.iter().collect();
        chains.sort_by_cached_key(|chain| chain.backs_off(now, &tunnel_is_up));
        chains
    }

    /// The chains whose kept connections a request may take: the first that does not back off. A later one is not taken
    /// instead, though it has a connection. Where all back off, any.
    pub(crate) fn to_reuse(&self, tunnel_is_up: impl Fn(&str) -> bool) -> &[Chain] {
        let now = clock::now();
        let first = self.chains.iter().position(|chain| !chain.backs_off(now, &tunnel_is_up));
        first.map_or(&self.chains[..], |first| &self.chains[first..=first])
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.chains.iter().any(|chain| chain.hops.is_empty())
    }

    /// The tunnel for datagrams, unless a chain before it is direct.
    pub(crate) fn tunnel(&self) -> Option<&Arc<Hop>> {
        let before_direct = self.chains.iter().take_while(|chain| !chain.hops.is_empty());
        before_direct
            .filter_map(|chain| chain.hops.first().filter(|_| chain.hops.len() == 1))
            .find(|hop| hop.upstream.protocol == UpstreamProtocol::Tunnel)
    }
}

impl Chain {
    pub(crate) fn new(hops: Vec<Arc<Hop>>) -> Self {
        Self { hops, between: Mutex::default() }
    }

    pub(crate) fn names(&self) -> Arc<[String]> {
        self.hops.iter().map(|hop| hop.name.clone()).collect()
    }

    /// Whether an HTTP proxy at its end takes requests in absolute form.
    pub(crate) fn asks_proxy(&self) -> bool {
        self.hops.last().is_some_and(|hop| hop.upstream.protocol.is_http())
    }

    fn backs_off(&self, now: Time, tunnel_is_up: impl Fn(&str) -> bool) -> bool {
        let between =
            locked(&self.between).as_ref().is_some_and(|health| !health.is_available(now));
        let is_available = |hop: &Arc<Hop>| match hop.upstream.protocol {
            UpstreamProtocol::Tunnel => tunnel_is_up(&hop.upstream.host),
            UpstreamProtocol::Http | UpstreamProtocol::Https | UpstreamProtocol::Socks5 => {
                hop.is_available(now)
            }
        };
        between || !self.hops.iter().all(is_available)
    }

    pub(crate) fn on_success(&self) {
        *locked(&self.between) = None;
    }

    /// A hop did not reach `next`. Another chain may still reach it, so only this chain backs off.
    pub(crate) fn on_failure(&self, next: &Hop, failure: &Failure) {
        let now = clock::now();
        locked(&self.between).get_or_insert_with(|| Health::new(Config::default())).on_failure(now);
        next.set_last_error(failure);
    }
}
