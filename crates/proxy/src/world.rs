//! One configuration made ready for use: profiles, upstreams and routes resolved to what they name.
//!
//! A reload makes a new world; connections keep the one they began in.

use crate::accounts::Directory;
use crate::certificate::Certificate;
use crate::destination::{Destination, Host};
use crate::failure::{Failure, Kind};
use crate::known::Known;
use crate::means::Means;
use crate::registry::locked;
use crate::resolve::Resolver;
use crate::settings::{Leg, Settings, Upstream, UpstreamProtocol};
use crate::status::{HeldStatus, ProfileStatus, UpstreamStatus};
use ekiden_linux::bpf::Group;
use ekiden_linux::clock;
use ekiden_model::failover::{Config, Health};
use ekiden_model::lifetime::Limits;
use ekiden_model::units::Time;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A leg profile and its name.
#[derive(Debug)]
pub(crate) struct NamedLeg {
    pub(crate) name: String,
    pub(crate) leg: Leg,
    /// What its openings have taught.
    pub(crate) known: Arc<Known>,
    /// That its rate is not held any more.
    told: AtomicBool,
}

/// An upstream proxy and how it fares.
#[derive(Debug)]
pub(crate) struct Hop {
    pub(crate) name: String,
    pub(crate) upstream: Upstream,
    pub(crate) leg: Arc<NamedLeg>,
    health: Arc<Mutex<(Health, Option<String>)>>,
}

/// A way to a destination: upstream proxies in a row, nearest first; none is «direct».
#[derive(Debug, Default)]
pub(crate) struct Chain {
    pub(crate) hops: Vec<Arc<Hop>>,
    /// Of the way from each hop to the next, which is neither hop's own.
    between: Mutex<Option<Health>>,
}

/// What a route comes to.
#[derive(Debug)]
pub(crate) struct Route {
    to: Vec<crate::settings::Pattern>,
    /// Why destinations go this way, in words.
    pub(crate) why: Arc<str>,
    /// What the cache keeps apart: the ways of this route, by name.
    pub(crate) scope: Arc<str>,
    chains: Vec<Chain>,
    pub(crate) leg: Arc<NamedLeg>,
    pub(crate) client_leg: Arc<NamedLeg>,
}

/// One configuration, ready for use.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) settings: Arc<Settings>,
    pub(crate) client_leg: Arc<NamedLeg>,
    pub(crate) resolver: Resolver,
    pub(crate) means: Arc<Means>,
    /// Households, where there are accounts.
    pub(crate) directory: Option<Arc<dyn Directory>>,
    /// For clients that begin with TLS.
    pub(crate) certificate: Option<Certificate>,
    legs: Vec<Arc<NamedLeg>>,
    hops: BTreeMap<String, Arc<Hop>>,
    routes: Vec<Arc<Route>>,
    otherwise: Arc<Route>,
}

impl World {
    /// Makes a configuration ready. Upstreams that were in `before` unchanged keep their health.
    ///
    /// # Errors
    /// In words, when something is named that is not there.
    pub(crate) fn new(
        settings: Arc<Settings>,
        means: Arc<Means>,
        directory: Option<Arc<dyn Directory>>,
        before: Option<&Self>,
    ) -> Result<Self, String> {
        let legs: BTreeMap<&String, Arc<NamedLeg>> = settings
            .legs
            .iter()
            .map(|(name, leg)| (name, Arc::new(NamedLeg::new(name, leg, before))))
            .collect();
        let leg = |name: &str| {
            legs.get(&name.to_owned()).cloned().ok_or_else(|| format!("there is no leg «{name}»"))
        };
        let mut hops = BTreeMap::new();
        for (name, upstream) in &settings.upstreams {
            let same = before
                .and_then(|world| world.hops.get(name))
                .filter(|hop| hop.upstream == *upstream)
                .map(|hop| Arc::clone(&hop.health));
            let health = same
                .unwrap_or_else(|| Arc::new(Mutex::new((Health::new(Config::default()), None))));
            let leg = leg(&upstream.leg)?;
            let hop = Hop { name: name.clone(), upstream: upstream.clone(), leg, health };
            hops.insert(name.clone(), Arc::new(hop));
        }
        let hop = |name: &String| {
            hops.get(name).cloned().ok_or_else(|| format!("there is no upstream «{name}»"))
        };
        let mut routes = Vec::new();
        for (nth, route) in settings.routes.iter().enumerate() {
            let chain = |names: &Vec<String>| {
                let hops = names.iter().map(hop).collect::<Result<Vec<_>, _>>()?;
                let later = |hop: &&Arc<Hop>| hop.upstream.protocol == UpstreamProtocol::Tunnel;
                if let Some(hop) = hops.iter().skip(1).find(later) {
                    return Err(format!(
                        "upstream «{}» is a tunnel and can only be the first of a chain",
                        hop.name
                    ));
                }
                Ok::<_, String>(Chain { hops, ..Chain::default() })
            };
            routes.push(Arc::new(Route {
                to: route.to.clone(),
                why: format!("[[route]] number {} is the first that matches", nth + 1).into(),
                scope: scope(&route.leg, &route.through, &settings),
                chains: route.through.iter().map(chain).collect::<Result<_, _>>()?,
                leg: leg(&route.leg)?,
                client_leg: leg(&route.client_leg)?,
            }));
        }
        let client_leg = leg("client")?;
        let otherwise = Arc::new(Route {
            to: vec![],
            why: "no [[route]] matches".into(),
            scope: scope("direct", &[Vec::new()], &settings),
            chains: vec![Chain::default()],
            leg: leg("direct")?,
            client_leg: Arc::clone(&client_leg),
        });
        let resolver = Resolver::new(&settings.dns, settings.timeouts.resolve)?;
        Ok(Self {
            settings: Arc::clone(&settings),
            client_leg,
            resolver,
            means,
            directory,
            certificate: Certificate::open(&settings.tls)?,
            legs: legs.into_values().collect(),
            hops,
            routes,
            otherwise,
        })
    }

