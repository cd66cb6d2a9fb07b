//! What one owner's flows may hold together of the memory for bytes that wait.
//!
//! An owner may add until it holds [`ALPHA`] times as much as is then free (dynamic thresholds; Choudhury and Hahne,
//! IEEE/ACM ToN 6(2), 1998). One alone has two thirds at most, so another finds memory at once. Where `n` take all that
//! they get, each has `ALPHA / (1 + ALPHA * n)` of it. Bytes that wait cannot be taken back: where others hold more than
//! that, their part comes free as their bytes are sent.
//!
//! An owner may be a relay with owners of its own, which it names as it likes. Each of them may add until it holds
//! [`ALPHA`] times as much as the relay may add. So however many it names, the relay leaves as much as an owner leaves, and
//! those behind it leave some to one another: one alone has four ninths of all.
//!
//! [`SendQueue`](super::SendQueue) divides an owner's part among its flows in the same way.

/// Of what is free, an owner may hold so many times as much. A larger number gives one alone more, and those that come
/// after owners whose receivers have stopped less: of four, the last still finds a 27th of the memory.
pub const ALPHA: u64 = 2;

/// The memory for bytes that wait, as one owner meets it; bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holdings {
    /// What all may hold.
    pub most: u64,
    /// What all hold.
    pub all: u64,
    /// What the owner's flows hold of it.
    pub own: u64,
}

impl Holdings {
    /// Bytes that the owner's flows may add: what they add is no longer free.
    pub const fn free(self) -> u64 {
        may_add(self.most.saturating_sub(self.all), self.own)
    }

    /// Bytes that may be added by one behind the owner, which holds `part` of what the owner does.
    pub const fn free_behind(self, part: u64) -> u64 {
        may_add(self.free(), part)
    }
}

