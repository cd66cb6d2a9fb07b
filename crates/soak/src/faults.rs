//! Faults and their times: all follow from the seed, before anything runs.

use ekiden_model::rng::Rng;
use serde::Serialize;
use std::time::Duration;

/// A link of the network, see [`crate::network`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Link {
    /// Clients and the near relay.
    Clients,
    /// The two relays.
    Tunnel,
    /// The near relay and the servers.
    Direct,
    /// The far relay and the servers.
    Far,
}

pub(crate) const LINKS: [Link; 4] = [Link::Clients, Link::Tunnel, Link::Direct, Link::Far];

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// A link carries nothing for up to 3 s, which every connection must survive.
    Cut(Link),
    /// A link carries nothing for 8 to 12 s: the tunnel is given up after 7 s, and connecting after 10.
    Outage(Link),
    /// A link loses 1 to 8 % of its packets, both ways.
    Lossy(Link),
    /// The name server answers nobody.
    NamesDead,
    /// The near relay is killed and started again.
    KillNear,
    /// The far relay is killed and started again.
    KillFar,
    /// The near relay is stopped, and continues: to it, its clocks jump.
    FreezeNear,
    /// The far relay is stopped, and continues.
    FreezeFar,
    /// The near relay's state folder has no free byte.
    DiskFull,
    /// PostgreSQL is killed and started again later.
    DatabaseAway,
    /// The receiver of alerts takes connections and does not answer.
    AlertsAway,
    /// The other configuration comes into effect, and a broken one is refused before.
    Reload,
}

impl Kind {
    /// Its kind in the summary.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cut(_) => "link cut",
            Self::Outage(_) => "link outage",
            Self::Lossy(_) => "link lossy",
            Self::NamesDead => "name server dead",
            Self::KillNear => "near relay killed",
            Self::KillFar => "far relay killed",
            Self::FreezeNear => "near relay stopped",
            Self::FreezeFar => "far relay stopped",
            Self::DiskFull => "state disk full",
            Self::DatabaseAway => "database away",
            Self::AlertsAway => "alerts' receiver away",
            Self::Reload => "reload",
        }
    }

    /// The link whose packets it concerns.
    pub(crate) const fn link(self) -> Option<Link> {
        match self {
            Self::Cut(link) | Self::Outage(link) | Self::Lossy(link) => Some(link),
            _ => None,
        }
    }

    /// Whether it is the network's or a server's there, and no relay's machine's.
    pub(crate) const fn is_network(self) -> bool {
        self.link().is_some() || matches!(self, Self::NamesDead | Self::AlertsAway)
    }

    const fn is_kill(self) -> bool {
        matches!(self, Self::KillNear | Self::KillFar)
    }

    /// How long it lasts, in milliseconds: from, to.
    const fn lasts(self) -> (u64, u64) {
        match self {
            Self::Cut(_) => (200, 3_000),
            Self::Outage(_) => (8_000, 12_000),
            Self::Lossy(_) => (3_000, 10_000),
            Self::NamesDead => (2_000, 8_000),
            // until it is started again
            Self::KillNear | Self::KillFar => (50, 2_000),
            Self::FreezeNear | Self::FreezeFar => (200, 3_000),
            Self::DiskFull => (1_500, 6_000),
            Self::DatabaseAway | Self::AlertsAway => (1_500, 6_000),
            Self::Reload => (0, 0),
        }
    }
}

/// One fault of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Fault {
    /// When it begins, from the beginning of the traffic.
    pub(crate) at: Duration,
    /// How long it lasts.
    pub(crate) lasts: Duration,
    /// What it is.
    pub(crate) kind: Kind,
    /// Of lossy links, the loss in tenths of a percent.
    pub(crate) permille: u64,
}

impl Fault {
    pub(crate) fn end(&self) -> Duration {
        self.at + self.lasts
    }
}

/// The share of the run in which relays are killed; in the rest, memory is fitted. In percent.
const KILLS_UNTIL: u32 = 60;
/// Traffic is undisturbed for so long at the beginning, and at the end.
const PEACE: Duration = Duration::from_secs(5);
/// Room for a relay to start again before the next fault of its lane.
const RECOVERY: Duration = Duration::from_secs(2);

