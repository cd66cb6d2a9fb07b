//! Verdicts of the last day, right and wrong.

use crate::account::AccountId;
use ekiden_model::units::{Span, Time};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Verdicts kept of each kind: a few devices each of some thousands of accounts; 1 to 2 MiB.
const KEPT: usize = 16_384;
/// Right ones of one account, and wrong ones of one address: the rest is left to others.
const EACH: usize = KEPT / 4;
/// Since their last use (algorithms/split-connections C.9: 24 h). Use may prolong it, because each is of the present hash
/// alone: no change of a password is missed.
const GOOD_FOR: Span = Span::from_secs(24 * 3600);

/// A keyed hash, so that what is kept tells nothing.
pub(crate) type Digest = [u8; 32];

type Key = (IpAddr, Digest);

/// Verdicts by a keyed hash of user, password and its stored hash, so that a change voids them, and by address. Each has
/// the time of its last use.
#[derive(Debug, Default, Clone)]
pub(crate) struct VerdictCache {
    right: BTreeMap<Key, (AccountId, Time)>,
    wrong: BTreeMap<Key, Time>,
}

impl VerdictCache {
    /// Whether `digest` was found to belong to `account` at this address, lately enough. That is a use.
    pub(crate) fn holds(
        &mut self,
        address: IpAddr,
        digest: &Digest,
        account: AccountId,
        now: Time,
    ) -> bool {
        match self.right.get_mut(&(address, *digest)) {
            Some((whose, used)) if *whose == account && now.since(*used) < GOOD_FOR => {
                *used = now;
                true
            }
            _ => false,
        }
    }

    /// Keeps a right verdict; the one used longest ago goes when there are too many, or too many of the account.
    pub(crate) fn keep(&mut self, address: IpAddr, digest: Digest, account: AccountId, now: Time) {
        if !self.right.contains_key(&(address, digest)) {
            make_room(&mut self.right, |_, (whose, _)| *whose == account, |(_, used)| *used);
        }
        self.right.insert((address, digest), (account, now));
    }

    /// Whether `digest` was found wrong from `address`, lately enough. That is a use.
    pub(crate) fn is_wrong(&mut self, address: IpAddr, digest: &Digest, now: Time) -> bool {
        match self.wrong.get_mut(&(address, *digest)) {
            Some(used) if now.since(*used) < GOOD_FOR => {
                *used = now;
                true
            }
            _ => false,
        }
    }

    /// Keeps a wrong verdict; the one used longest ago goes when there are too many, or too many of the address.
    pub(crate) fn keep_wrong(&mut self, address: IpAddr, digest: Digest, now: Time) {
        if !self.wrong.contains_key(&(address, digest)) {
            make_room(&mut self.wrong, |(whose, _), _| *whose == address, |used| *used);
        }
        self.wrong.insert((address, digest), now);
    }
}

