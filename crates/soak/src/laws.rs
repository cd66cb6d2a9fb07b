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

/// A fault as it was, in time since the traffic began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Window {
    pub(crate) kind: Kind,
    pub(crate) from: Duration,
    /// When it was over, and the relays had recovered.
    pub(crate) over: Duration,
    /// Until when transfers that were not open may notice it.
    pub(crate) to: Duration,
}

/// A transfer that did not end whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Break {
    pub(crate) door: Door,
    pub(crate) leg: Leg,
    /// The domain of its server's name: of upstream proxies, it says which.
    pub(crate) domain: String,
    /// When the transfer began, and when its client knew.
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    /// When bytes came last, at either end.
    pub(crate) moved: Duration,
    /// Whether anything had come, at either end.
    pub(crate) opened: bool,
    /// Whether its stream ended as one that is whole: by FIN, `close_notify` or END_STREAM.
    pub(crate) clean: bool,
    pub(crate) why: String,
}

/// After the last sign of a fault, what it broke may still be noticed.
pub(crate) const AFTER: Duration = Duration::from_secs(2);
/// Of an open transfer that nothing disturbs, bytes come at one end or the other. An association waits 2 s for its last
/// answers, and a busy machine lets any wait for some.
const QUIET: Duration = Duration::from_secs(5);

/// What waited while a stream stood still has come after this: some MB, at the pace with which TCP begins anew.
const DRAINS: Duration = Duration::from_secs(10);

