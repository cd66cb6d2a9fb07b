//! How many questions an asker may have: a rate and a burst. Questions that prove their address have a rate of their own,
//! which forged ones cannot use up. Kept as the time at which the client's burst is full again
//! (the generic cell rate algorithm).

use super::asker::Asker;
use crate::units::{Span, Time};
use alloc::collections::BTreeMap;

/// Clients that are known at a time; more share one rate.
const MOST: usize = 8_192;
/// Between two looks for clients that may be forgotten.
const LOOKS: Span = Span::from_secs(1);
/// Questions at once, in time of the rate, unless said.
const BURST: Span = Span::from_secs(2);

/// The rate of each client.
#[derive(Debug, Clone)]
pub struct QuestionRate {
    /// Between two questions at the rate.
    gap: Span,
    /// Questions at once, in time of the rate.
    burst: Span,
    clients: BTreeMap<(Asker, bool), Time>,
    others: Time,
    looked: Time,
}

impl QuestionRate {
    /// So many questions a second, at least one, and twice as many at once.
    pub const fn new(per_second: u32) -> Self {
        Self::with_burst(per_second, BURST)
    }

    /// So many questions a second, at least one; at once, those of this time.
    pub const fn with_burst(per_second: u32, burst: Span) -> Self {
        Self {
            gap: gap(per_second),
            burst,
            clients: BTreeMap::new(),
            others: Time::ZERO,
            looked: Time::ZERO,
        }
    }

    /// Another rate from now on, with the same time for those at once.
    pub const fn configure(&mut self, per_second: u32) {
        self.gap = gap(per_second);
    }

    /// A question comes: whether it may. `proven`: its asker has shown that the address is its own, by a cookie or by TCP.
    pub fn on_question(&mut self, now: Time, asker: Asker, proven: bool) -> bool {
        self.on_questions(now, asker, proven, 1)
    }

    /// So many questions come, of which one is worth nothing without the others: whether all may. If not, none counts.
    pub fn on_questions(&mut self, now: Time, asker: Asker, proven: bool, n: u32) -> bool {
        let key = (asker, proven);
        if !self.clients.contains_key(&key) {
            self.forget(now);
        }
        let full = self.clients.len() >= MOST;
        let full_at = match self.clients.get_mut(&key) {
            Some(full_at) => full_at,
            None if full => &mut self.others,
            None => self.clients.entry(key).or_insert(now),
        };
        let cost = self.gap.saturating_mul(n.into());
        let next = now.max(*full_at) + cost;
        let allowed = next <= now + self.burst.max(cost);
        if allowed {
            *full_at = next;
        }
        allowed
    }

    /// Clients that are known.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    fn forget(&mut self, now: Time) {
        if self.clients.len() >= MOST / 2 && now.since(self.looked) >= LOOKS {
            self.looked = now;
            self.clients.retain(|_, full_at| *full_at > now);
        }
    }
}

const fn gap(per_second: u32) -> Span {
    Span::from_nanos(1_000_000_000 / if per_second == 0 { 1 } else { per_second as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn ip(text: &str) -> Asker {
        Asker::at(text.parse().unwrap())
    }

    proptest! {
        #[test]
        fn nobody_exceeds_the_rate_and_its_burst(
            gaps in proptest::collection::vec(0_u64..300, 1..300), rate in 1_u32..50,
        ) {
            let mut limit = QuestionRate::new(rate);
            let (mut now, mut allowed) = (at(0), 0_u64);
            for gap in gaps {
                now += ms(gap);
                allowed += u64::from(limit.on_question(now, ip("192.0.2.1"), false));
                let seconds = now.since(at(0)).as_secs_f64();
                prop_assert!(allowed as f64 <= (seconds + 2.0) * f64::from(rate) + 1.0);
            }
        }
    }

    proptest! {
        #[test]
        fn refused_askers_may_ask_after_one_gap_and_have_the_burst_again_after_its_time(
            gaps in proptest::collection::vec(0_u64..300, 1..300),
            rate in 1_u32..50,
            burst in 1_u64..20,
        ) {
            let mut limit = QuestionRate::with_burst(rate, Span::from_secs(burst));
            let (mut now, client) = (at(0), ip("192.0.2.1"));
            for gap_of_step in gaps {
                now += ms(gap_of_step);
                while limit.on_question(now, client.clone(), true) {}
                let mut later = limit.clone();
                prop_assert!(later.on_question(now + gap(rate), client.clone(), true));
            }
            now += Span::from_secs(burst);
            let again = (0..).take_while(|_| limit.on_question(now, client.clone(), true)).count();
            prop_assert!(again as u64 >= burst * u64::from(rate), "{}", again);
        }
    }

    #[test]
    fn questions_that_belong_together_all_count_or_none() {
        let mut limit = QuestionRate::new(1);
        let client = ip("192.0.2.1");
        assert!(limit.on_questions(at(0), client.clone(), true, 2), "the burst");
        for now in [0, 500, 1_000, 1_999] {
            assert!(!limit.on_questions(at(now), client.clone(), true, 2), "one is left at most");
        }
        assert!(limit.on_questions(at(2_000), client.clone(), true, 2), "what was refused is left");
        assert!(!limit.on_question(at(2_000), client, true));
        // more than ever come at once: all, where nothing came before
        assert!(limit.on_questions(at(0), ip("192.0.2.2"), true, 9));
    }

    #[test]
    fn networks_of_ipv6_are_one_client_and_addresses_of_ipv4_are_not() {
        let mut limit = QuestionRate::new(1);
        for (client, allowed) in [
            ("2001:db8::1", true),
            ("2001:db8::2", true),
            ("2001:db8::3", false),
            ("2001:db8:0:1::3", true),
            ("192.0.2.1", true),
            ("192.0.2.2", true),
            ("::ffff:192.0.2.1", true),
            ("192.0.2.1", false),
        ] {
            assert_eq!(limit.on_question(at(0), ip(client), false), allowed, "{client}");
        }
    }

    #[test]
    fn forged_questions_do_not_use_up_the_rate_of_proven_ones() {
        let mut limit = QuestionRate::new(1);
        let client = ip("192.0.2.1");
        while limit.on_question(at(0), client.clone(), false) {}
        let proven = (0..9).filter(|_| limit.on_question(at(0), client.clone(), true)).count();
        assert_eq!(proven, 2, "twice the rate at once, as for others");
    }

    #[test]
    fn memory_is_bounded_and_known_clients_keep_their_own_rate() {
        let mut limit = QuestionRate::new(100);
        let mut allowed = 0_u64;
        for n in 0..40_000_u32 {
            let client = Asker::at(core::net::Ipv4Addr::from(n).into());
            allowed += u64::from(limit.on_question(at(0), client, false));
        }
        assert!(limit.clients() <= MOST && allowed <= MOST as u64 + 200);
        assert!(limit.on_question(at(0), ip("0.0.0.1"), false), "known, and far below its rate");
        // later the silent ones are forgotten
        assert!(limit.on_question(at(5_000), ip("192.0.2.7"), false));
        assert_eq!(limit.clients(), 1);
    }
}
