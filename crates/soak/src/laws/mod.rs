//! Which broken transfers a fault explains. All others are faults of the product.

mod copies;
mod datagrams;
mod quota;
mod ways;

pub(crate) use copies::judge_copy;
pub(crate) use datagrams::{deaf, undisturbed};
pub(crate) use quota::{QuotaUse, Refusals};
pub(crate) use ways::{DOORS, Door, LEGS, Leg, SLOW};

use crate::faults::{Kind, Link};
use serde::Serialize;
use std::time::Duration;

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
    let early = || windows.iter().find(|window| quota::cuts_early(window, broken));
    windows.iter().find(may).or_else(early).map(|window| window.kind)
}

/// Whether the last bytes of an open transfer came while this fault was there. Where a link or a relay stood still around
/// it, they may have come as early as that began. What was under way may come as late as TCP tries again: after as long
/// as it has tried in vain. A slow reader takes its time on top of that.
fn stopped_by(windows: &[Window], fault: &Window, broken: &Break) -> bool {
    let (end, drains) = (fault.over + AFTER, broken.door.drains());
    let (mut since, mut until) = (fault.from, end + drains);
    for still in windows.iter().filter(|window| may_stall(window.kind, broken.leg)) {
        let again = still.over + still.over.saturating_sub(still.from) + DRAINS;
        if still.from <= end && fault.from <= again {
            (since, until) = (since.min(still.from), until.max(again + drains));
        }
    }
    since <= broken.moved + QUIET && broken.moved <= until
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const fn second(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// One whose last bytes came as it broke.
    fn broken(leg: Leg, from: u64, to: u64, opened: bool) -> Break {
        let (from, to, moved) = (second(from), second(to), second(to));
        let (domain, why) = (leg.domain(0).to_owned(), "reset".to_owned());
        Break { door: Door::Connect, leg, domain, from, to, moved, opened, clean: false, why }
    }

    pub(super) fn lasting(kind: Kind, from: u64, over: u64, to: u64) -> Window {
        Window { kind, from: second(from), over: second(over), to: second(to) }
    }

    pub(super) fn window(kind: Kind) -> [Window; 1] {
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
    fn a_database_that_is_away_may_cut_an_account_with_a_quota() {
        let away = [lasting(Kind::DatabaseAway, 10, 20, 22)];
        let cut = |door, at| {
            let one = Break { door, ..broken(Leg::Direct, 5, at, true) };
            explains(&away, &one).is_some()
        };
        assert!(cut(Door::Quota, 10) && cut(Door::Quota, 50) && !cut(Door::Connect, 15));
        assert!(!cut(Door::Quota, 9) && !cut(Door::Quota, 51));
    }

    #[test]
    fn a_slow_reader_reads_on_after_a_kill_for_as_long_as_buffers_last() {
        let kill = [lasting(Kind::KillNear, 40, 41, 43)];
        let read = |door, moved| {
            let one = broken(Leg::Direct, 5, 200, true);
            explains(&kill, &Break { door, moved: second(moved), ..one }).is_some()
        };
        assert!(read(Door::Slow, 44) && read(Door::Slow, 170) && !read(Door::Connect, 44));
        assert!(!read(Door::Slow, 200));
        // one that hung before
        assert!(!read(Door::Slow, 34));
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
