//! Division of a pool among demands that exceed it (algorithms/buffers A.4).

use alloc::vec::Vec;

/// How what is left after the small demands are satisfied is divided among the large ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Excess {
    /// In proportion to demand (E-ATBT, as published: just above the fair share can get less than
    /// just below).
    #[default]
    Proportional,
    /// Equally (ATBT): a larger demand never gets less.
    Equal,
}

/// A buffer's claim on the pool, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Claim {
    /// The useful size.
    pub demand: u64,
    /// Below this it is of little use.
    pub floor: u64,
    /// Bytes in it now that cannot be taken away.
    pub queued: u64,
}

/// Buffers are handed out in such units (algorithms/buffers A.4).
pub const UNIT: u64 = 1_024;

/// Divides `pool` bytes among `demands`: all of them if they fit; otherwise small ones max-min
/// fair, and `excess` decides above the fair share. Rounded down: the sum is at most the pool. O(n
/// log n).
pub fn allocate(demands: &[u64], pool: u64, excess: Excess) -> Vec<u64> {
    let mut shares = demands.to_vec();
    let mut left = total(demands);
    if left <= u128::from(pool) {
        return shares;
    }
    let mut order: Vec<usize> = (0..demands.len()).collect();
    // the largest first, so that satisfied ones are popped from the end
    order.sort_unstable_by_key(|at| core::cmp::Reverse((demands[*at], *at)));
    let mut rest = u128::from(pool);
    while let Some(at) = order.last() {
        let demand = u128::from(demands[*at]);
        if demand * order.len() as u128 > rest {
            break;
        }
        rest -= demand;
        left -= demand;
        order.pop();
    }
    let many = order.len() as u128;
    for at in order {
        let share = match excess {
            Excess::Proportional => rest * u128::from(demands[at]) / left,
            Excess::Equal => rest / many,
        };
        // less than its demand, so it fits
        shares[at] = share as u64;
    }
    shares
}

/// Divides `pool` bytes among claims, in units of [`UNIT`] where a share is at least one. The sum
/// is at most `pool`. Where not everything fits, claims yield in this order:
///
/// 1. demands: as [`allocate`], where a claim below its floor or queue gets that, and the others
///    share the rest; where that pushes others below theirs, all get theirs and share the rest;
/// 2. floors: each gets its queue, and a share of its floor beyond;
/// 3. queues: each gets a share of its queue; smaller than that, a buffer only has to drain first.
pub fn distribute(claims: &[Claim], pool: u64, excess: Excess) -> Vec<u64> {
    let of = |part: fn(&Claim) -> u64| claims.iter().map(part).collect::<Vec<u64>>();
    let (queued, least, wanted) = (of(Claim::held), of(Claim::least), of(Claim::wanted));
    let room = u128::from(pool);
    let mut shares = if total(&least) <= room {
        above(&least, &wanted, pool, excess)
    } else if total(&queued) <= room {
        beyond(&queued, &least, pool, excess)
    } else {
        allocate(&queued, pool, excess)
    };
    shares.iter_mut().for_each(|share| *share = in_units(*share));
    shares
}

impl Claim {
    fn held(&self) -> u64 {
        whole_units(self.queued)
    }

    pub(super) fn least(&self) -> u64 {
        self.held().max(whole_units(self.floor))
    }

    pub(super) fn wanted(&self) -> u64 {
        self.least().max(whole_units(self.demand))
    }
}

/// Rounded down to whole units, from one on: a share below one is better than none.
pub(super) const fn in_units(bytes: u64) -> u64 {
    if bytes < UNIT { bytes } else { bytes - bytes % UNIT }
}

fn whole_units(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT).saturating_mul(UNIT)
}

pub(super) fn total(parts: &[u64]) -> u128 {
    parts.iter().map(|part| u128::from(*part)).sum()
}