const fn may_add(free: u64, own: u64) -> u64 {
    ALPHA.saturating_mul(free).saturating_sub(own) / (1 + ALPHA)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    /// Owners, by what each holds.
    #[derive(Debug)]
    struct Memory {
        most: u64,
        held: Vec<u64>,
    }

    impl Memory {
        fn new(most: u64, owners: usize) -> Self {
            Self { most, held: vec![0; owners] }
        }

        fn all(&self) -> u64 {
            self.held.iter().sum()
        }

        /// What is free, and what an owner may hold of it.
        fn share(&self) -> u64 {
            ALPHA * (self.most - self.all())
        }

        fn free(&self, owner: usize) -> u64 {
            Holdings { most: self.most, all: self.all(), own: self.held[owner] }.free()
        }

        fn fill(&mut self, owner: usize) {
            self.held[owner] += self.free(owner);
        }
    }

    proptest! {
        /// Whatever owners add of what they may, and send. The bound is kept. One below its share is never refused,
        /// whatever others hold, and one above it is. What was sent is free again.
        #[test]
        fn an_owner_below_its_share_is_never_refused(
            most in 0_u64..100_000,
            owners in 1_usize..8,
            steps in prop::collection::vec((any::<bool>(), 0_usize..8, 0_u64..50_000), 0..200),
        ) {
            let mut memory = Memory::new(most, owners);
            for (adds, owner, bytes) in steps {
                let owner = owner % owners;
                if adds {
                    let added = bytes.min(memory.free(owner));
                    memory.held[owner] += added;
                    prop_assert!(added == 0 || memory.held[owner] <= memory.share());
                } else {
                    memory.held[owner] -= bytes.min(memory.held[owner]);
                }
                prop_assert!(memory.all() <= most);
                for nth in 0..owners {
                    let (own, free, share) = (memory.held[nth], memory.free(nth), memory.share());
                    prop_assert_eq!(free > 0, own + ALPHA < share, "{} of {}", own, share);
                }
            }
            for owner in 0..owners {
                memory.held[owner] = 0;
            }
            prop_assert_eq!(memory.free(0), ALPHA * most / (1 + ALPHA));
        }

        /// Owners that hold anything at first, each of which takes all that it may and sends it again in packets: one
        /// that comes later gets as much as each of them.
        #[test]
        fn owners_that_take_all_end_with_equal_parts(
            held in prop::collection::vec(0_u64..100_000, 1..8),
            packets in prop::collection::vec(0_usize..8, 8..20),
        ) {
            let most = 1_000_000;
            let owners = held.len() + 1;
            let mut memory = Memory { most, held };
            memory.held.push(0);
            for round in 0..4_000 {
                let owner = packets[round % packets.len()].max(round % 2 * 8) % owners;
                let other = round % owners;
                memory.held[owner] -= memory.held[owner].min(1_000);
                memory.held[other] -= memory.held[other].min(1_000);
                (0..owners).for_each(|owner| memory.fill(owner));
            }
            let equal = most * ALPHA / (1 + ALPHA * owners as u64);
            for own in &memory.held {
                prop_assert!(own.abs_diff(equal) <= equal / 20 + 1_000, "{own} {equal}");
            }
        }
    }

    #[test]
    fn one_alone_leaves_a_third_and_each_after_it_finds_some() {
        let mut memory = Memory::new(64 << 20, 4);
        (0..4).for_each(|owner| memory.fill(owner));
        let mib: Vec<u64> = memory.held.iter().map(|held| held >> 20).collect();
        assert_eq!(mib, [42, 14, 4, 1]);
    }

    /// Owners behind one relay, by what each holds, and one beside them.
    #[derive(Debug)]
    struct Relay {
        most: u64,
        behind: Vec<u64>,
        beside: u64,
    }

    impl Relay {
        fn of(&self, own: u64) -> Holdings {
            Holdings { most: self.most, all: self.behind.iter().sum::<u64>() + self.beside, own }
        }

        fn fill(&mut self, nth: usize) {
            let free = self.of(self.behind.iter().sum()).free_behind(self.behind[nth]);
            self.behind[nth] += free;
        }
    }

    proptest! {
        /// However many a relay names, in whatever order they take all that they may: together they leave what one owner
        /// leaves.
        #[test]
        fn a_relay_leaves_what_an_owner_leaves_however_many_it_names(
            names in 1_usize..300,
            again in prop::collection::vec(0_usize..300, 0..100),
        ) {
            let most = 64 << 20;
            let mut relay = Relay { most, behind: vec![0; names], beside: 0 };
            (0..names).chain(again).for_each(|nth| relay.fill(nth % names));
            let held: u64 = relay.behind.iter().sum();
            prop_assert!(held <= most * ALPHA / (1 + ALPHA), "{held}");
            let free = relay.of(relay.beside).free();
            prop_assert!(free >= most * 2 / 9, "{free}");
        }

        /// Those behind a relay that take all that they get and send it again in packets come to equal parts.
        #[test]
        fn owners_behind_a_relay_end_with_equal_parts(held in prop::collection::vec(0_u64..100_000, 1..8)) {
            let names = held.len();
            let mut relay = Relay { most: 1_000_000, behind: held, beside: 0 };
            for round in 0..4_000 {
                let sends = round % names;
                relay.behind[sends] -= relay.behind[sends].min(1_000);
                (0..names).for_each(|nth| relay.fill(nth));
            }
            let equal = relay.behind.iter().sum::<u64>() / names as u64;
            for own in &relay.behind {
                prop_assert!(own.abs_diff(equal) <= equal / 20 + 1_000, "{own} {equal}");
            }
        }
    }

    #[test]
    fn one_alone_behind_a_relay_leaves_some_to_others_there() {
        let mut relay = Relay { most: 63 << 20, behind: vec![0; 3], beside: 0 };
        (0..3).for_each(|nth| relay.fill(nth));
        let mib: Vec<u64> = relay.behind.iter().map(|held| held >> 20).collect();
        // the relay has 42 at most
        assert_eq!(mib, [28, 9, 3]);
    }
}
