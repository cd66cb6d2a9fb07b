//! When to ask the allocator to give freed memory back to the system: after a crowd has left, and where much that is
//! free stays resident. Giving back costs a walk over the heap.

/// Follows the number of live connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reclaim {
    /// The most since memory was last given back.
    peak: usize,
    /// Looks at memory until the next giving back for its sake.
    pause: u32,
}

/// Bytes that are resident and not in use, below which nothing is gained: heaps of threads, stacks, pages in part free.
const SLACK: u64 = 32 << 20;
/// Looks at memory between two givings back. Where pages stay because a little of each is in use, giving back does not
/// help, and is not tried each time.
const PAUSE: u32 = 60;

/// A crowd below this leaves less than a megabyte.
const CROWD: usize = 256;

impl Reclaim {
    /// Takes, once a second, live connections and the most since the last call; returns whether to
    /// give memory back: fewer than half of the crowd are left.
    pub fn on_tick(&mut self, live: usize, most: usize) -> bool {
        self.peak = self.peak.max(most).max(live);
        let over = self.peak >= CROWD && live <= self.peak / 2;
        if over {
            self.peak = live;
        }
        over
    }

    /// Takes, every ten seconds, bytes that are resident and bytes that are in use; returns whether to give memory back:
    /// more than a quarter of what is in use is resident besides.
    pub fn on_look(&mut self, resident: u64, in_use: u64) -> bool {
        self.pause = self.pause.saturating_sub(1);
        let over = resident.saturating_sub(in_use) > SLACK.max(in_use / 4) && self.pause == 0;
        if over {
            self.pause = PAUSE;
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_for_each_crowd_that_left() {
        let mut reclaim = Reclaim::default();
        let asked = [10, 0, 300, 1000, 600, 501, 500, 400, 250, 249, 100, 0]
            .map(|live| reclaim.on_tick(live, live));
        let at: std::vec::Vec<_> = (0..asked.len()).filter(|at| asked[*at]).collect();
        // 500 is half of 1000, 250 half of 500; below a crowd nothing is asked any more
        assert_eq!(at, [6, 8]);
    }

    #[test]
    fn much_that_is_free_and_resident_is_given_back_every_ten_minutes_at_most() {
        let mut reclaim = Reclaim::default();
        let mb = |n: u64| n << 20;
        // little, and little beside what is in use
        assert!(!reclaim.on_look(mb(40), mb(8)));
        assert!(!reclaim.on_look(mb(1_200), mb(1_000)));
        assert!(reclaim.on_look(mb(41), mb(8)));
        // it did not help: pages are in part in use
        let tries = (0..180).filter(|_| reclaim.on_look(mb(300), mb(100))).count();
        assert_eq!(tries, 3);
        // in use counts, even where part of it is not resident
        assert!((0..180).all(|_| !reclaim.on_look(mb(10), mb(100))));
    }

    #[test]
    fn sees_a_crowd_between_two_ticks() {
        let mut reclaim = Reclaim::default();
        assert!(!reclaim.on_tick(10, 10));
        assert!(reclaim.on_tick(20, 1_000));
        assert!(!reclaim.on_tick(0, 20));
    }
}
