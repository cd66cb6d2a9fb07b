//! One configuration made ready for use: legs, upstreams and routes resolved by name. A reload
//! makes a new one; running connections keep theirs.

pub(crate) mod acme;
pub(crate) mod alerts;
pub(crate) mod certificate;
mod certificate_facts;
pub(crate) mod file_stamp;
pub(crate) mod shared;
use crate::destination::Destination;
use crate::observe::named_leg::NamedLeg;
use crate::observe::status::{ProfileStatus, TunnelStatus, UpstreamStatus};
use crate::observe::udp_counts::AssociationLimits;
use crate::outbound::dns::server::NameServers;
use crate::outbound::resolve::Resolver;
use crate::policy::accounts::{Directory, KnownAccount};
use crate::policy::quota::AccountConnection;
use crate::policy::route::{Chain, Route, scope};
use crate::policy::upstream::Hop;
use crate::runtime::certificate::Certificate;
use crate::runtime::shared::Shared;
use crate::settings::{Settings, UpstreamProtocol};
use ekiden_linux::host::sync::locked;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct RuntimeConfig {
    pub(crate) settings: Arc<Settings>,
    pub(crate) client_leg: Arc<NamedLeg>,
    pub(crate) resolver: Arc<Resolver>,
    /// Who is asked for clients.
    pub(crate) name_servers: Arc<NameServers>,
    pub(crate) shared: Arc<Shared>,
    /// Looks accounts up, where accounts are enabled.
    pub(crate) directory: Option<Arc<dyn Directory>>,
    pub(crate) certificate: Option<Certificate>,
    legs: Vec<Arc<NamedLeg>>,
    hops: BTreeMap<String, Arc<Hop>>,
    routes: Vec<Arc<Route>>,
    default_route: Arc<Route>,
}

