//! A quota that several relays share, in slices: each relay may carry what it was granted, and asks
//! for more in time. Pure values; the database adds grants up.
//!
//! Grants never exceed the quota. Until a relay hears that there is no more, it may carry one slice
//! ahead, so that nobody counts as spent while it asks or the database is away. That slice is paid
//! back out of the next grant. It is counted from the grant: a restart that knows the grant gives no second slice.

/// What one relay may carry for one account in one period. All amounts are bytes since the period began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    quota: u64,
    granted: u64,
    used: u64,
    /// Nothing more was to be had when it was asked for last.
    exhausted: bool,
}

/// Slices of a quota: an idle relay's matters little, and few are asked for.
const SLICES: u64 = 64;
/// The smallest slice, 1 MiB: asking takes a moment, in which a fast connection moves as much.
const SMALLEST: u64 = 1 << 20;
/// The largest, 1 GiB.
const LARGEST: u64 = 1 << 30;

impl Lease {
    /// A lease out of a quota of so many bytes; nothing is granted yet.
    pub const fn new(quota: u64) -> Self {
        Self { quota, granted: 0, used: 0, exhausted: false }
    }

    /// Bytes in a slice.
    pub const fn slice(&self) -> u64 {
        match self.quota / SLICES {
            slice if slice < SMALLEST => SMALLEST,
            slice if slice > LARGEST => LARGEST,
            slice => slice,
        }
    }

    /// Bytes of the quota.
    pub const fn quota(&self) -> u64 {
        self.quota
    }

    /// Bytes that were used on this relay.
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// Bytes that were granted in total, as far as this relay knows.
    pub const fn granted(&self) -> u64 {
        self.granted
    }

    /// The quota is so many bytes now. Of a larger one there may be more again.
    pub const fn on_quota(&mut self, quota: u64) {
        if quota > self.quota {
            self.exhausted = false;
        }
        self.quota = quota;
    }

    /// The grant in total is known from before, and nothing was asked for.
    pub const fn on_recalled(&mut self, granted: u64) {
        self.granted = granted;
    }

    /// So much was used on this relay since the period began; never less than before.
    pub const fn on_used(&mut self, used: u64) {
        if used > self.used {
            self.used = used;
        }
    }

    /// The database's grant in total, perhaps less than before, when the quota was lowered.
    pub const fn on_granted(&mut self, granted: u64) {
        self.exhausted = granted < self.used.saturating_add(self.slice() / 2);
        self.granted = granted;
    }

    /// Whether more should be asked for: less than half a slice is left.
    pub const fn wants(&self) -> bool {
        self.used.saturating_add(self.slice() / 2) > self.granted
    }

    /// What this relay may carry until the period ends, all it has carried included.
    pub const fn may(&self) -> u64 {
        let ahead = if self.exhausted { 0 } else { self.slice() };
        self.granted.saturating_add(ahead)
    }

    /// Whether nothing more was to be had when it was asked for last.
    pub const fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    /// What is left of that.
    pub const fn left(&self) -> u64 {
        self.may().saturating_sub(self.used)
    }
}