/// [`allocate`], then once more with those fixed that fell below `least`, whose sum is at most
/// `pool`.
fn above(least: &[u64], wanted: &[u64], pool: u64, excess: Excess) -> Vec<u64> {
    let first = allocate(wanted, pool, excess);
    let short: Vec<bool> = first.iter().zip(least).map(|(share, least)| share < least).collect();
    if !short.contains(&true) {
        return first;
    }
    let (mut others, mut fixed) = (Vec::with_capacity(wanted.len()), 0);
    for ((short, least), wanted) in short.iter().zip(least).zip(wanted) {
        // one that is fixed asks nothing more
        others.push(if *short { 0 } else { *wanted });
        fixed += if *short { *least } else { 0 };
    }
    let mut second = allocate(&others, pool - fixed, excess);
    for ((share, short), least) in second.iter_mut().zip(&short).zip(least) {
        if *short {
            *share = *least;
        }
    }
    let fits = second.iter().zip(least).all(|(share, least)| share >= least);
    if fits { second } else { beyond(least, wanted, pool, excess) }
}

/// Each gets its `first`, whose sum is at most the pool, and a share of the rest.
fn beyond(first: &[u64], wanted: &[u64], pool: u64, excess: Excess) -> Vec<u64> {
    let further: Vec<u64> =
        wanted.iter().zip(first).map(|(wanted, first)| wanted - first).collect();
    let rest = pool - first.iter().sum::<u64>();
    let mut shares = allocate(&further, rest, excess);
    shares.iter_mut().zip(first).for_each(|(share, first)| *share += first);
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;
    use Excess::{Equal, Proportional};

    /// In millionths, so that the vectors' thirds have their three decimals.
    fn exact(demands: &[u64], pool: u64, excess: Excess) -> Vec<f64> {
        let fine: Vec<u64> = demands.iter().map(|demand| demand * 1_000_000).collect();
        let shares = allocate(&fine, pool * 1_000_000, excess);
        shares.into_iter().map(|share| (share as f64 / 1e3).round() / 1e3).collect()
    }

    #[test]
    fn vectors_of_the_specification() {
        // algorithms/buffers A.4
        assert_eq!(exact(&[10, 20, 30, 40], 120, Proportional), [10.0, 20.0, 30.0, 40.0]);
        assert_eq!(exact(&[10, 20, 30, 40], 80, Proportional), [10.0, 20.0, 21.429, 28.571]);
        assert_eq!(exact(&[5, 50, 100, 400], 200, Proportional), [5.0, 50.0, 29.0, 116.0]);
        assert_eq!(exact(&[5, 50, 100, 400], 200, Equal), [5.0, 50.0, 72.5, 72.5]);
        assert_eq!(exact(&[100, 100], 50, Proportional), [25.0, 25.0]);
        assert_eq!(exact(&[100, 100], 50, Equal), [25.0, 25.0]);
        assert_eq!(allocate(&[], 50, Equal), [] as [u64; 0]);
        assert_eq!(allocate(&[u64::MAX, u64::MAX], u64::MAX, Proportional), [u64::MAX / 2; 2]);
    }

    /// algorithms/buffers A.4 as it is written there, round by round.
    fn as_written(demands: &[f64], pool: f64, excess: Excess) -> Vec<f64> {
        if demands.iter().sum::<f64>() <= pool {
            return demands.to_vec();
        }
        let mut shares = vec![None; demands.len()];
        let (mut rest, mut left) = (pool, demands.len());
        loop {
            let fair = rest / left as f64;
            let small: Vec<usize> = (0..demands.len())
                .filter(|at| shares[*at].is_none() && demands[*at] <= fair)
                .collect();
            for at in &small {
                shares[*at] = Some(demands[*at]);
                rest -= demands[*at];
                left -= 1;
            }
            if small.is_empty() || left == 0 {
                break;
            }
        }
        let unmet = demands.iter().zip(&shares).filter(|(_, share)| share.is_none());
        let sum: f64 = unmet.map(|(demand, _)| demand).sum();
        let share = |demand: f64| match excess {
            Proportional => rest * demand / sum,
            Equal => rest / left as f64,
        };
        let given = shares.iter().zip(demands);
        given.map(|(given, demand)| given.unwrap_or_else(|| share(*demand))).collect()
    }

    fn excesses() -> impl Strategy<Value = Excess> {
        prop_oneof![Just(Proportional), Just(Equal)]
    }

    proptest! {
        #[test]
        fn sorted_once_it_is_the_published_loop(
            demands in proptest::collection::vec(0_u64..5_000_000, 0..60),
            part in 0_u64..130,
            excess in excesses(),
        ) {
            let pool = (demands.iter().sum::<u64>() / 100 * part).max(demands.len() as u64);
            let shares = allocate(&demands, pool, excess);
            prop_assert!(total(&shares) <= u128::from(pool));
            let floats: Vec<f64> = demands.iter().map(|demand| *demand as f64).collect();
            for (share, expected) in shares.iter().zip(as_written(&floats, pool as f64, excess)) {
                prop_assert!((*share as f64 - expected).abs() <= 1.0, "{share} for {expected}");
            }
            for (at, share) in shares.iter().enumerate() {
                prop_assert!(*share <= demands[at]);
                // monotonous where the rule is
                let less = (0..shares.len()).filter(|other| demands[*other] <= demands[at]);
                let monotonous = less.into_iter().all(|other| shares[other] <= *share);
                prop_assert!(excess == Proportional || monotonous);
            }
            // nothing is left over but what rounding took
            let expected = total(&demands).min(u128::from(pool));
            prop_assert!(total(&shares) + demands.len() as u128 >= expected);
        }

        #[test]
        fn demands_yield_in_order_and_the_pool_holds(
            claims in proptest::collection::vec(
                (0_u64..300_000, 0_u64..6_000, prop_oneof![Just(0_u64), 0_u64..100_000]),
                0..60,
            ),
            pool in 0_u64..8_000_000,
            excess in excesses(),
        ) {
            let claim = |(demand, floor, queued)| Claim { demand, floor, queued };
            let claims: Vec<Claim> = claims.into_iter().map(claim).collect();
            let shares = distribute(&claims, pool, excess);
            prop_assert!(total(&shares) <= u128::from(pool));
            let sum = |part: fn(&Claim) -> u64| claims.iter().map(part).sum::<u64>();
            for (share, claim) in shares.iter().zip(&claims) {
                prop_assert!(*share <= claim.wanted());
                prop_assert!(*share < UNIT || *share % UNIT == 0);
                prop_assert!(sum(Claim::held) > pool || *share >= claim.queued, "queued");
                prop_assert!(sum(Claim::least) > pool || *share >= claim.floor, "floor");
                prop_assert!(sum(Claim::wanted) > pool || *share >= claim.demand, "demand");
            }
        }
    }

    #[test]
    fn clamped_claims_are_fixed_and_others_share() {
        let claim = |demand, floor, queued| Claim { demand, floor, queued };
        // fair shares 16 KiB of 64; the third has 30 KiB queued, so the large ones share 64 − 30 − 4
        let kib = |n: u64| n * 1_024;
        let claims = [
            claim(kib(4), 0, 0),
            claim(kib(40), 0, 0),
            claim(kib(20), 0, kib(30)),
            claim(kib(80), 0, 0),
        ];
        assert_eq!(distribute(&claims, kib(64), Equal), [4, 15, 30, 15].map(kib));
        // three floors of 3 KiB in 8: what is queued, and a third of what is left each
        let claims =
            [claim(kib(9), kib(3), kib(2)), claim(kib(9), kib(3), 0), claim(kib(9), kib(3), 0)];
        let shares = distribute(&claims, kib(8), Equal);
        assert_eq!(shares, [3, 2, 2].map(kib));
        // more queued than there is
        let claims = [claim(0, 0, kib(60)), claim(0, 0, kib(20))];
        assert_eq!(distribute(&claims, kib(40), Proportional), [20, 20].map(kib));
        // below a unit nothing is rounded away
        assert_eq!(distribute(&[claim(kib(9), kib(3), 0); 4], 2_000, Equal), [500; 4]);
    }
}
