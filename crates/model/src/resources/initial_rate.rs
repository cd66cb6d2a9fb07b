//! How many QUIC Initials of strangers are looked at, so that a flood of them leaves time for those who are known.
//!
//! ```text
//! on_initial(now, source, known)         whether an Initial is looked at; the rest is dropped unread
//! on_proven_initial(now, source, known)  the same, where its sender has shown that it is where it says
//! on_attempt(now, source, validated)     what becomes of the connection that it begins
//! ```
//! Four rates, each for one address (IPv4 /32, IPv6 /64) and for all together. They are for Initials that are decrypted,
//! for handshakes without and with a validated address (RFC 9000 §8.1.2), and for Initials with one. Above the second an
//! address has to show by Retry that it is its own. So forged addresses leave the last two rates alone, and one address
//! leaves most of each rate to the others.
//! Buckets follow the generic cell rate algorithm (ITU-T I.371): one time each. No deadline: credit grows with now.

use super::overload::Source;
use crate::units::{Span, Time};
use alloc::collections::BTreeMap;

/// A rate: `burst` at once, one more every `interval`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// At least 1.
    pub burst: u32,
    /// The inverse of the rate.
    pub interval: Span,
}

impl Allowance {
    const fn each_second(rate: u64, burst: u32) -> Self {
        Self { burst, interval: Span::from_nanos(1_000_000_000 / rate) }
    }
}

/// Allowances for Initials, handshakes, handshakes with a validated address, and Initials with one; in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Of one address. A relay tries four addresses with two lanes each, over UDP and TCP, and sends three Initials for each.
    pub address: [Allowance; 4],
    /// Of all together. A handshake takes some 0.4 ms of a core.
    pub all: [Allowance; 4],
    /// Addresses that are remembered.
    pub remembered: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            address: [
                Allowance::each_second(128, 256),
                Allowance::each_second(8, 32),
                Allowance::each_second(16, 64),
                Allowance::each_second(128, 256),
            ],
            all: [
                Allowance::each_second(512, 512),
                Allowance::each_second(64, 128),
                Allowance::each_second(64, 128),
                Allowance::each_second(512, 512),
            ],
            remembered: 1_024,
        }
    }
}

/// What becomes of a connection attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// Its handshake goes on.
    Accept,
    /// It has to show that its address is its own.
    Retry,
    /// It is ignored.
    Drop,
}

/// Rates of Initials.
#[derive(Debug, Clone)]
pub struct InitialRate {
    config: Config,
    all: [Bucket; 4],
    addresses: BTreeMap<Source, [Bucket; 4]>,
}

/// What is left of an [`Allowance`], all of it at first: when the bucket is full again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bucket(Time);

impl Bucket {
    /// Another comes: whether it may. One that may not takes nothing.
    pub fn takes(&mut self, now: Time, allowance: &Allowance) -> bool {
        let allows = self.allows(now, allowance);
        if allows {
            self.take(now, allowance);
        }
        allows
    }

    fn allows(self, now: Time, allowance: &Allowance) -> bool {
        let ahead = allowance.interval.saturating_mul(u64::from(allowance.burst - 1));
        self.0.since(now) <= ahead
    }

    fn take(&mut self, now: Time, allowance: &Allowance) {
        self.0 = self.0.max(now) + allowance.interval;
    }
}

impl InitialRate {
    /// Full buckets.
    pub const fn new(config: Config, now: Time) -> Self {
        Self { config, all: [Bucket(now); 4], addresses: BTreeMap::new() }
    }

    /// An Initial came: whether it is looked at. Of a `known` sender, one with a connection or of an address where a relay
    /// was identified, it does not count among all. So a flood of others ends no handshake that has begun.
    pub fn on_initial(&mut self, now: Time, source: Source, known: bool) -> bool {
        self.takes(now, source, 0, !known)
    }