/// A relay's total grant when it asks: what it had, or used if more, and a slice as far as the
/// quota goes; `others` is all other relays' grant. Bytes.
pub fn share_out(quota: u64, others: u64, granted: u64, used: u64, slice: u64) -> u64 {
    let most = quota.saturating_sub(others);
    let wanted = if used.saturating_add(slice / 2) > granted {
        granted.max(used).saturating_add(slice)
    } else {
        granted
    };
    wanted.min(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_slice_is_a_64th_within_bounds() {
        assert_eq!(Lease::new(0).slice(), MIB);
        assert_eq!(Lease::new(6400 * MIB).slice(), 100 * MIB);
        assert_eq!(Lease::new(u64::MAX).slice(), 1 << 30);
    }

    #[test]
    fn one_slice_may_be_carried_ahead_and_no_second() {
        let mut lease = Lease::new(64 * MIB);
        assert_eq!(lease.left(), MIB);
        lease.on_granted(2 * MIB);
        lease.on_used(3 * MIB);
        assert_eq!(lease.left(), 0);
        // what was carried ahead is within what is granted next
        lease.on_granted(share_out(64 * MIB, 10 * MIB, 2 * MIB, 3 * MIB, MIB));
        assert_eq!((lease.may(), lease.left()), (5 * MIB, 2 * MIB));
    }

    #[test]
    fn nothing_is_carried_ahead_of_an_empty_quota() {
        let mut lease = Lease::new(4 * MIB);
        lease.on_granted(MIB);
        lease.on_used(MIB);
        // asked for more, and there was none
        lease.on_granted(MIB);
        assert_eq!(lease.left(), 0);
    }

    #[test]
    fn the_slice_is_that_of_the_quota_of_now() {
        let mut lease = Lease::new(6400 * MIB);
        lease.on_granted(100 * MIB);
        lease.on_used(100 * MIB);
        lease.on_granted(100 * MIB);
        assert!(lease.is_exhausted() && lease.left() == 0);
        // a smaller quota: a smaller slice, and still nothing to be had
        lease.on_quota(3200 * MIB);
        assert_eq!((lease.slice(), lease.left()), (50 * MIB, 0));
        lease.on_quota(12_800 * MIB);
        assert_eq!((lease.slice(), lease.left()), (200 * MIB, 200 * MIB));
    }

    #[test]
    fn a_grant_from_before_gives_no_second_slice_ahead() {
        let mut lease = Lease::new(64 * MIB);
        lease.on_granted(2 * MIB);
        lease.on_used(3 * MIB);
        // started again, as often as one likes
        for _ in 0..3 {
            let (granted, used) = (lease.granted(), 3 * MIB);
            lease = Lease::new(64 * MIB);
            lease.on_recalled(granted);
            lease.on_used(used);
            assert!(lease.wants());
            assert_eq!((lease.may(), lease.left()), (3 * MIB, 0));
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Use(usize, u64),
        Ask(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..3_usize, 0..3 * MIB).prop_map(|(relay, bytes)| Step::Use(relay, bytes)),
            (0..3_usize).prop_map(Step::Ask),
        ]
    }

    proptest! {
        #[test]
        fn grants_stay_within_the_quota_and_use_within_a_slice_a_relay_beyond(
            quota in 0..40 * MIB, steps in prop::collection::vec(step(), 0..200),
        ) {
            let mut relays = [Lease::new(quota); 3];
            let mut granted = [0_u64; 3];
            let slice = relays[0].slice();
            for step in steps {
                match step {
                    Step::Use(n, bytes) => {
                        let more = bytes.min(relays[n].left());
                        let used = relays[n].used + more;
                        relays[n].on_used(used);
                    }
                    Step::Ask(n) if relays[n].wants() => {
                        let others = granted.iter().sum::<u64>() - granted[n];
                        granted[n] = share_out(quota, others, granted[n], relays[n].used, slice);
                        relays[n].on_granted(granted[n]);
                    }
                    Step::Ask(_) => {}
                }
                prop_assert!(granted.iter().sum::<u64>() <= quota);
                let used: u64 = relays.iter().map(|lease| lease.used).sum();
                prop_assert!(used <= quota + 3 * slice, "{used} of {quota}");
            }
        }

        #[test]
        fn all_of_the_quota_is_used_and_at_most_a_slice_a_relay_beyond(
            quota in 1..40 * MIB, order in prop::collection::vec(0..3_usize, 400),
        ) {
            let mut relays = [Lease::new(quota); 3];
            let mut granted = [0_u64; 3];
            // the last word is one relay's, which finds all that the others do not hold unused
            for n in order.into_iter().chain([0; 100]) {
                let slice = relays[n].slice();
                if relays[n].wants() {
                    let others = granted.iter().sum::<u64>() - granted[n];
                    granted[n] = share_out(quota, others, granted[n], relays[n].used, slice);
                    relays[n].on_granted(granted[n]);
                }
                let used = relays[n].used + relays[n].left();
                relays[n].on_used(used);
            }
            let used: u64 = relays.iter().map(|lease| lease.used).sum();
            prop_assert!(used >= quota && used <= quota + 3 * relays[0].slice(), "{used} of {quota}");
        }
    }
}
