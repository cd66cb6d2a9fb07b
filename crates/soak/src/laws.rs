//! Which broken transfers a fault explains. All others are faults of the product.

use crate::faults::{Kind, Link};
use crate::ledger::Datagrams;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a client speaks to the near relay. Each has an account of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Door {
    /// Requests in absolute form, with bodies both ways.
    Forward,
    /// HTTP/1.1 CONNECT.
    Connect,
    /// SOCKS5.
    Socks,
    /// CONNECT within TLS.
    Tls,
    /// Streams of CONNECT within HTTP/2 over TLS.
    Http2,
    /// UDP ASSOCIATE.
    Datagrams,
    /// Requests for objects that may be cached.
    Cache,
    /// A forwarded port, from a proxy that names its client by a PROXY header.
    PortForward,
    /// Questions for names.
    Names,
    /// UDP over HTTP, in the clear and within TLS.
    UdpOverHttp,
}

pub(crate) const DOORS: [Door; 10] = [
    Door::Forward,
    Door::Connect,
    Door::Socks,
    Door::Tls,
    Door::Http2,
    Door::Datagrams,
    Door::Cache,
    Door::PortForward,
    Door::Names,
    Door::UdpOverHttp,
];

impl Door {
    /// Its account's name, and its user's.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Connect => "connect",
            Self::Socks => "socks",
            Self::Tls => "tls",
            Self::Http2 => "http2",
            Self::Datagrams => "datagrams",
            Self::Cache => "cache",
            Self::PortForward => "port-forward",
            Self::Names => "names",
            Self::UdpOverHttp => "udp-over-http",
        }
    }

    /// Whether its clients take this leg. The relay asks its name server directly, and sends no datagrams to upstream
    /// proxies.
    pub(crate) const fn takes(self, leg: Leg) -> bool {
        match self {
            Self::Names => matches!(leg, Leg::Direct),
            Self::Datagrams | Self::UdpOverHttp => !matches!(leg, Leg::Upstream),
            _ => true,
        }
    }
}

/// The way from the near relay to the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Leg {
    /// Without another relay.
    Direct,
    /// Through the tunnel and the far relay.
    Tunnel,
    /// Through the far relay as an upstream proxy: HTTP, SOCKS5, or HTTP within TLS.
    Upstream,
}

pub(crate) const LEGS: [Leg; 3] = [Leg::Direct, Leg::Tunnel, Leg::Upstream];

impl Leg {
    /// In names and in the summary.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Tunnel => "tunnel",
            Self::Upstream => "upstream",
        }
    }

    /// The domains whose names lead over it.
    pub(crate) const fn domains(self) -> &'static [&'static str] {
        match self {
            Self::Direct => &["direct.test"],
            Self::Tunnel => &["tunnel.test"],
            Self::Upstream => &["http.upstream.test", "socks.upstream.test", "tls.upstream.test"],
        }
    }

    /// One of them.
    pub(crate) const fn domain(self, n: u64) -> &'static str {
        let domains = self.domains();
        domains[(n % domains.len() as u64) as usize]
    }

    const fn crosses(self, link: Link) -> bool {
        match link {
            Link::Clients => true,
            Link::Direct => matches!(self, Self::Direct),
            Link::Tunnel | Link::Far => !matches!(self, Self::Direct),
        }
    }
}

/// A fault as it was, in time since the traffic began; its end is the recovery's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Window {
    pub(crate) kind: Kind,
    pub(crate) from: Duration,
    pub(crate) to: Duration,
}

/// A transfer that did not end whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Break {
    pub(crate) door: Door,
    pub(crate) leg: Leg,
    /// When the transfer began, and when its client knew.
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    /// Whether anything of the server's had come.
    pub(crate) opened: bool,
    pub(crate) why: String,
}

/// Whether a fault of this kind may break such a transfer: name servers and losses only before it is open.
fn may_break(kind: Kind, leg: Leg, opened: bool) -> bool {
    match kind {
        Kind::KillNear => true,
        Kind::KillFar => leg != Leg::Direct,
        Kind::Outage(link) => leg.crosses(link),
        Kind::Lossy(link) => leg.crosses(link) && !opened,
        Kind::NamesDead => !opened,
        Kind::Cut(_)
        | Kind::FreezeNear
        | Kind::FreezeFar
        | Kind::DiskFull
        | Kind::DatabaseAway
        | Kind::AlertsAway
        | Kind::Reload => false,
    }
}

/// The fault that explains a break: one that may break such a transfer, and was while it lived.
pub(crate) fn explains(windows: &[Window], broken: &Break) -> Option<Kind> {
    let lived = |window: &&Window| window.from <= broken.to && broken.from <= window.to;
    let may = |window: &&Window| may_break(window.kind, broken.leg, broken.opened);
    windows.iter().filter(lived).find(may).map(|window| window.kind)
}