/// The faults of a run that lasts so long, one `every` so often on average, in order of time.
///
/// There are two lanes, the network's and the machines'. Faults of one lane follow each other, those of different
/// lanes overlap as they come. Each lane deals its kinds like cards, so that none is missing for long.
pub(crate) fn draw(seed: u64, length: Duration, every: Duration) -> Vec<Fault> {
    let mut rng = Rng::new(seed);
    let mut network = vec![Kind::NamesDead, Kind::AlertsAway];
    for link in LINKS {
        network.extend([Kind::Cut(link), Kind::Outage(link), Kind::Lossy(link)]);
    }
    // reloads are cheap, and kills are possible for a part of the time alone
    let machines = vec![
        Kind::KillNear,
        Kind::KillFar,
        Kind::KillNear,
        Kind::KillFar,
        Kind::FreezeNear,
        Kind::FreezeFar,
        Kind::DiskFull,
        Kind::DatabaseAway,
        Kind::Reload,
        Kind::Reload,
    ];
    let mut faults: Vec<Fault> = [network, machines]
        .into_iter()
        .flat_map(|kinds| lane(&mut rng, &kinds, length, every * 2))
        .collect();
    faults.sort_by_key(|fault| fault.at);
    faults
}

/// From when on no relay is killed.
pub(crate) fn quiet_from(length: Duration) -> Duration {
    length * KILLS_UNTIL / 100
}

fn lane(rng: &mut Rng, kinds: &[Kind], length: Duration, every: Duration) -> Vec<Fault> {
    let (mut faults, mut deck) = (Vec::new(), Vec::new());
    let mut free = PEACE;
    let mut wished = PEACE;
    loop {
        // uniform in half to one and a half of the mean; a fault that has to wait does not delay those after it
        let gap = every.as_millis() as u64;
        wished += millis(gap / 2 + rng.below(gap.max(1)));
        let at = free.max(wished);
        let Some(kind) = deal(rng, &mut deck, kinds, at >= quiet_from(length)) else {
            return faults;
        };
        let (least, most) = kind.lasts();
        let lasts = millis(least + rng.below(most - least + 1));
        let fault = Fault { at, lasts, kind, permille: 10 + rng.below(71) };
        if fault.end() + RECOVERY + PEACE > length {
            return faults;
        }
        free = fault.end() + RECOVERY;
        faults.push(fault);
    }
}

/// The next card; kinds that may not be are put aside.
fn deal(rng: &mut Rng, deck: &mut Vec<Kind>, kinds: &[Kind], quiet: bool) -> Option<Kind> {
    for _ in 0..2 {
        while !deck.is_empty() {
            let nth = rng.below(deck.len() as u64) as usize;
            let kind = deck.swap_remove(nth);
            if !(quiet && kind.is_kill()) {
                return Some(kind);
            }
        }
        deck.extend_from_slice(kinds);
    }
    None
}

const fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn the_seed_decides_every_fault() {
        let every = Duration::from_secs(10);
        assert_eq!(draw(1, HOUR, every), draw(1, HOUR, every));
        assert_ne!(draw(1, HOUR, every), draw(2, HOUR, every));
    }

    #[test]
    fn five_hundred_faults_of_every_kind_in_two_hours() {
        for seed in 1..=5 {
            let faults = draw(seed, 2 * HOUR, Duration::from_secs(13));
            assert!(faults.len() >= 500, "seed {seed}: {}", faults.len());
            let kinds: BTreeSet<Kind> = faults.iter().map(|fault| fault.kind).collect();
            assert_eq!(kinds.len(), 2 + 3 * LINKS.len() + 7, "{kinds:?}");
        }
    }

    #[test]
    fn lanes_do_not_overlap_and_the_end_is_without_kills() {
        for seed in 0..50 {
            let faults = draw(seed, HOUR, Duration::from_secs(6));
            for network in [true, false] {
                let lane = faults.iter().filter(|fault| fault.kind.is_network() == network);
                let lane: Vec<&Fault> = lane.collect();
                for two in lane.windows(2) {
                    assert!(two[0].end() + RECOVERY <= two[1].at, "{two:?}");
                }
                assert!(lane.last().is_some_and(|last| last.end() + PEACE <= HOUR));
            }
            let late = faults.iter().filter(|fault| fault.at >= quiet_from(HOUR));
            assert!(late.clone().count() > 20);
            assert!(late.clone().all(|fault| !fault.kind.is_kill()));
        }
    }

    #[test]
    fn a_run_too_short_for_faults_has_none() {
        assert_eq!(draw(1, Duration::from_secs(10), Duration::from_secs(10)), []);
    }
}
