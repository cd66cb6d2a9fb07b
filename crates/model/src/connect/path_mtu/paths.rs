//! Path MTUs that the connections of one leg found.

use super::{MtuVerdict, PathLook};
use crate::units::{Span, Time};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::mem::take;
use core::net::IpAddr;

/// Destinations that are remembered with a smaller MTU or a black hole; the oldest leaves, if it was not seen for
/// [`PASSED_LATELY`].
pub const MOST_TROUBLED: usize = 64;

/// For so long after packets came through, and twice as long at most, others of their size that do not are lost in an
/// outage. Longer than most outages; a path that has become a black hole is suspected so much later.
pub const PASSED_LATELY: Span = Span::from_secs(60);

/// Destinations and sizes that came through within [`PASSED_LATELY`].
const MOST_REACHED: usize = 4_096;

/// Lifetime of an entry: as long as Linux keeps a path MTU (`net.ipv4.route.mtu_expires`, 10 min).
pub const FORGOTTEN_AFTER: Span = Span::from_secs(600);

/// Different path MTUs that are counted; the rarest gives way.
const MOST_SIZES: usize = 16;

/// A destination that packets of the usual size do not reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathTrouble {
    /// Where.
    pub address: IpAddr,
    /// [`MtuVerdict::Smaller`] or [`MtuVerdict::BlackHole`].
    pub verdict: MtuVerdict,
    /// Packets of that connection, bytes.
    pub packet: u32,
    /// When it was seen last.
    pub seen: Time,
}

/// Destinations that packets of a size, bytes, reached: lately, and before.
#[derive(Debug, Clone, Default)]
struct Reached {
    since: Time,
    lately: BTreeSet<(IpAddr, u32)>,
    before: BTreeSet<(IpAddr, u32)>,
}

impl Reached {
    const fn new() -> Self {
        Self { since: Time::ZERO, lately: BTreeSet::new(), before: BTreeSet::new() }
    }

    fn on_time(&mut self, now: Time) {
        let age = now.since(self.since);
        if age >= PASSED_LATELY || self.lately.len() >= MOST_REACHED {
            self.before = take(&mut self.lately);
            self.since = now;
        }
        if age >= PASSED_LATELY + PASSED_LATELY {
            self.before.clear();
        }
    }

    fn on_passed(&mut self, now: Time, address: IpAddr, packet: u32) {
        self.on_time(now);
        self.lately.insert((address, packet));
    }

    /// Whether packets so large, or larger ones, came through.
    fn has_passed(&mut self, now: Time, address: IpAddr, packet: u32) -> bool {
        self.on_time(now);
        let range = (address, packet)..=(address, u32::MAX);
        [&self.lately, &self.before].iter().any(|set| set.range(range.clone()).next().is_some())
    }
}

/// Path MTUs by frequency, and destinations that differ.
#[derive(Debug, Clone, Default)]
pub struct Paths {
    sizes: Vec<(u32, u64)>,
    troubled: VecDeque<PathTrouble>,
    reached: Reached,
}

impl Paths {
    /// Nothing seen.
    pub const fn new() -> Self {
        Self { sizes: Vec::new(), troubled: VecDeque::new(), reached: Reached::new() }
    }

    /// A connection's path MTU, once for each connection.
    pub fn on_path_mtu(&mut self, mtu: u32) {
        if let Some((_, count)) = self.sizes.iter_mut().find(|(size, _)| *size == mtu) {
            *count += 1;
            return;
        }
        if self.sizes.len() == MOST_SIZES
            && let Some(rarest) = (0..MOST_SIZES).min_by_key(|at| self.sizes[*at].1)
        {
            self.sizes.swap_remove(rarest);
        }
        self.sizes.push((mtu, 1));
    }

