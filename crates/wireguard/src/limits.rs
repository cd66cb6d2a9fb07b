//! How many messages of handshakes one source may send: each costs the relay some multiplications on the curve.

use ekiden_model::units::{Span, Time};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

/// Handshakes of one source that may come at once.
const BURST: u64 = 20;
/// Another may come after this long: 10 a second, where a client begins one every two minutes.
const EACH: Span = Span::from_millis(100);
/// Sources that are remembered.
const MOST: usize = 4_096;

/// Who began handshakes lately. A source is an address of IPv4, or a /64 of IPv6.
#[derive(Debug, Default)]
pub struct SourceLimits {
    /// When the source will have all of its burst again.
    whole: HashMap<IpAddr, Time>,
}

impl SourceLimits {
    /// Whether a source may begin a handshake now, or answer one; if so, it counts. One that nobody remembers is refused where there
    /// is no room to remember it.
    pub fn on_handshake(&mut self, now: Time, from: IpAddr) -> bool {
        let source = source(from);
        if !self.whole.contains_key(&source) && self.whole.len() >= MOST {
            self.whole.retain(|_, whole| *whole > now);
            if self.whole.len() >= MOST {
                return false;
            }
        }
        let whole = self.whole.entry(source).or_insert(now);
        let then = (*whole).max(now) + EACH;
        let fits = then <= now + EACH.saturating_mul(BURST);
        if fits {
            *whole = then;
        }
        fits
    }
}

/// What is one source: a network of IPv6 has a /64 for each of its customers.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_source_waits_and_others_do_not() {
        let mut limits = SourceLimits::default();
        let now = Time::ZERO + Span::from_secs(9);
        let [a, b] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse().unwrap());
        let passed = (0..100).filter(|_| limits.on_handshake(now, a)).count();
        assert_eq!(passed as u64, BURST);
        assert!(limits.on_handshake(now, b));
        assert!(limits.on_handshake(now + EACH, a) && !limits.on_handshake(now + EACH, a));
        let [a, b] = ["2001:db8::1", "2001:db8::2"].map(|text| text.parse().unwrap());
        let passed = (0..100).filter(|n| limits.on_handshake(now, [a, b][n % 2])).count();
        assert_eq!(passed as u64, BURST, "one customer");
    }

    #[test]
    fn memory_is_bounded_and_comes_back() {
        let mut limits = SourceLimits::default();
        let now = Time::ZERO + Span::from_secs(9);
        let passed = |limits: &mut SourceLimits, now| {
            let each = (0..2 * MOST as u32)
                .filter(|n| limits.on_handshake(now, IpAddr::from(n.to_be_bytes())));
            each.count()
        };
        assert_eq!(passed(&mut limits, now), MOST);
        assert_eq!(limits.whole.len(), MOST);
        assert_eq!(passed(&mut limits, now + EACH), MOST);
    }

    proptest! {
        #[test]
        fn never_more_than_the_burst_and_the_rate(steps in proptest::collection::vec(0_u64..300, 1..400)) {
            let mut limits = SourceLimits::default();
            let (mut now, mut passed) = (Time::ZERO, 0);
            let from = IpAddr::from([192, 0, 2, 1]);
            for step in steps {
                now += Span::from_millis(step);
                passed += u64::from(limits.on_handshake(now, from));
                prop_assert!(passed <= BURST + now.since(Time::ZERO).as_millis() / EACH.as_millis());
            }
        }
    }
}