    /// The same of a sender that has shown that it is where it says. What others forge uses up nothing of its rates.
    pub fn on_proven_initial(&mut self, now: Time, source: Source, known: bool) -> bool {
        self.takes(now, source, 3, !known)
    }

    /// An Initial begins a connection; `validated` if its address returned a token.
    pub fn on_attempt(&mut self, now: Time, source: Source, validated: bool) -> Attempt {
        let taken = self.takes(now, source, if validated { 2 } else { 1 }, true);
        match (taken, validated) {
            (true, _) => Attempt::Accept,
            (false, false) => Attempt::Retry,
            (false, true) => Attempt::Drop,
        }
    }

    fn takes(&mut self, now: Time, source: Source, nth: usize, counts: bool) -> bool {
        let Config { address: own, all, .. } = self.config;
        // first, so that a flood of forged addresses does not pass through the table
        if counts && !self.all[nth].allows(now, &all[nth]) {
            return false;
        }
        if !self.addresses.contains_key(&source) && self.addresses.len() >= self.config.remembered {
            self.make_room(now);
        }
        let buckets = self.addresses.entry(source).or_insert([Bucket(now); 4]);
        if !buckets[nth].allows(now, &own[nth]) {
            return false;
        }
        buckets[nth].take(now, &own[nth]);
        if counts {
            self.all[nth].take(now, &all[nth]);
        }
        true
    }