    /// Records a look at a connection to `address`; returns whether anything changed. Packets as large clear a black
    /// hole, and keep one from being suspected for [`PASSED_LATELY`]; larger ones clear a smaller MTU, since the next
    /// connection starts from the last one's route (ipv4_default_advmss).
    pub fn on_look(&mut self, now: Time, address: IpAddr, look: PathLook) -> bool {
        if let Some(packet) = look.passed {
            self.reached.on_passed(now, address, packet);
        }
        let packet = look.packet;
        let suspected = look.verdict == MtuVerdict::BlackHole;
        if suspected && self.reached.has_passed(now, address, packet) {
            return false;
        }
        self.troubled.retain(|trouble| now.since(trouble.seen) < FORGOTTEN_AFTER);
        let at = self.troubled.iter().position(|trouble| trouble.address == address);
        let before = at.and_then(|at| self.troubled.get(at)).copied();
        let verdict = match (look.verdict, look.passed, before.map(|trouble| trouble.verdict)) {
            (MtuVerdict::Fine, None, _) => return false,
            (MtuVerdict::Fine, Some(packet), Some(MtuVerdict::Smaller(mtu))) if packet <= mtu => {
                MtuVerdict::Smaller(mtu)
            }
            (MtuVerdict::Fine, Some(packet), Some(MtuVerdict::BlackHole))
                if before.is_some_and(|trouble| packet < trouble.packet) =>
            {
                return false;
            }
            (verdict, ..) => verdict,
        };
        if let Some(at) = at {
            self.troubled.remove(at);
        }
        if verdict == MtuVerdict::Fine {
            return false;
        }
        if self.troubled.len() == MOST_TROUBLED {
            let oldest = self.troubled.front();
            if oldest.is_some_and(|trouble| now.since(trouble.seen) < PASSED_LATELY) {
                // or all of them would be new again and again
                return false;
            }
            self.troubled.pop_front();
        }
        // one that is stuck with smaller packets says nothing of larger ones
        let larger = before.filter(|trouble| suspected && trouble.verdict == verdict);
        let packet = larger.map_or(packet, |trouble| packet.max(trouble.packet));
        self.troubled.push_back(PathTrouble { address, verdict, packet, seen: now });
        before.is_none_or(|trouble| trouble.verdict != verdict)
    }

    /// The path MTU met most often, bytes.
    pub fn usual(&self) -> Option<u32> {
        self.sizes.iter().max_by_key(|(size, count)| (*count, *size)).map(|(size, _)| *size)
    }

    /// The smallest met or found, bytes.
    pub fn smallest(&self, now: Time) -> Option<u32> {
        let found = self.troubled(now).filter_map(|trouble| match trouble.verdict {
            MtuVerdict::Smaller(mtu) => Some(mtu),
            _ => None,
        });
        self.sizes.iter().map(|(size, _)| *size).chain(found).min()
    }

