//! Who may come in, and where they may go.
//!
//! A name's decision is not enough: every address that it resolves to is checked, and the
//! connection goes to exactly the checked address. One that stands for an address of IPv4 is checked as both.

pub use crate::policy::denied::Denied;
pub use crate::policy::special_addresses::{METADATA, Special, special};

use crate::destination::{Destination, Host};
use crate::policy::accounts::KnownAccount;
use crate::policy::embedded::embedded;
use crate::policy::own_addresses::is_own;
use crate::settings::{Access, HostPattern, Pattern, Rule, Settings};
use crate::wire::dns::Nat64;
use ipnet::IpNet;
use std::net::IpAddr;

/// The access decisions for one client.
#[derive(Debug, Clone, Copy)]
pub struct Decider<'a> {
    access: &'a Access,
    /// The translator whose addresses stand for those of IPv4.
    nat64: Option<Nat64>,
    client: Client<'a>,
    account: Option<&'a KnownAccount>,
    /// Whether this machine has an address, where that is known.
    pub(super) is_own: fn(IpAddr) -> Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client<'a> {
    At(IpAddr),
    /// A client behind a peer: this machine's private addresses stay closed to it unless a rule
    /// opens them.
    Peer(&'a str),
}

impl Settings {
    /// The decisions for a client at an address.
    pub fn decider(&self, client: IpAddr) -> Decider<'_> {
        self.decider_for(Client::At(client.to_canonical()))
    }

    /// The decisions for a peer's flows, by the peer's local name.
    pub fn decider_for_peer<'a>(&'a self, peer: &'a str) -> Decider<'a> {
        self.decider_for(Client::Peer(peer))
    }

    /// The addresses of IPv4 that `address` stands for.
    pub(crate) fn embedded(&self, address: IpAddr) -> impl Iterator<Item = IpAddr> + use<> {
        embedded_by(self.dns.nat64.and_then(Nat64::new), address)
    }

    fn decider_for<'a>(&'a self, client: Client<'a>) -> Decider<'a> {
        let nat64 = self.dns.nat64.and_then(Nat64::new);
        Decider { access: &self.access, nat64, client, account: None, is_own }
    }
}

impl<'a> Decider<'a> {
    /// The same for an account's client: no rule is needed to come in, and its own lists restrict it.
    pub(crate) const fn of(self, account: Option<&'a KnownAccount>) -> Self {
        Self { account, ..self }
    }

    /// The same where this machine's public addresses are as others: the operator chose the destination, or the kernel's
    /// rules keep them.
    pub(crate) const fn with_own_addresses(self) -> Self {
        Self { is_own: |_| Some(false), ..self }
    }

    /// The same for where a forwarded port leads, which the operator chose, and not the client. Where a name leads, its
    /// owner chooses.
    pub(crate) const fn of_forward(self, to: &Destination) -> Self {
        match to.host {
            Host::Address(_) => self.with_own_addresses(),
            Host::Name(_) => self,
        }
    }
}