/// Makes room for one more: by the newcomer's own that was used longest ago where its share is full, and by that of all
/// where all is.
fn make_room<V>(
    kept: &mut BTreeMap<Key, V>,
    is_own: impl Fn(&Key, &V) -> bool,
    used: impl Fn(&V) -> Time,
) {
    let is_own = |(key, verdict): &(&Key, &V)| is_own(key, verdict);
    let is_share_full = kept.len() >= EACH && kept.iter().filter(is_own).count() >= EACH;
    if is_share_full || kept.len() >= KEPT {
        let may_go = kept.iter().filter(|one| !is_share_full || is_own(one));
        let oldest = may_go.min_by_key(|(_, verdict)| used(verdict)).map(|(key, _)| *key);
        if let Some(oldest) = oldest {
            kept.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digest of one of many log-ins.
    fn nth(n: u32) -> Digest {
        let mut digest = Digest::default();
        digest[..4].copy_from_slice(&n.to_be_bytes());
        digest
    }

    /// Of eight accounts with as many log-ins each.
    fn whose(n: u32) -> AccountId {
        AccountId(i64::from(n % 8))
    }

    fn at(second: u64) -> Time {
        Time::ZERO + Span::from_secs(second)
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([100, 64, 0, last])
    }

    #[test]
    fn the_last_16_384_log_ins_since_the_start_are_known_for_a_day() {
        let (here, mut cache) = (address(1), VerdictCache::default());
        let known = |cache: &VerdictCache, now| -> Vec<u32> {
            // of a copy: to ask is a use
            let mut cache = cache.clone();
            (0..16_400).filter(|n| cache.holds(here, &nth(*n), whose(*n), now)).collect()
        };
        assert_eq!(known(&cache, at(0)), [0; 0], "a start remembers nothing");
        cache.right.extend((0..16_384).map(|n| ((here, nth(n)), (whose(n), at(0)))));
        let all: Vec<u32> = (0..16_384).collect();
        assert_eq!(known(&cache, at(86_399)), all);
        assert!(!cache.holds(here, &nth(5), whose(6), at(86_399)));
        // one more takes the place of the first
        cache.keep(here, nth(16_384), whose(16_384), at(86_399));
        assert_eq!(known(&cache, at(86_399)).len(), 16_384);
        assert!(!cache.holds(here, &nth(0), whose(0), at(86_399)));
        assert_eq!(known(&cache, at(86_400)), [16_384]);
    }

    #[test]
    fn a_log_in_is_known_for_a_day_after_its_last_use() {
        let (here, mut cache) = (address(1), VerdictCache::default());
        cache.right.extend((0..16_384).map(|n| ((here, nth(n)), (whose(n), at(0)))));
        // it is the first, and stays for another
        assert!(cache.holds(here, &nth(0), whose(0), at(80_000)));
        cache.keep(here, nth(16_384), AccountId(100), at(80_000));
        assert!(!cache.holds(here, &nth(1), whose(1), at(80_000)));
        assert!(!cache.holds(here, &nth(2), whose(2), at(86_400)));
        assert!(cache.holds(here, &nth(0), whose(0), at(160_000)));
        assert!(!cache.holds(here, &nth(0), whose(0), at(246_400)));
    }

    #[test]
    fn an_account_has_a_quarter_of_the_log_ins_at_most() {
        let (account, mut cache) = (AccountId(7), VerdictCache::default());
        cache.keep(address(1), nth(0), AccountId(8), at(0));
        let full = (1..4_097).map(|n| ((address(1), nth(n)), (account, at(u64::from(n)))));
        cache.right.extend(full);
        // also from ever new addresses
        (4_097..4_200).for_each(|n| cache.keep(address(2), nth(n), account, at(u64::from(n))));
        let held = cache.right.values().filter(|(whose, _)| *whose == account).count();
        assert_eq!(held, 4_096);
        assert!(cache.holds(address(1), &nth(0), AccountId(8), at(5_000)));
        assert!(!cache.holds(address(1), &nth(1), account, at(5_000)));
        assert!(cache.holds(address(2), &nth(4_199), account, at(5_000)));
    }

    #[test]
    fn a_wrong_guess_is_known_for_a_day_after_its_last_use() {
        let mut cache = VerdictCache::default();
        assert!(!cache.is_wrong(address(1), &nth(0), at(0)));
        cache.keep_wrong(address(1), nth(0), at(0));
        assert!(cache.is_wrong(address(1), &nth(0), at(80_000)));
        assert!(
            !cache.is_wrong(address(2), &nth(0), at(80_000)),
            "to another address it tells nothing"
        );
        assert!(!cache.is_wrong(address(1), &nth(1), at(80_000)));
        assert!(!cache.holds(address(1), &nth(0), AccountId(7), at(80_000)));
        assert!(cache.is_wrong(address(1), &nth(0), at(166_399)));
        assert!(!cache.is_wrong(address(1), &nth(0), at(252_799)));
    }

    #[test]
    fn an_address_has_a_quarter_of_the_wrong_guesses_at_most() {
        let mut cache = VerdictCache::default();
        let guess = |cache: &mut VerdictCache, last, from: u32, second| {
            (from..from + 50).for_each(|n| cache.keep_wrong(address(last), nth(n), at(second)));
        };
        let held = |cache: &VerdictCache, last| {
            cache.wrong.keys().filter(|(whose, _)| *whose == address(last)).count()
        };
        for last in 1..=4 {
            let full = (0..4_096).map(|n| ((address(last), nth(n)), at(u64::from(last))));
            cache.wrong.extend(full);
        }
        // its own go, and a repeated one takes no place
        guess(&mut cache, 4, 4_096, 5);
        guess(&mut cache, 4, 4_096, 6);
        assert_eq!([1, 2, 3, 4].map(|last| held(&cache, last)), [4_096; 4]);
        assert!(!cache.is_wrong(address(4), &nth(49), at(6)));
        assert!(cache.is_wrong(address(4), &nth(50), at(6)));
        // one that is in use stays for a newcomer's
        assert!(cache.is_wrong(address(1), &nth(0), at(6)));
        guess(&mut cache, 5, 0, 7);
        assert_eq!(
            [1, 2, 3, 4, 5].map(|last| held(&cache, last)),
            [4_046, 4_096, 4_096, 4_096, 50]
        );
        assert!(cache.is_wrong(address(1), &nth(0), at(7)));
        assert!(!cache.is_wrong(address(1), &nth(1), at(7)));
    }
}
