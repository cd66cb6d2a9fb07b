//! Addresses of names, kept for their time. A name takes about 1 KiB at most, however long its answer was.

use super::recent::Recent;
use ekiden_model::units::{Span, Time};
use std::net::IpAddr;
use std::sync::Arc;

/// A name, and whether its addresses are of IPv6.
type Key = (Arc<str>, bool);

/// The least recently used give way.
#[derive(Debug)]
pub(super) struct KeptAddresses(Recent<Key, Kept>);

#[derive(Debug)]
struct Kept {
    /// None where the name has none.
    addresses: Box<[IpAddr]>,
    until: Time,
}

impl KeptAddresses {
    /// Of so many names and families at most.
    pub(super) const fn new(most: usize) -> Self {
        Self(Recent::new(most))
    }

    /// Those of a name, possibly none; `None`: it has to be asked for.
    pub(super) fn used(&mut self, now: Time, name: &str, ipv6: bool) -> Option<Vec<IpAddr>> {
        let key: Key = (name.into(), ipv6);
        let kept = self.0.used(&key)?;
        if now < kept.until {
            return Some(kept.addresses.to_vec());
        }
        self.0.remove(&key);
        None
    }

    /// Whether a name is known to have some, without a use of them.
    pub(super) fn has_addresses(&self, now: Time, name: &str, ipv6: bool) -> bool {
        let key: Key = (name.into(), ipv6);
        self.0.get(&key).is_some_and(|kept| now < kept.until && !kept.addresses.is_empty())
    }

    /// Those of a name are known for so long from now on; zero: not at all.
    pub(super) fn keep(
        &mut self,
        now: Time,
        name: &str,
        ipv6: bool,
        addresses: &[IpAddr],
        ttl: Span,
    ) {
        if ttl > Span::ZERO {
            let kept = Kept { addresses: addresses.into(), until: now + ttl };
            self.0.insert((name.into(), ipv6), kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Span = Span::from_secs(60);

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    fn ip(n: u8) -> IpAddr {
        [192, 0, 2, n].into()
    }

    #[test]
    fn addresses_are_known_for_their_time_and_none_of_zero() {
        let mut kept = KeptAddresses::new(9);
        kept.keep(at(0), "a.example", false, &[ip(1), ip(2)], MINUTE);
        kept.keep(at(0), "a.example", true, &[], Span::from_secs(5));
        kept.keep(at(0), "b.example", false, &[ip(3)], Span::ZERO);
        assert!(kept.has_addresses(at(59), "a.example", false));
        assert!(!kept.has_addresses(at(60), "a.example", false), "it has ended");
        assert!(!kept.has_addresses(at(4), "a.example", true), "there is none");
        assert_eq!(kept.used(at(59), "a.example", false), Some(vec![ip(1), ip(2)]));
        assert_eq!(kept.used(at(4), "a.example", true), Some(vec![]), "also that there is none");
        assert_eq!(kept.used(at(5), "a.example", true), None);
        assert_eq!(kept.used(at(60), "a.example", false), None);
        assert_eq!(kept.used(at(0), "b.example", false), None);
        assert_eq!(kept.0.len(), 0, "what has ended is gone");
        kept.keep(at(61), "a.example", false, &[ip(4)], MINUTE);
        assert_eq!(kept.used(at(62), "a.example", false), Some(vec![ip(4)]));
    }

    #[test]
    fn the_name_that_was_used_last_stays() {
        let mut kept = KeptAddresses::new(3);
        kept.keep(at(0), "a.example", false, &[ip(1)], MINUTE);
        for n in 0..200 {
            kept.keep(at(1), &format!("n{n}.example"), false, &[ip(2)], MINUTE);
            assert_eq!(kept.used(at(1), "a.example", false), Some(vec![ip(1)]));
        }
        assert_eq!(kept.0.len(), 3);
        assert_eq!(kept.used(at(1), "n199.example", false), Some(vec![ip(2)]));
        assert_eq!(kept.used(at(1), "n197.example", false), None);
    }
}