    /// The route to a destination: the first that matches it as it was named.
    pub(crate) fn route(&self, to: &Destination) -> &Arc<Route> {
        let matches = |route: &&Arc<Route>| {
            route.to.is_empty() || route.to.iter().any(|pattern| pattern.matches(to, None))
        };
        self.routes.iter().find(matches).unwrap_or(&self.otherwise)
    }

    /// Whether some destination is reached directly or through a tunnel: the ways that carry datagrams.
    pub(crate) fn carries_datagrams(&self) -> bool {
        // what comes after a route for everything is never asked
        let all = self.routes.iter().position(|route| route.to.is_empty());
        let asked = all.map_or(self.routes.len(), |at| at + 1);
        let mut routes = self.routes.iter().take(asked);
        all.is_none() || routes.any(|route| route.is_direct() || route.tunnel().is_some())
    }

    /// Looks whether legs hold the rates that they are to hold.
    pub(crate) fn look_at_legs(&self) {
        self.legs.iter().for_each(|leg| leg.look());
    }

    pub(crate) fn leg_status(&self) -> Vec<ProfileStatus> {
        self.legs.iter().map(|leg| leg.status()).collect()
    }

    pub(crate) fn upstream_status(&self) -> Vec<UpstreamStatus> {
        self.hops.values().map(|hop| hop.status()).collect()
    }
}

/// The ways of a route in one line, as they are and not as they are called: what is on disk outlives names.
fn scope(leg: &str, through: &[Vec<String>], settings: &Settings) -> Arc<str> {
    let hop = |name: &String| {
        let upstream = settings.upstreams.get(name);
        upstream.map_or_else(String::new, |u| format!("{:?} {}:{}", u.protocol, u.host, u.port))
    };
    let chain = |chain: &Vec<String>| chain.iter().map(hop).collect::<Vec<_>>().join(" > ");
    let chains: Vec<String> = through.iter().map(chain).collect();
    let socket = settings.legs.get(leg).map(|leg| &leg.socket);
    let way = socket.map(|s| format!("{:?} {:?} {:?}", s.source, s.device, s.mark));
    format!("{}: {}", way.unwrap_or_default(), chains.join(", ")).into()
}

impl NamedLeg {
    /// A leg that goes the same way as the one of that name in `before` keeps what that has learnt.
    fn new(name: &str, leg: &Leg, before: Option<&World>) -> Self {
        let way = |leg: &Leg| (leg.socket.source, leg.socket.device.clone(), leg.socket.mark);
        let same = before
            .and_then(|world| world.legs.iter().find(|other| other.name == name))
            .filter(|other| way(&other.leg) == way(leg))
            .map(|other| Arc::clone(&other.known));
        let known = same.unwrap_or_else(|| Arc::new(Known::new()));
        Self { name: name.to_owned(), leg: leg.clone(), known, told: AtomicBool::new(false) }
    }

    /// Says once that what was pinned to hold its rate is not there any more.
    fn look(&self) {
        let gone = self.leg.socket.rate.as_ref().is_some_and(|group| !group.is_current());
        if gone && !self.told.swap(true, Relaxed) {
            tracing::warn!(
                "leg {}: what `ekiden bpf load` pinned was removed or put there anew; new connections use the next \
                 of its list until a reload",
                self.name
            );
        }
    }

    fn status(&self) -> ProfileStatus {
        ProfileStatus {
            name: self.name.clone(),
            opening: self.known.opening(),
            path: self.known.path(),
            held: self.leg.socket.rate.as_ref().and_then(held),
        }
    }
}