impl Decider<'_> {
    /// Whether the client may use this relay at all: a rule admits it, or it is on loopback.
    pub fn client(&self) -> Result<(), Denied> {
        self.by_itself().or_else(|denied| {
            let admits = |rule: &Rule| rule.allow && self.is_meant(rule);
            if self.access.rules.iter().any(admits) { Ok(()) } else { Err(denied) }
        })
    }

    /// Whether the client may go to `destination` by name. For names that an upstream proxy
    /// resolves.
    pub fn named(&self, destination: &Destination) -> Result<(), Denied> {
        match &destination.host {
            Host::Address(address) => self.address(destination, *address),
            Host::Name(name) if name == "localhost" || name.ends_with(".localhost") => {
                self.address(destination, IpAddr::from([127, 0, 0, 1]))
            }
            Host::Name(_) => {
                not_of_relays(destination)?;
                self.account(destination, None)?;
                self.rule(destination, None).map(|_| ())
            }
        }
    }

    /// Whether some address could make `destination` allowed: before a DNS query, which reveals the
    /// name.
    pub fn unresolved(&self, destination: &Destination) -> Result<(), Denied> {
        not_of_relays(destination)?;
        if let Some(account) = self.account {
            account.might_go(destination)?;
        }
        for rule in self.access.rules.iter().filter(|rule| self.is_meant(rule)) {
            if rule.to.is_empty() || rule.to.iter().any(|p| p.matches(destination, None)) {
                return match rule.allow {
                    true => Ok(()),
                    false => Err(Denied::Rule(destination.to_string())),
                };
            }
            let by_address = |p: &Pattern| matches!(p.host, HostPattern::Net(_));
            if rule.allow && rule.to.iter().any(by_address) {
                return Ok(());
            }
        }
        self.by_itself()
    }

    /// Whether the client may go to `destination` at `address`, one of its resolved addresses.
    pub fn address(&self, destination: &Destination, address: IpAddr) -> Result<(), Denied> {
        let address = address.to_canonical();
        self.account(destination, Some(address))?;
        let opened = self.rule(destination, Some(address))?;
        for v4 in self.embedded(address) {
            self.account(destination, Some(v4))?;
            self.rule(destination, Some(v4))?;
        }
        // a prefix of IPv4 opens the network of this machine, and not that behind a translator
        if within_any(&self.access.allow_destinations, address) || within_any(opened, address) {
            return Ok(());
        }
        let local_client = match self.client {
            Client::At(client) => client.is_loopback() || special(client) == Some(Special::Private),
            Client::Peer(_) => false,
        };
        let kinds = self.embedded(address).chain([address]).filter_map(special);
        let closed = kinds.filter(|kind| !(*kind == Special::Private && local_client)).min();
        let kind = match closed {
            Some(kind) => kind,
            None if self.is_public_own(address)? => Special::Own,
            None => return Ok(()),
        };
        Err(match self.client {
            Client::At(_) => Denied::Special { address, kind },
            // their own relay shows it, beside this one's name
            Client::Peer(_) => Denied::SpecialForPeers { address, kind },
        })
    }

    /// Whether it looks public and is this machine's, but for clients of this machine.
    fn is_public_own(&self, address: IpAddr) -> Result<bool, Denied> {
        if matches!(self.client, Client::At(client) if client.is_loopback()) {
            return Ok(false);
        }
        for seen in self.embedded(address).chain([address]) {
            if special(seen).is_none() && (self.is_own)(seen).ok_or(Denied::Unknown(seen))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a client that goes to `address` may do so under the name that it claims. A name may be
    /// refused and never allows: the client could claim any.
    pub(crate) fn claimed(&self, claimed: &Destination, address: IpAddr) -> Result<(), Denied> {
        let address = address.to_canonical();
        if let Some(account) = self.account {
            account.may_claim(claimed)?;
        }
        let to = Destination { host: Host::Address(address), port: claimed.port };
        self.embedded(address).chain([address]).try_for_each(|seen| self.claims(claimed, &to, seen))
    }

    /// The same, where the client's address `to` is seen as this one.
    fn claims(&self, claimed: &Destination, to: &Destination, seen: IpAddr) -> Result<(), Denied> {
        for rule in self.access.rules.iter().filter(|rule| self.is_meant(rule)) {
            let matches = |to: &Destination| {
                rule.to.is_empty() || rule.to.iter().any(|p| p.matches(to, Some(seen)))
            };
            match rule.allow {
                true if matches(to) => return Ok(()),
                false if matches(claimed) => return Err(Denied::Rule(claimed.to_string())),
                _ => {}
            }
        }
        Ok(())
    }

    fn embedded(&self, address: IpAddr) -> impl Iterator<Item = IpAddr> + use<> {
        embedded_by(self.nat64, address)
    }

    /// The first matching rule, and the prefixes it opens.
    fn rule(&self, destination: &Destination, address: Option<IpAddr>) -> Result<&[IpNet], Denied> {
        for rule in &self.access.rules {
            let to = rule.to.is_empty() || rule.to.iter().any(|p| p.matches(destination, address));
            if self.is_meant(rule) && to {
                return if rule.allow {
                    Ok(&rule.allow_destinations)
                } else {
                    Err(Denied::Rule(destination.to_string()))
                };
            }
        }
        self.by_itself().map(|()| &[][..])
    }

    fn account(&self, to: &Destination, address: Option<IpAddr>) -> Result<(), Denied> {
        self.account.map_or(Ok(()), |account| account.may_go(to, address))
    }

    /// The decision without a matching rule: accounts, loopback clients, and invited peers may
    /// pass.
    fn by_itself(&self) -> Result<(), Denied> {
        match self.client {
            _ if self.account.is_some() => Ok(()),
            Client::At(client) if !client.is_loopback() => Err(Denied::Client(client)),
            Client::At(_) | Client::Peer(_) => Ok(()),
        }
    }

    /// Whether a rule applies to this client.
    fn is_meant(&self, rule: &Rule) -> bool {
        let everybody = rule.from.is_empty() && rule.peers.is_empty();
        everybody
            || match self.client {
                Client::At(client) => within_any(&rule.from, client),
                Client::Peer(name) => rule.peers.iter().any(|peer| peer == "*" || peer == name),
            }
    }
}

impl Pattern {
    /// Whether the pattern matches the destination by name, or by `address`: one that it resolves to, or that its own
    /// stands for.
    pub fn matches(&self, destination: &Destination, address: Option<IpAddr>) -> bool {
        let port = self.ports.is_none_or(|(from, to)| (from..=to).contains(&destination.port));
        port && match (&self.host, &destination.host) {
            (HostPattern::Any, _) => true,
            (HostPattern::Net(net), Host::Address(named)) => {
                net.contains(&address.unwrap_or(*named))
            }
            (HostPattern::Net(net), Host::Name(_)) => address.is_some_and(|a| net.contains(&a)),
            (HostPattern::Name(wanted), Host::Name(name)) => wanted == name,
            (HostPattern::Below(parent), Host::Name(name)) => name
                .strip_suffix(parent.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
            (HostPattern::Name(_) | HostPattern::Below(_), Host::Address(_)) => false,
        }
    }
}

/// What relays ask each other by such names comes out of a tunnel and asks for no decision.
fn not_of_relays(to: &Destination) -> Result<(), Denied> {
    if to.is_of_relays() { Err(Denied::Relays(to.to_string())) } else { Ok(()) }
}

fn embedded_by(nat64: Option<Nat64>, address: IpAddr) -> impl Iterator<Item = IpAddr> + use<> {
    let v6 = match address {
        IpAddr::V6(v6) => Some(v6),
        IpAddr::V4(_) => None,
    };
    v6.into_iter().flat_map(move |v6| embedded(v6, nat64)).map(IpAddr::V4)
}

fn within_any(nets: &[IpNet], address: IpAddr) -> bool {
    nets.iter().any(|net| net.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(text: &str) -> Destination {
        Destination::parse(text, Some(80)).unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn nets(list: &[&str]) -> Vec<IpNet> {
        list.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn with(access: Access) -> Settings {
        Settings { access, ..Settings::default() }
    }

    fn by_rules(rules: impl Into<Vec<Rule>>) -> Settings {
        with(Access { rules: rules.into(), ..Access::default() })
    }

    #[test]
    fn with_nothing_configured_only_loopback_comes_in() {
        let access = Settings::default();
        assert!(access.decider(ip("127.0.0.1")).client().is_ok());
        assert!(access.decider(ip("::1")).client().is_ok());
        assert!(access.decider(ip("::ffff:127.0.0.1")).client().is_ok());
        assert_eq!(
            access.decider(ip("192.168.1.7")).client(),
            Err(Denied::Client(ip("192.168.1.7")))
        );
    }

    #[test]
    fn a_public_name_that_resolves_inside_is_refused() {
        let access = by_rules([Rule { allow: true, ..Rule::default() }]);
        let public = access.decider(ip("198.51.100.9"));
        let rebound = to("rebind.example:80");
        for inside in [
            "127.0.0.1",
            "::1",
            "10.0.0.1",
            "169.254.169.254",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "0.0.0.0",
        ] {
            assert!(public.address(&rebound, ip(inside)).is_err(), "{inside}");
        }
        assert!(public.address(&rebound, ip("1.1.1.1")).is_ok());
    }

    #[test]
    fn private_clients_reach_private_addresses_but_not_loopback() {
        let from = nets(&["192.168.0.0/16"]);
        let access = by_rules([Rule { from, allow: true, ..Rule::default() }]);
        let home = access.decider(ip("192.168.1.7"));
        assert!(home.address(&to("nas:80"), ip("192.168.1.2")).is_ok());
        assert!(home.address(&to("x:80"), ip("127.0.0.1")).is_err());
        assert!(home.named(&to("localhost:80")).is_err());
        assert!(home.named(&to("a.localhost:80")).is_err());
        assert!(home.named(&to("169.254.169.254:80")).is_err());
    }

    #[test]
    fn a_name_is_resolved_only_where_an_address_may_be_allowed() {
        let rule = |to: &str, allow| {
            let host = match to.parse() {
                Ok(net) => HostPattern::Net(net),
                Err(_) => HostPattern::Below(to.into()),
            };
            let to = vec![Pattern { host, ports: None }];
            Rule { to, allow, ..Rule::default() }
        };
        let may = |rules: &[Rule]| {
            by_rules(rules.to_vec())
                .decider(ip("198.51.100.9"))
                .unresolved(&to("a.example:80"))
                .is_ok()
        };
        let (net, name) = ("9.9.9.0/24", "example");
        assert!(!may(&[]) && !may(&[rule(net, false)]) && !may(&[rule("other", true)]));
        assert!(may(&[rule(net, true)]) && may(&[rule(name, true)]));
        assert!(!may(&[rule(name, false), rule(net, true)]));
        assert!(may(&[rule(net, true), rule(name, false)]));
        assert!(!may(&[rule(net, false), rule(name, false)]));
        assert!(may(&[rule(net, false), rule(name, true)]));
    }

    #[test]
    fn opens_only_the_listed_prefixes() {
        let opened = nets(&["127.0.0.0/8"]);
        let access = with(Access { allow_destinations: opened, ..Access::default() });
        let local = access.decider(ip("127.0.0.1"));
        assert!(local.address(&to("127.0.0.1:80"), ip("127.0.0.1")).is_ok());
        assert!(local.address(&to("[::1]:80"), ip("::1")).is_err());
    }

    #[test]
    fn the_first_rule_that_matches_decides_also_by_resolved_address() {
        let deny_ads = Pattern { host: HostPattern::Below("ads.example".into()), ports: None };
        let deny_net = Pattern {
            host: HostPattern::Net("9.9.9.0/24".parse().unwrap()),
            ports: Some((1, 1024)),
        };
        let denied = Rule { to: vec![deny_ads, deny_net], ..Rule::default() };
        let access = by_rules([denied, Rule { allow: true, ..Rule::default() }]);
        let client = access.decider(ip("198.51.100.9"));
        assert!(client.named(&to("x.ads.example:443")).is_err());
        assert!(client.unresolved(&to("x.ads.example:443")).is_err());
        assert!(client.unresolved(&to("fine.example:443")).is_ok());
        assert!(client.named(&to("notads.example:443")).is_ok());
        assert!(client.address(&to("fine.example:443"), ip("9.9.9.5")).is_err());
        assert!(client.address(&to("fine.example:2000"), ip("9.9.9.5")).is_ok());
    }

    #[test]
    fn a_claimed_name_is_refused_and_opens_nothing() {
        let by_name = |name: &str| Pattern { host: HostPattern::Below(name.into()), ports: None };
        let rule = |to: Vec<Pattern>, allow| Rule { to, allow, ..Rule::default() };
        let (ads, fine) = (to("x.ads.example:443"), to("fine.example:443"));
        let at = ip("9.9.9.9");
        let access = by_rules([rule(vec![by_name("ads.example")], false), rule(vec![], true)]);
        let client = access.decider(ip("198.51.100.9"));
        assert!(client.claimed(&ads, at).is_err() && client.claimed(&fine, at).is_ok());
        // where only a name is allowed, its address is not
        let access = by_rules([rule(vec![by_name("fine.example")], true)]);
        let client = access.decider(ip("198.51.100.9"));
        assert!(client.claimed(&fine, at).is_ok());
        assert!(client.address(&to("9.9.9.9:443"), at).is_err());
        // the first rule that matches the address allows
        let net = Pattern { host: HostPattern::Net("9.9.9.0/24".parse().unwrap()), ports: None };
        let access = by_rules([rule(vec![net], true), rule(vec![by_name("ads.example")], false)]);
        assert!(access.decider(ip("198.51.100.9")).claimed(&ads, at).is_ok());
    }

    #[test]
    fn flows_from_tunnels_are_not_local_clients() {
        let rule = |peers: &[&str], allow, open: &[&str]| Rule {
            peers: peers.iter().map(|&name| name.to_owned()).collect(),
            allow,
            allow_destinations: nets(open),
            ..Rule::default()
        };
        let access = Settings::default();
        let ship = access.decider_for_peer("ship");
        assert!(ship.client().is_ok() && ship.named(&to("example.org:80")).is_ok());
        assert!(ship.address(&to("example.org:80"), ip("198.51.100.9")).is_err(), "for examples");
        assert!(ship.address(&to("example.org:80"), ip("9.9.9.9")).is_ok());
        for inside in ["10.0.0.1", "192.168.1.1", "127.0.0.1", "::1", "169.254.1.1"] {
            let why = ship.address(&to("example.org:80"), ip(inside)).unwrap_err().to_string();
            assert!(why.contains("of the relay at its end"), "{inside}: {why}");
        }
        let access = by_rules([rule(&["ship"], true, &["10.0.0.0/8"]), rule(&["*"], false, &[])]);
        let ship = access.decider_for_peer("ship");
        assert!(ship.address(&to("10.0.0.1:80"), ip("10.0.0.1")).is_ok());
        assert!(access.decider_for_peer("barge").named(&to("example.org:80")).is_err());
        // those rules are for peers only
        let local = access.decider(ip("127.0.0.1"));
        assert!(local.address(&to("10.0.0.1:80"), ip("10.0.0.1")).is_ok());
        assert!(access.decider(ip("192.168.1.7")).client().is_err());
        // and rules with `from` are for clients only
        let access = by_rules([Rule { from: nets(&["127.0.0.0/8"]), ..Rule::default() }]);
        assert!(access.decider_for_peer("ship").named(&to("example.org:80")).is_ok());
    }
}
