//! How many messages of handshakes are worked on: each costs the relay some multiplications on the curve, on the thread
//! that data waits for.
//!
//! A source is an address of IPv4, or a /64 of IPv6. Messages that prove their address have rates of their own, so that
//! forged ones leave these alone.

use ekiden_model::resources::initial_rate::{Allowance, Config, InitialRate};
use ekiden_model::resources::overload::Source;
use ekiden_model::units::{Span, Time};
use std::collections::HashSet;
use std::net::IpAddr;

/// Of one source: so many at once, and 10 a second, where a client begins a handshake every two minutes.
const OWN: Allowance = Allowance { burst: 20, interval: Span::from_millis(100) };
/// Of all sources: so many at once, and 50 a second. Twice as many, with and without a proof, take 1.5 % of a processor.
const ALL: Allowance = Allowance { burst: 100, interval: Span::from_millis(20) };
/// Sources that are remembered.
const MOST: usize = 4_096;

/// Who sent messages of handshakes lately.
#[derive(Debug)]
pub struct SourceLimits {
    /// A message counts as a stranger's Initial does.
    rate: InitialRate,
    /// Where peers are.
    present: HashSet<Source>,
}

impl Default for SourceLimits {
    fn default() -> Self {
        let config = Config { address: [OWN; 4], all: [ALL; 4], remembered: MOST };
        Self { rate: InitialRate::new(config, Time::ZERO), present: HashSet::new() }
    }
}

impl SourceLimits {
    /// Whether a message is worked on whose source may be forged; if so, it counts. If not, its sender has to prove where
    /// it is.
    pub fn on_unproven(&mut self, now: Time, from: IpAddr) -> bool {
        self.rate.on_initial(now, from.into(), false)
    }

    /// The same of a source that has proved its address. From where a peer is, it does not count among all.
    pub fn on_proven(&mut self, now: Time, from: IpAddr) -> bool {
        let source = Source::from(from);
        self.rate.on_proven_initial(now, source, self.present.contains(&source))
    }

    /// Where peers are from now on.
    pub fn set_present(&mut self, addresses: impl Iterator<Item = IpAddr>) {
        self.present.clear();
        self.present.extend(addresses.map(Source::from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Time = Time::from_nanos(9_000_000_000);

    fn network(n: u32) -> IpAddr {
        format!("2001:db8:{:x}:{:x}::1", n >> 16, n & 0xffff).parse().unwrap()
    }

    #[test]
    fn a_source_waits_and_others_do_not() {
        let mut limits = SourceLimits::default();
        let [a, b] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse().unwrap());
        let passed = (0..100).filter(|_| limits.on_proven(NOW, a)).count();
        assert_eq!(passed, OWN.burst as usize);
        assert!(limits.on_proven(NOW, b));
        let then = NOW + OWN.interval;
        assert!(limits.on_proven(then, a) && !limits.on_proven(then, a));
        let [a, b] = ["2001:db8::1", "2001:db8::2"].map(|text| text.parse().unwrap());
        let passed = (0..100).filter(|n| limits.on_proven(NOW, [a, b][n % 2])).count();
        assert_eq!(passed, OWN.burst as usize, "one customer");
    }

    #[test]
    fn many_sources_have_as_many_as_all_may_and_known_ones_have_theirs() {
        let mut limits = SourceLimits::default();
        // many more than are remembered
        let passed = (0..2 * MOST as u32).filter(|n| limits.on_proven(NOW, network(*n)));
        assert_eq!(passed.count(), ALL.burst as usize);
        let at_home = network(u32::MAX);
        assert!(!limits.on_proven(NOW, at_home));
        limits.set_present([at_home].into_iter());
        let passed = (0..100).filter(|_| limits.on_proven(NOW, at_home)).count();
        assert_eq!(passed, OWN.burst as usize);
        let then = NOW + ALL.interval;
        assert!(limits.on_proven(then, network(7_777)));
        assert!(!limits.on_proven(then, network(7_778)));
    }

    #[test]
    fn forged_sources_leave_proven_ones_alone() {
        let mut limits = SourceLimits::default();
        // the client's own address among them
        let forged = (0..10_000_u32).filter(|n| limits.on_unproven(NOW, network(*n % 500))).count();
        assert_eq!(forged, ALL.burst as usize);
        assert!(limits.on_proven(NOW, network(0)));
    }

    proptest! {
        #[test]
        fn never_more_than_the_burst_and_the_rate(steps in proptest::collection::vec(0_u64..300, 1..400)) {
            let mut limits = SourceLimits::default();
            let (mut now, mut passed) = (Time::ZERO, 0);
            let from = IpAddr::from([192, 0, 2, 1]);
            for step in steps {
                now += Span::from_millis(step);
                passed += u64::from(limits.on_unproven(now, from));
                let more = now.since(Time::ZERO).as_millis() / OWN.interval.as_millis();
                prop_assert!(passed <= u64::from(OWN.burst) + more);
            }
        }
    }
}
