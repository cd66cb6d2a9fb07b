//! When to ask the allocator to give freed memory back to the system: after a crowd has left,
//! because giving back costs a walk over the heap.

/// Follows the number of live connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reclaim {
    /// The most since memory was last given back.
    peak: usize,
}

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
    fn sees_a_crowd_between_two_ticks() {
        let mut reclaim = Reclaim::default();
        assert!(!reclaim.on_tick(10, 10));
        assert!(reclaim.on_tick(20, 1_000));
        assert!(!reclaim.on_tick(0, 20));
    }
}