/// Whether a fault of this kind may cost datagrams over this leg: none of the relay's own disk, database and
/// configuration.
fn may_lose(kind: Kind, leg: Leg) -> bool {
    match kind {
        Kind::Cut(link) => leg.crosses(link),
        Kind::FreezeNear => true,
        Kind::FreezeFar => leg != Leg::Direct,
        other => may_break(other, leg, false),
    }
}

/// Of associations that met no fault that may cost datagrams: sent ones, and those without an answer, by door and leg.
pub(crate) fn undisturbed(windows: &[Window], all: &[Datagrams]) -> Vec<(Door, Leg, u64, u64)> {
    let met = |one: &Datagrams| {
        let lived = windows.iter().filter(|window| window.from <= one.to && one.from <= window.to);
        lived.map(|window| window.kind).any(|kind| may_lose(kind, one.leg))
    };
    let mut sums = BTreeMap::<(Door, Leg), (u64, u64)>::new();
    for one in all.iter().filter(|one| !met(one)) {
        let (sent, unanswered) = sums.entry((one.door, one.leg)).or_default();
        *sent += one.sent;
        *unanswered += one.unanswered;
    }
    sums.into_iter().map(|((door, leg), (sent, lost))| (door, leg, sent, lost)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn second(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn broken(leg: Leg, from: u64, to: u64, opened: bool) -> Break {
        let (from, to) = (second(from), second(to));
        Break { door: Door::Connect, leg, from, to, opened, why: "reset".to_owned() }
    }

    fn window(kind: Kind) -> [Window; 1] {
        [Window { kind, from: second(10), to: second(12) }]
    }

    #[test]
    fn a_kill_explains_breaks_of_its_time_alone() {
        let kill = window(Kind::KillNear);
        assert_eq!(explains(&kill, &broken(Leg::Direct, 5, 10, true)), Some(Kind::KillNear));
        assert_eq!(explains(&kill, &broken(Leg::Direct, 12, 14, true)), Some(Kind::KillNear));
        assert_eq!(explains(&kill, &broken(Leg::Direct, 5, 9, true)), None);
        assert_eq!(explains(&kill, &broken(Leg::Direct, 13, 14, true)), None);
    }

    #[test]
    fn a_far_relay_explains_breaks_of_its_leg_alone() {
        let kill = window(Kind::KillFar);
        assert!(explains(&kill, &broken(Leg::Tunnel, 9, 11, true)).is_some());
        assert!(explains(&kill, &broken(Leg::Upstream, 9, 11, true)).is_some());
        assert!(explains(&kill, &broken(Leg::Direct, 9, 11, true)).is_none());
        let outage = window(Kind::Outage(Link::Far));
        assert!(explains(&outage, &broken(Leg::Tunnel, 9, 11, true)).is_some());
        assert!(explains(&outage, &broken(Leg::Direct, 9, 11, true)).is_none());
    }

    #[test]
    fn datagrams_of_associations_without_a_fault_are_summed() {
        let one = |leg, from, to| {
            let (from, to, door) = (second(from), second(to), Door::Datagrams);
            Datagrams { door, leg, from, to, sent: 100, unanswered: 1 }
        };
        let all = [one(Leg::Direct, 1, 5), one(Leg::Direct, 6, 11), one(Leg::Tunnel, 6, 11)];
        let sums = |kind| undisturbed(&window(kind), &all);
        let (direct, tunnel) = ((Door::Datagrams, Leg::Direct), (Door::Datagrams, Leg::Tunnel));
        let row = |(door, leg): (Door, Leg), n| (door, leg, 100 * n, n);
        assert_eq!(sums(Kind::KillNear), [row(direct, 1)]);
        assert_eq!(sums(Kind::FreezeFar), [row(direct, 2)]);
        assert_eq!(sums(Kind::Cut(Link::Direct)), [row(direct, 1), row(tunnel, 1)]);
        assert_eq!(sums(Kind::Reload), [row(direct, 2), row(tunnel, 1)]);
    }

    #[test]
    fn dead_name_servers_break_no_open_transfer() {
        let dead = window(Kind::NamesDead);
        assert!(explains(&dead, &broken(Leg::Direct, 9, 11, false)).is_some());
        assert!(explains(&dead, &broken(Leg::Direct, 9, 11, true)).is_none());
    }

    #[test]
    fn reloads_disks_databases_and_short_cuts_explain_nothing() {
        let kinds = [
            Kind::Reload,
            Kind::DiskFull,
            Kind::DatabaseAway,
            Kind::AlertsAway,
            Kind::FreezeNear,
            Kind::FreezeFar,
            Kind::Cut(Link::Direct),
        ];
        for kind in kinds {
            for opened in [true, false] {
                assert_eq!(explains(&window(kind), &broken(Leg::Direct, 9, 11, opened)), None);
            }
        }
    }
}
