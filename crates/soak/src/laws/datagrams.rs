//! How many datagrams may have no answer without a fault.

use super::{Door, Leg, Window, may_break, may_stall};
use crate::faults::Kind;
use crate::ledger::Datagrams;
use std::collections::BTreeMap;
use std::time::Duration;

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
    use super::super::tests::{lasting, second, window};
    use super::*;
    use crate::faults::Link;

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
}