impl RuntimeConfig {
    /// Resolves a configuration; legs and upstreams unchanged since `before` keep their state.
    /// Fails in words where it names something that does not exist.
    pub(crate) fn new(
        settings: Arc<Settings>,
        shared: Arc<Shared>,
        directory: Option<Arc<dyn Directory>>,
        before: Option<&Self>,
    ) -> Result<Self, String> {
        let legs_before = before.map_or(&[][..], |config| &config.legs);
        let mut legs = BTreeMap::new();
        for (name, leg) in &settings.legs {
            let before = legs_before.iter().find(|leg| leg.name == *name);
            let leg = NamedLeg::new(name, leg, before.map(|leg| &**leg));
            legs.insert(name.as_str(), Arc::new(leg));
        }
        let leg = |name: &str| {
            legs.get(name).cloned().ok_or_else(|| format!("there is no leg \"{name}\""))
        };
        let mut hops = BTreeMap::new();
        for (name, upstream) in &settings.upstreams {
            let before = before.and_then(|config| config.hops.get(name));
            let hop = Hop::new(name, upstream, leg(&upstream.leg)?, before.map(|hop| &**hop))?;
            hops.insert(name.clone(), Arc::new(hop));
        }
        let chain = |names: &Vec<String>| {
            let hop = |name: &String| {
                hops.get(name).cloned().ok_or_else(|| format!("there is no upstream \"{name}\""))
            };
            let hops = names.iter().map(hop).collect::<Result<Vec<_>, _>>()?;
            let is_tunnel = |hop: &&Arc<Hop>| hop.upstream.protocol == UpstreamProtocol::Tunnel;
            match hops.iter().skip(1).find(is_tunnel) {
                None => Ok(Chain::new(hops)),
                Some(hop) => Err(format!(
                    "upstream \"{}\" is a tunnel and can only be the first of a chain",
                    hop.name
                )),
            }
        };
        let mut routes = Vec::new();
        for (nth, route) in settings.routes.iter().enumerate() {
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
        let default_route = Arc::new(Route {
            to: vec![],
            why: "no [[route]] matches".into(),
            scope: scope("direct", &[Vec::new()], &settings),
            chains: vec![Chain::default()],
            leg: leg("direct")?,
            client_leg: Arc::clone(&client_leg),
        });
        let (dns, limit) = (&settings.dns, settings.timeouts.resolve);
        let (places, system) = (&shared.name_places, &shared.system_names);
        let same_names = before.filter(|config| {
            config.settings.dns == *dns && config.settings.timeouts.resolve == limit
        });
        let resolver = if let Some(before) = same_names {
            // it keeps names, and sees by itself what changes in the system's files
            Arc::clone(&before.resolver)
        } else {
            let rate = Arc::clone(&shared.dns.name_rate);
            let (places, system) = (Arc::clone(places), Arc::clone(system));
            Arc::new(Resolver::new(dns, limit, places, system, rate)?)
        };
        let names_before = before.map(|config| &*config.name_servers);
        let name_servers = NameServers::new(dns, limit, Arc::clone(system), names_before)?;
        Ok(Self {
            settings: Arc::clone(&settings),
            client_leg,
            resolver,
            name_servers: Arc::new(name_servers),
            shared,
            directory,
            certificate: {
                let before = before.and_then(|config| config.certificate.as_ref());
                Certificate::open(&settings.tls, &settings.acme, before)?
            },
            legs: legs.into_values().collect(),
            hops,
            routes,
            default_route,
        })
    }

    /// The first route that matches a destination as the client named it.
    pub(crate) fn route(&self, to: &Destination) -> &Arc<Route> {
        self.routes.iter().find(|route| route.matches(to)).unwrap_or(&self.default_route)
    }

    /// The first route that matches either the name that a client claims or the address it goes to.
    pub(crate) fn route_of(&self, claimed: Option<&Destination>, to: &Destination) -> &Arc<Route> {
        let by_name = |route: &Route| claimed.is_some_and(|claimed| route.matches(claimed));
        let mut routes = self.routes.iter();
        routes.find(|route| by_name(route) || route.matches(to)).unwrap_or(&self.default_route)
    }

    /// Peers whose tunnels routes use, in order of the routes.
    pub(crate) fn tunnel_peers(&self) -> impl Iterator<Item = &str> {
        self.routes.iter().filter_map(|route| Some(route.tunnel()?.upstream.host.as_str()))
    }

    /// Whether a client's address is a WireGuard device's: the door gives it out, and the kernel keeps others from it.
    pub(crate) fn is_device(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.settings.wireguard.is_client(address)
            && locked(&self.shared.guarded).iter().any(|net| net.contains(&address))
    }

    /// The account at a client's address; `Err`: it may not connect now, and why.
    pub(crate) fn account_at(&self, address: IpAddr) -> Option<Result<Arc<KnownAccount>, String>> {
        let directory = self.directory.as_ref()?;
        let device = if self.is_device(address) { directory.at_device(address) } else { None };
        device.or_else(|| directory.at(address))
    }

    /// Why a connection of this account may not go on, if so.
    pub(crate) fn why_ended(
        &self,
        account: Option<&KnownAccount>,
        share: Option<&AccountConnection>,
    ) -> Option<String> {
        let barred = self.directory.as_ref().zip(account);
        let barred = barred.and_then(|(directory, account)| directory.may_stay(account.id).err());
        barred.or_else(|| share?.ended())
    }

    /// How many associations of datagrams there may be, of which some are kept for accounts where there are any.
    pub(crate) fn association_limits(&self) -> AssociationLimits {
        let most = u64::from(self.settings.udp.associations);
        let accounts = self.settings.pressure.accounts;
        let kept = if self.directory.is_some() { accounts.of(most) } else { 0 };
        AssociationLimits { most, kept }
    }

    /// The leg of direct connections that no route chose.
    pub(crate) fn direct_leg(&self) -> &Arc<NamedLeg> {
        &self.default_route.leg
    }

    /// Whether some destination is reached directly or through a tunnel; other ways carry no datagrams.
    pub(crate) fn carries_datagrams(&self) -> bool {
        // routes after one for everything are never used
        let all = self.routes.iter().position(|route| route.to.is_empty());
        let used = all.map_or(self.routes.len(), |at| at + 1);
        let mut routes = self.routes.iter().take(used);
        all.is_none() || routes.any(|route| route.is_direct() || route.tunnel().is_some())
    }

    /// Why clients cannot have datagrams relayed, if so.
    pub(crate) fn why_no_datagrams(&self) -> Option<&'static str> {
        if self.settings.udp.associations == 0 {
            return Some("UDP is off (udp.associations = 0)");
        }
        let none = "no route is direct or a tunnel, and other upstream proxies carry no datagrams";
        (!self.carries_datagrams()).then_some(none)
    }

    pub(crate) fn check_legs(&self) {
        self.legs.iter().for_each(|leg| leg.check_rate());
    }

    pub(crate) fn leg_status(&self) -> Vec<ProfileStatus> {
        self.legs.iter().map(|leg| leg.status()).collect()
    }

    pub(crate) fn upstream_status(&self, tunnels: &[TunnelStatus]) -> Vec<UpstreamStatus> {
        self.hops.values().map(|hop| hop.status(tunnels)).collect()
    }
}