/// Whether a fault of this kind may break such a transfer: name servers and losses only before it is open. Open ones
/// survive an outage by TCP. A tunnel does not: what goes through it is reset after ten seconds.
fn may_break(kind: Kind, leg: Leg, opened: bool) -> bool {
    match kind {
        Kind::KillNear => true,
        Kind::KillFar => leg != Leg::Direct,
        Kind::Outage(link) if opened => (leg, link) == (Leg::Tunnel, Link::Tunnel),
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

/// Whether a fault of this kind may end a stream early as if it were whole. The kernel ends those of a dead process so.
/// The near relay passes such an end of the far one on where it cannot know; a tunnel and TLS would say a true one.
fn may_end(kind: Kind, domain: &str) -> bool {
    match kind {
        Kind::KillNear => true,
        Kind::KillFar => matches!(domain, "http.upstream.test" | "socks.upstream.test"),
        _ => false,
    }
}

/// Whether streams over this leg may stand still in a fault of this kind, and go on.
fn may_stall(kind: Kind, leg: Leg) -> bool {
    match kind {
        Kind::Cut(link) | Kind::Outage(link) | Kind::Lossy(link) => leg.crosses(link),
        Kind::FreezeNear => true,
        Kind::FreezeFar => leg != Leg::Direct,
        _ => false,
    }
}

/// The fault that explains a break: one that may break such a transfer, and was while it lived.
pub(crate) fn explains(windows: &[Window], broken: &Break) -> Option<Kind> {
    let may = |window: &&Window| {
        let kind = window.kind;
        let to = if broken.opened { window.over + AFTER } else { window.to };
        let ends = || !broken.clean || may_end(kind, &broken.domain);
        let fits = || stopped_by(windows, window, broken) && ends();
        may_break(kind, broken.leg, broken.opened)
            && window.from <= broken.to
            && broken.from <= to
            && (!broken.opened || fits())
    };
    windows.iter().find(may).map(|window| window.kind)
}

/// Whether the last bytes of an open transfer came while this fault was there. Where a link or a relay stood still around
/// it, they may have come as early as that began. What was under way may come as late as TCP tries again: after as long
/// as it has tried in vain.
fn stopped_by(windows: &[Window], fault: &Window, broken: &Break) -> bool {
    let end = fault.over + AFTER;
    let (mut since, mut until) = (fault.from, end);
    for still in windows.iter().filter(|window| may_stall(window.kind, broken.leg)) {
        let again = still.over + still.over.saturating_sub(still.from) + DRAINS;
        if still.from <= end && fault.from <= again {
            (since, until) = (since.min(still.from), until.max(again));
        }
    }
    since <= broken.moved + QUIET && broken.moved <= until
}

/// Whether a fault of this kind may cost datagrams over this leg: none of the relay's own disk, database and
/// configuration.
fn may_lose(kind: Kind, leg: Leg) -> bool {
    may_stall(kind, leg) || may_break(kind, leg, false)
}

/// Whether an association met no fault that may cost datagrams.
fn is_undisturbed(windows: &[Window], one: &Datagrams) -> bool {
    let met = |window: &&Window| window.from <= one.to && one.from <= window.to;
    !windows.iter().filter(met).any(|window| may_lose(window.kind, one.leg))
}

/// Of associations that met no fault that may cost datagrams: sent ones, and those without an answer, by door and leg. Of
/// questions for names, those that were asked again.
pub(crate) fn undisturbed(windows: &[Window], all: &[Datagrams]) -> Vec<(Door, Leg, u64, u64)> {
    let mut sums = BTreeMap::<(Door, Leg), (u64, u64)>::new();
    for one in all.iter().filter(|one| is_undisturbed(windows, one)) {
        let (sent, unanswered) = sums.entry((one.door, one.leg)).or_default();
        *sent += one.sent;
        *unanswered += one.unanswered;
    }
    sums.into_iter().map(|((door, leg), (sent, lost))| (door, leg, sent, lost)).collect()
}

/// Once one had an answer, an association without a fault may lose so many datagrams, and one of [`ONE_OF`]: those of half
/// a second, for which a busy machine may keep an end from its buffer.
const LOST: u64 = 50;
const ONE_OF: u64 = 200;

/// Associations that met no fault, no time in which the machine stood still, and lost more than that.
pub(crate) fn deaf(
    windows: &[Window],
    stood: &[(Duration, Duration)],
    all: &[Datagrams],
) -> Vec<Datagrams> {
    let stood = |one: &Datagrams| stood.iter().any(|(from, to)| *from <= one.to && one.from <= *to);
    let lost = all.iter().filter(|one| one.lost > LOST + one.sent / ONE_OF);
    lost.filter(|one| is_undisturbed(windows, one) && !stood(one)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn second(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// One whose last bytes came as it broke.
    fn broken(leg: Leg, from: u64, to: u64, opened: bool) -> Break {
        let (from, to, moved) = (second(from), second(to), second(to));
        let (domain, why) = (leg.domain(0).to_owned(), "reset".to_owned());
        Break { door: Door::Connect, leg, domain, from, to, moved, opened, clean: false, why }
    }

    fn lasting(kind: Kind, from: u64, over: u64, to: u64) -> Window {
        Window { kind, from: second(from), over: second(over), to: second(to) }
    }

    fn window(kind: Kind) -> [Window; 1] {
        [lasting(kind, 10, 10, 12)]
    }

    #[test]
    fn a_kill_explains_breaks_of_its_time_alone() {
        let kill = window(Kind::KillNear);
        assert_eq!(explains(&kill, &broken(Leg::Direct, 5, 10, true)), Some(Kind::KillNear));
        assert_eq!(explains(&kill, &broken(Leg::Direct, 12, 14, false)), Some(Kind::KillNear));
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
        assert!(explains(&outage, &broken(Leg::Tunnel, 9, 11, false)).is_some());
        assert!(explains(&outage, &broken(Leg::Direct, 9, 11, false)).is_none());
    }

    #[test]
    fn an_outage_explains_what_is_open_in_its_tunnel_alone() {
        for leg in LEGS {
            for link in crate::faults::LINKS {
                let outage = window(Kind::Outage(link));
                let found = explains(&outage, &broken(leg, 9, 11, true)).is_some();
                assert_eq!(found, leg == Leg::Tunnel && link == Link::Tunnel, "{leg:?} {link:?}");
            }
        }
        // connecting to what was away until 20 s is given up later, and nothing that was open then
        let outage = [lasting(Kind::Outage(Link::Tunnel), 10, 20, 32)];
        assert!(explains(&outage, &broken(Leg::Tunnel, 25, 31, false)).is_some());
        assert!(explains(&outage, &broken(Leg::Tunnel, 25, 31, true)).is_none());
    }

    #[test]
    fn a_stream_that_hung_before_a_fault_is_not_explained_by_it() {
        let kill = [lasting(Kind::KillNear, 40, 41, 43)];
        let hung = |moved| Break { moved: second(moved), ..broken(Leg::Direct, 5, 40, true) };
        assert!(explains(&kill, &hung(35)).is_some());
        assert!(explains(&kill, &hung(34)).is_none());
        // its last bytes came after the fault: another reason broke it
        let later = Break { to: second(110), ..hung(44) };
        assert!(explains(&kill, &later).is_none());
    }

    #[test]
    fn a_stream_that_stood_still_in_an_outage_is_broken_by_a_kill_after_it() {
        let stood = |kind| [lasting(kind, 20, 30, 42), lasting(Kind::KillNear, 38, 39, 41)];
        let hung = Break { moved: second(19), ..broken(Leg::Direct, 5, 38, true) };
        assert!(explains(&stood(Kind::Outage(Link::Direct)), &hung).is_some());
        assert!(explains(&stood(Kind::Outage(Link::Far)), &hung).is_none());
        // the kernel delivers what the dead relay had sent once the link is back
        let until =
            [lasting(Kind::Outage(Link::Clients), 37, 48, 60), lasting(Kind::KillNear, 38, 39, 41)];
        let late = Break { moved: second(49), to: second(49), ..hung };
        assert!(explains(&until, &late).is_some());
        assert!(explains(&until[1..], &late).is_none());
        // TCP tries again after as long as it has tried, and then it takes its time
        let last = |moved| Break { moved: second(moved), to: second(moved), ..late.clone() };
        assert!(explains(&until, &last(69)).is_some() && explains(&until, &last(70)).is_none());
    }

    #[test]
    fn an_early_end_is_told_from_a_whole_one_but_for_dead_relays_behind_plain_proxies() {
        let ended = |leg: Leg, nth| Break {
            domain: leg.domain(nth).to_owned(),
            clean: true,
            ..broken(leg, 9, 11, true)
        };
        let near = window(Kind::KillNear);
        for leg in LEGS {
            assert!(explains(&near, &ended(leg, 0)).is_some());
        }
        let far = window(Kind::KillFar);
        let found = [0, 1, 2].map(|nth| explains(&far, &ended(Leg::Upstream, nth)).is_some());
        assert_eq!(found, [true, true, false]);
        assert!(explains(&far, &ended(Leg::Tunnel, 0)).is_none());
        assert!(explains(&window(Kind::Outage(Link::Tunnel)), &ended(Leg::Tunnel, 0)).is_none());
    }

    #[test]
    fn an_association_that_falls_silent_without_a_fault_is_found() {
        let one = |lost| {
            let (door, leg) = (Door::Datagrams, Leg::Direct);
            let (from, to, sent, duplicates) = (second(20), second(30), 800, 0);
            Datagrams { door, leg, from, to, sent, unanswered: lost, lost, duplicates }
        };
        let all = [one(54), one(55)];
        assert_eq!(deaf(&[], &[], &all), all[1..]);
        assert_eq!(deaf(&window(Kind::KillNear), &[], &all), all[1..]);
        assert_eq!(deaf(&[lasting(Kind::FreezeNear, 29, 31, 33)], &[], &all), []);
        assert_eq!(deaf(&[], &[(second(28), second(32))], &all), []);
    }

    #[test]
    fn datagrams_of_associations_without_a_fault_are_summed() {
        let one = |leg, from, to| {
            let (from, to, door) = (second(from), second(to), Door::Datagrams);
            let (sent, unanswered, lost, duplicates) = (100, 1, 0, 0);
            Datagrams { door, leg, from, to, sent, unanswered, lost, duplicates }
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