    /// Forgets addresses whose buckets are full, or else the one that is full soonest.
    fn make_room(&mut self, now: Time) {
        let full = |buckets: &[Bucket; 4]| buckets.iter().map(|bucket| bucket.0).max();
        self.addresses.retain(|_, buckets| full(buckets) > Some(now));
        if self.addresses.len() >= self.config.remembered {
            let soonest = self.addresses.iter().min_by_key(|(_, buckets)| full(buckets));
            if let Some(soonest) = soonest.map(|(key, _)| *key) {
                self.addresses.remove(&soonest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::SocketAddr;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn from(address: u16) -> Source {
        Source::V4(u32::from(address))
    }

    #[test]
    fn a_flood_of_one_address_leaves_the_rest_to_others() {
        let mut rate = InitialRate::new(Config::default(), at(0));
        let (mut looked, mut attempts) = (0, [0; 3]);
        for n in 0..26_000_u64 {
            let now = Time::from_nanos(n * 1_000_000_000 / 2_600);
            if rate.on_initial(now, from(1), false) {
                looked += 1;
                attempts[rate.on_attempt(now, from(1), false) as usize] += 1;
            }
            // ten a second of others
            if n % 260 == 0 {
                assert!(rate.on_initial(now, from(2), false));
                if n % 520 == 0 {
                    assert_eq!(rate.on_attempt(now, from(2), false), Attempt::Accept);
                }
            }
        }
        // nearly 10 s and the burst
        assert_eq!((looked, attempts), (1_535, [111, 1_424, 0]));
    }

    #[test]
    fn forged_addresses_leave_validated_ones_alone() {
        let mut rate = InitialRate::new(Config::default(), at(0));
        let forged = (0..5_000).filter(|n| {
            rate.on_initial(at(0), from(*n), false)
                && rate.on_attempt(at(0), from(*n), false) == Attempt::Accept
        });
        assert_eq!(forged.count(), 128);
        assert_eq!(rate.on_attempt(at(0), from(9_000), true), Attempt::Accept);
        assert!(rate.on_initial(at(0), from(9_000), true), "its handshake goes on");
        assert!(!rate.on_initial(at(0), from(9_001), false));
    }

    #[test]
    fn forged_addresses_leave_initials_of_proven_ones_alone() {
        let mut rate = InitialRate::new(Config::default(), at(0));
        // its own address among them
        let looked = (0..5_000).filter(|n| rate.on_initial(at(0), from(*n), false)).count();
        let own = (0..1_000).filter(|_| rate.on_initial(at(0), from(7), true)).count();
        assert_eq!((looked, own), (512, 255));
        assert!(rate.on_proven_initial(at(0), from(7), false));
        // and proven ones leave some to each other
        let all = (0..1_000).filter(|_| rate.on_proven_initial(at(0), from(8), false)).count();
        assert_eq!(all, 256);
        assert!(rate.on_proven_initial(at(0), from(9), false));
    }

    #[test]
    fn ipv6_counts_by_64_and_loopback_by_port() {
        let key = |text: &str| Source::of_datagram(text.parse().unwrap());
        assert_eq!(key("[2001:db8::1]:1"), key("[2001:db8::2]:2"));
        assert_ne!(key("[2001:db8:0:1::1]:1"), key("[2001:db8::1]:1"));
        assert_eq!(key("[::ffff:192.0.2.1]:1"), key("192.0.2.1:2"));
        assert_ne!(key("127.0.0.1:1"), key("127.0.0.1:2"));
        assert_ne!(key("[::1]:1"), key("[::1]:2"));
    }

    #[test]
    fn forged_datagrams_use_up_nothing_of_connections_from_their_address() {
        let mut rate = InitialRate::new(Config::default(), at(0));
        for text in ["192.0.2.1:1", "[2001:db8::1]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            let forged = Source::of_datagram(address);
            assert_eq!((0..300).filter(|_| rate.on_initial(at(0), forged, true)).count(), 256);
            assert!(rate.on_initial(at(0), address.ip().into(), true));
        }
    }

    proptest! {
        /// No more than the burst and the rate, of one address and of all; and none below its own is refused while all
        /// are below theirs.
        #[test]
        fn keeps_each_rate(events in prop::collection::vec((0_u64..200, 0_u16..6, 0_usize..4), 1..400)) {
            let allowance = |burst, ms| Allowance { burst, interval: Span::from_millis(ms) };
            let config = Config {
                address: [allowance(4, 50), allowance(2, 100), allowance(3, 80), allowance(3, 60)],
                all: [allowance(8, 20), allowance(4, 50), allowance(5, 40), allowance(6, 30)],
                remembered: 8,
            };
            let mut rate = InitialRate::new(config, at(0));
            let mut taken: Vec<(u64, u16, usize)> = Vec::new();
            let mut now = 0;
            for (gap, who, nth) in events {
                now += gap / 4;
                let ok = match nth {
                    0 => rate.on_initial(at(now), from(who), false),
                    3 => rate.on_proven_initial(at(now), from(who), false),
                    nth => rate.on_attempt(at(now), from(who), nth == 2) == Attempt::Accept,
                };
                if ok {
                    taken.push((now, who, nth));
                }
                let mut below = true;
                for (whose, allowance) in [(Some(who), config.address[nth]), (None, config.all[nth])] {
                    let of = taken.iter().filter(|it| it.2 == nth && whose.is_none_or(|who| it.1 == who));
                    let times: Vec<u64> = of.map(|it| it.0).collect();
                    let interval = allowance.interval.as_nanos() / 1_000_000;
                    let burst = u64::from(allowance.burst);
                    for (first, begin) in times.iter().enumerate() {
                        let within = (times.len() - first) as u64;
                        prop_assert!(within <= burst + (now - begin) / interval + 1);
                        below &= within < burst + (now - begin) / interval;
                    }
                }
                prop_assert!(ok || !below, "refused below its rate");
                prop_assert!(rate.addresses.len() <= config.remembered);
            }
        }

        #[test]
        fn the_table_is_bounded(addresses in prop::collection::vec(any::<u16>(), 1..200)) {
            let config = Config { remembered: 16, ..Config::default() };
            let mut rate = InitialRate::new(config, at(0));
            for (ms, address) in addresses.iter().enumerate() {
                rate.on_initial(at(ms as u64), from(*address), false);
                prop_assert!(rate.addresses.len() <= 16);
                prop_assert!(rate.addresses.contains_key(&from(*address)));
            }
        }
    }
}
