//! Path MTUs that the connections of one leg found.

use super::MtuVerdict;
use crate::units::{Span, Time};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

/// Destinations that are remembered with a smaller MTU or a black hole; the oldest leaves.
pub const MOST_TROUBLED: usize = 64;

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
    /// When it was seen last.
    pub seen: Time,
}

/// Path MTUs by frequency, and destinations that differ.
#[derive(Debug, Clone, Default)]
pub struct Paths {
    sizes: Vec<(u32, u64)>,
    troubled: VecDeque<PathTrouble>,
}

impl Paths {
    /// Nothing seen.
    pub const fn new() -> Self {
        Self { sizes: Vec::new(), troubled: VecDeque::new() }
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

    /// Records the size of packets that `passed` to `address`, bytes; returns whether anything
    /// changed. Full-size segments clear a black hole; larger packets clear a smaller MTU, since
    /// the next connection starts from the last one's route (ipv4_default_advmss).
    pub fn on_verdict(
        &mut self,
        now: Time,
        address: IpAddr,
        verdict: MtuVerdict,
        passed: Option<u32>,
    ) -> bool {
        self.troubled.retain(|trouble| now.since(trouble.seen) < FORGOTTEN_AFTER);
        let at = self.troubled.iter().position(|trouble| trouble.address == address);
        let before = at.and_then(|at| self.troubled.get(at)).map(|trouble| trouble.verdict);
        let verdict = match (verdict, passed, before) {
            (MtuVerdict::Fine, None, _) => return false,
            (MtuVerdict::Fine, Some(packet), Some(MtuVerdict::Smaller(mtu))) if packet <= mtu => {
                MtuVerdict::Smaller(mtu)
            }
            _ => verdict,
        };
        if let Some(at) = at {
            self.troubled.remove(at);
        }
        if verdict == MtuVerdict::Fine {
            return false;
        }
        if self.troubled.len() == MOST_TROUBLED {
            self.troubled.pop_front();
        }
        self.troubled.push_back(PathTrouble { address, verdict, seen: now });
        before != Some(verdict)
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

    fn verdicts(paths: &Paths, now: Time) -> Vec<(IpAddr, MtuVerdict)> {
        paths.troubled(now).map(|trouble| (trouble.address, trouble.verdict)).collect()
    }

    #[test]
    fn reports_usual_and_smallest_mtu() {
        let mut paths = Paths::new();
        assert_eq!((paths.usual(), paths.smallest(at(0))), (None, None));
        [1500, 1400, 1500, 1280, 1500].into_iter().for_each(|mtu| paths.on_path_mtu(mtu));
        assert_eq!((paths.usual(), paths.smallest(at(0))), (Some(1500), Some(1280)));
        paths.on_verdict(at(0), host(1), Smaller(1064), Some(1064));
        assert_eq!(paths.smallest(at(1)), Some(1064));
        assert_eq!(paths.smallest(at(600)), Some(1280), "what was found is forgotten");
        (2000..2100).for_each(|mtu| paths.on_path_mtu(mtu));
        assert_eq!((paths.usual(), paths.sizes.len()), (Some(1500), MOST_SIZES));
    }

    #[test]
    fn black_hole_is_reported_once_and_cleared_by_large_packets() {
        let mut paths = Paths::new();
        assert!(paths.on_verdict(at(0), host(1), BlackHole, None));
        assert!(!paths.on_verdict(at(1), host(1), BlackHole, None));
        paths.on_verdict(at(2), host(1), Fine, None);
        assert_eq!(verdicts(&paths, at(2)), [(host(1), BlackHole)]);
        assert!(paths.on_verdict(at(3), host(1), Smaller(1064), Some(1064)));
        assert_eq!(verdicts(&paths, at(3)), [(host(1), Smaller(1064))]);
        paths.on_verdict(at(4), host(1), Fine, Some(1500));
        assert_eq!(verdicts(&paths, at(4)), []);
        paths.on_verdict(at(5), host(1), BlackHole, None);
        paths.on_verdict(at(6), host(1), Fine, Some(1500));
        assert_eq!(verdicts(&paths, at(6)), []);
    }

    #[test]
    fn cached_kernel_mtu_does_not_raise_a_smaller_one() {
        let mut paths = Paths::new();
        paths.on_verdict(at(0), host(1), Smaller(1400), Some(1400));
        // the next connection's route and announcement have the 1400 already
        assert!(!paths.on_verdict(at(60), host(1), Fine, Some(1400)));
        // and one whose peer announced less says nothing of larger packets
        paths.on_verdict(at(61), host(1), Fine, Some(1052));
        assert_eq!(verdicts(&paths, at(61)), [(host(1), Smaller(1400))]);
        assert_eq!(verdicts(&paths, at(630)).len(), 1, "it was seen again");
        paths.on_verdict(at(631), host(1), Fine, Some(1500));
        assert_eq!(verdicts(&paths, at(631)), []);
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut paths = Paths::new();
        for n in 0..200 {
            paths.on_verdict(at(n.into()), host(n), BlackHole, None);
        }
        let list = verdicts(&paths, at(200));
        assert_eq!((list.len(), list[0].0), (MOST_TROUBLED, host(200 - MOST_TROUBLED as u8)));
        assert_eq!(verdicts(&paths, at(1_000)), []);
    }
}