/// What became of a rate that is held; nothing when the kernel does not say, or nobody holds it any more.
fn held(group: &Group) -> Option<HeldStatus> {
    let seen = group.seen().ok().filter(|seen| seen.members > 0 || group.is_current())?;
    let allotted = group.terms().rate.as_bits_per_second();
    Some(HeldStatus {
        control: group.control().to_owned(),
        allotted,
        // nothing was sent yet
        rate: if seen.rate == 0 { allotted } else { seen.rate },
        members: seen.members,
        busy: seen.weights,
        light: seen.light,
        delivered: seen.delivered,
        losses: seen.losses,
        reactions: seen.reactions,
        undone: seen.undone,
    })
}

impl Route {
    /// The chains in the order they are to be tried: those in which something rests come last.
    pub(crate) fn in_order(&self) -> Vec<&Chain> {
        // settled before the first is tried: what fails meanwhile is not to be tried again
        let now = clock::now();
        let mut chains: Vec<_> = self.chains.iter().collect();
        chains.sort_by_cached_key(|chain| chain.rests(now));
        chains
    }

    /// Whether one of its ways has no upstream.
    pub(crate) fn is_direct(&self) -> bool {
        self.chains.iter().any(|chain| chain.hops.is_empty())
    }

    /// The tunnel that datagrams go through, where none of the ways before it is direct.
    pub(crate) fn tunnel(&self) -> Option<&Arc<Hop>> {
        let direct = self.chains.iter().take_while(|chain| !chain.hops.is_empty());
        direct
            .filter_map(|chain| chain.hops.first().filter(|_| chain.hops.len() == 1))
            .find(|hop| hop.upstream.protocol == UpstreamProtocol::Tunnel)
    }
}

impl Chain {
    /// The names of its upstream proxies.
    pub(crate) fn names(&self) -> Arc<[String]> {
        self.hops.iter().map(|hop| hop.name.clone()).collect()
    }

    /// Whether requests go to an HTTP proxy at its end, in absolute form.
    pub(crate) fn asks_proxy(&self) -> bool {
        self.hops.last().is_some_and(|hop| hop.upstream.protocol == UpstreamProtocol::Http)
    }

    fn rests(&self, now: Time) -> bool {
        let between =
            locked(&self.between).as_ref().is_some_and(|health| !health.is_available(now));
        between || self.hops.iter().any(|hop| !locked(&hop.health).0.is_available(now))
    }

    /// The whole way opened.
    pub(crate) fn on_success(&self) {
        *locked(&self.between) = None;
    }

    /// A hop did not reach the next. Another chain may still reach that, so only this one rests.
    pub(crate) fn on_failure(&self, next: &Hop, failure: &Failure) {
        let now = clock::now();
        locked(&self.between).get_or_insert_with(|| Health::new(Config::default())).on_failure(now);
        locked(&next.health).1 = Some(failure.to_string());
    }
}

impl Hop {
    /// Where it is.
    pub(crate) fn destination(&self) -> Result<Destination, Failure> {
        let Upstream { host, port, .. } = &self.upstream;
        let host = Host::from_name(host.trim_matches(['[', ']']));
        let host = host.map_err(|bad| {
            Failure::new(Kind::NoName, format!("upstream «{}»: {bad}", self.name))
        })?;
        Ok(Destination { host, port: *port })
    }

    pub(crate) fn on_success(&self) {
        let mut health = locked(&self.health);
        if health.0.failures() > 0 {
            tracing::info!(upstream = %self.name, "answers again");
        }
        health.0.on_success();
    }

    pub(crate) fn on_failure(&self, failure: &Failure) {
        // these are this machine's own troubles
        if failure.kind == Kind::Exhausted {
            return;
        }
        let now = clock::now();
        let mut health = locked(&self.health);
        if health.0.is_available(now) {
            health.0.on_failure(now);
            let rest = health.0.deadline().since(now);
            tracing::warn!(upstream = %self.name, %failure, %rest, "does not answer; it rests");
        }
        health.1 = Some(failure.to_string());
    }

    fn status(&self) -> UpstreamStatus {
        let now = clock::now();
        let health = locked(&self.health);
        let available = health.0.is_available(now);
        let retry = health.0.deadline().since(now).as_millis() as f64 / 1e3;
        UpstreamStatus {
            name: self.name.clone(),
            protocol: self.upstream.protocol,
            address: match self.upstream.protocol {
                UpstreamProtocol::Tunnel => format!("tunnel to {}", self.upstream.host),
                _ => format!("{}:{}", self.upstream.host, self.upstream.port),
            },
            available,
            failures: health.0.failures(),
            retry_in_seconds: (!available).then_some(retry),
            last_error: health.1.clone(),
        }
    }
}

/// The idle limits of a connection over two legs: the shorter of each.
pub(crate) fn limits(client: &Leg, upstream: &Leg) -> Limits {
    Limits {
        idle: client.idle_timeout.min(upstream.idle_timeout),
        half_closed: client.half_closed_timeout.min(upstream.half_closed_timeout),
    }
}