    /// Destinations that differ, the oldest first.
    pub fn troubled(&self, now: Time) -> impl Iterator<Item = &PathTrouble> {
        self.troubled.iter().filter(move |trouble| now.since(trouble.seen) < FORGOTTEN_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use MtuVerdict::{BlackHole, Fine, Smaller};

    fn at(secs: u64) -> Time {
        Time::ZERO + Span::from_secs(secs)
    }

    fn host(n: u8) -> IpAddr {
        [192, 0, 2, n].into()
    }

    fn look(verdict: MtuVerdict, passed: Option<u32>) -> PathLook {
        PathLook { verdict, packet: 1500, passed }
    }

    fn verdicts(paths: &Paths, now: Time) -> Vec<(IpAddr, MtuVerdict)> {
        paths.troubled(now).map(|trouble| (trouble.address, trouble.verdict)).collect()
    }

    #[test]
    fn reports_usual_and_smallest_mtu() {
        let mut paths = Paths::new();
        assert_eq!((paths.usual(), paths.smallest(at(0))), (None, None));
        [1500, 1400, 1500, 1280, 1500].into_iter().for_each(|mtu| paths.on_path_mtu(mtu));
        assert_eq!((paths.usual(), paths.smallest(at(0))), (Some(1500), Some(1280)));
        paths.on_look(at(0), host(1), look(Smaller(1064), Some(1064)));
        assert_eq!(paths.smallest(at(1)), Some(1064));
        assert_eq!(paths.smallest(at(600)), Some(1280), "what was found is forgotten");
        (2000..2100).for_each(|mtu| paths.on_path_mtu(mtu));
        assert_eq!((paths.usual(), paths.sizes.len()), (Some(1500), MOST_SIZES));
    }

    #[test]
    fn black_hole_is_reported_once_and_cleared_by_large_packets() {
        let mut paths = Paths::new();
        assert!(paths.on_look(at(0), host(1), look(BlackHole, None)));
        assert!(!paths.on_look(at(1), host(1), look(BlackHole, None)));
        paths.on_look(at(2), host(1), look(Fine, None));
        assert_eq!(verdicts(&paths, at(2)), [(host(1), BlackHole)]);
        assert!(paths.on_look(at(3), host(1), look(Smaller(1064), Some(1064))));
        assert_eq!(verdicts(&paths, at(3)), [(host(1), Smaller(1064))]);
        paths.on_look(at(4), host(1), look(Fine, Some(1500)));
        assert_eq!(verdicts(&paths, at(4)), []);
        paths.on_look(at(124), host(1), look(BlackHole, None));
        let small = PathLook { packet: 600, ..look(BlackHole, None) };
        assert!(!paths.on_look(at(124), host(1), small));
        paths.on_look(at(125), host(1), look(Fine, Some(600)));
        assert_eq!(verdicts(&paths, at(125)), [(host(1), BlackHole)], "smaller ones pass there");
        paths.on_look(at(126), host(1), look(Fine, Some(1500)));
        assert_eq!(verdicts(&paths, at(126)), []);
    }

    #[test]
    fn outage_of_a_path_that_large_packets_passed_is_no_black_hole() {
        let mut paths = Paths::new();
        paths.on_look(at(0), host(1), look(Fine, Some(1500)));
        // others of its connections, opened just before, have sent nothing large yet
        for n in 1..120 {
            assert!(!paths.on_look(at(n), host(1), look(BlackHole, None)), "{n}");
            // smaller packets, and those to others, say nothing
            paths.on_look(at(n), host(1), look(Fine, Some(600)));
            paths.on_look(at(n), host(2), look(Fine, Some(1500)));
        }
        assert!(paths.on_look(at(120), host(1), look(BlackHole, None)), "it is none any more");
        assert_eq!(verdicts(&paths, at(120)), [(host(1), BlackHole)]);
    }

    #[test]
    fn cached_kernel_mtu_does_not_raise_a_smaller_one() {
        let mut paths = Paths::new();
        paths.on_look(at(0), host(1), look(Smaller(1400), Some(1400)));
        // the next connection's route and announcement have the 1400 already
        assert!(!paths.on_look(at(60), host(1), look(Fine, Some(1400))));
        // and one whose peer announced less says nothing of larger packets
        paths.on_look(at(61), host(1), look(Fine, Some(1052)));
        assert_eq!(verdicts(&paths, at(61)), [(host(1), Smaller(1400))]);
        assert_eq!(verdicts(&paths, at(630)).len(), 1, "it was seen again");
        paths.on_look(at(631), host(1), look(Fine, Some(1500)));
        assert_eq!(verdicts(&paths, at(631)), []);
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut paths = Paths::new();
        for n in 0..200 {
            paths.on_look(at(n.into()), host(n), look(BlackHole, None));
        }
        let list = verdicts(&paths, at(200));
        assert_eq!((list.len(), list[0].0), (MOST_TROUBLED, host(200 - MOST_TROUBLED as u8)));
        assert_eq!(verdicts(&paths, at(1_000)), []);
        // at one moment they do not take each other's entries, or each were new again
        let news = |paths: &mut Paths, now| {
            let mut look = |n| paths.on_look(at(now), host(n), look(BlackHole, None));
            (0..200).filter(|n| look(*n)).count()
        };
        assert_eq!([1_000, 1_001, 1_002].map(|now| news(&mut paths, now)), [MOST_TROUBLED, 0, 0]);
    }
}
