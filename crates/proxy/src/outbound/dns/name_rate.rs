//! How many questions for names of destinations servers are asked for one client, account or peer. Without a bound, one
//! whose destinations have ever new names makes this relay flood the servers of the zone that has them.

use super::state::CLIENTS_OF_PEER;
use crate::settings::Dns;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::dns::{Asker, QuestionRate};
use ekiden_model::units::{Span, Time};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// New questions a second of an address, in those that it may ask at the door for names: behind one address there may be
/// many, who all begin anew after a restart.
const TIMES: u32 = 5;
/// Questions at once, in time of the rate: 10,000 at the usual one. An office of a hundred that opens its pages of the day
/// before has fifty names each, of both families. Beyond the places of lookups they wait.
const BURST: Span = Span::from_secs(10);

/// One behind a tunnel has this part of what all behind it have: it may be an account of many itself.
const PART: u32 = 4;

/// For names of which nothing is known, and as much again for the other family of known ones. Some servers do not say for
/// how long a name lacks it, so that each connection asks.
type Rates = [Mutex<QuestionRate>; 2];

#[derive(Debug)]
pub(crate) struct NameRate {
    addresses: Rates,
    /// Of accounts and peers, behind which many may be.
    groups: Rates,
    /// Of each behind one of those.
    parts: Rates,
    /// Questions above the rate.
    limited: AtomicU64,
}

impl NameRate {
    pub(crate) fn new(dns: &Dns) -> Self {
        let rates = |per_second| -> Rates {
            [(); 2].map(|()| Mutex::new(QuestionRate::with_burst(per_second, BURST)))
        };
        let (addresses, groups) = (rates(of_address(dns)), rates(of_group(dns)));
        Self { addresses, groups, parts: rates(of_part(dns)), limited: AtomicU64::new(0) }
    }

    /// Other settings from now on.
    pub(super) fn configure(&self, dns: &Dns) {
        self.addresses.iter().for_each(|rate| locked(rate).configure(of_address(dns)));
        self.groups.iter().for_each(|rate| locked(rate).configure(of_group(dns)));
        self.parts.iter().for_each(|rate| locked(rate).configure(of_part(dns)));
    }

    /// A question for a destination's name is to begin: whether it may. What this relay asks for itself always may.
    /// `known`: addresses of the name's other family are kept.
    pub(crate) fn on_question(&self, asker: &Asker, known: bool) -> bool {
        self.on_questions(asker, 1, known)
    }

    /// So many of one name are to begin, of which one is worth nothing without the others: all may, or none.
    pub(crate) fn on_questions(&self, asker: &Asker, n: u32, known: bool) -> bool {
        self.on_questions_at(clock::now(), asker, n, known)
    }

    fn on_questions_at(&self, now: Time, asker: &Asker, n: u32, known: bool) -> bool {
        let takes = |[new, other]: &Rates, asker: &Asker| {
            // it is one rate, whatever its door proves
            let takes =
                |rate: &Mutex<QuestionRate>| locked(rate).on_questions(now, asker.clone(), true, n);
            (known && takes(other)) || takes(new)
        };
        let allowed = match asker {
            Asker::Relay => return true,
            Asker::Client(_) => takes(&self.addresses, asker),
            Asker::Account(_) | Asker::Peer(_) => takes(&self.groups, asker),
            // above its own it takes nothing of the others' behind the tunnel
            Asker::Behind(whole, _) => takes(&self.parts, asker) && takes(&self.groups, whole),
        };
        if !allowed {
            self.limited.fetch_add(n.into(), Relaxed);
        }
        allowed
    }

    /// Questions that were above the rate.
    pub(crate) fn limited(&self) -> u64 {
        self.limited.load(Relaxed)
    }
}

const fn of_address(dns: &Dns) -> u32 {
    dns.rate.saturating_mul(TIMES)
}

const fn of_group(dns: &Dns) -> u32 {
    of_address(dns).saturating_mul(CLIENTS_OF_PEER)
}

const fn of_part(dns: &Dns) -> u32 {
    of_group(dns) / PART
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn an_address_has_room_for_an_office_an_account_for_sixteen_and_the_relay_any() {
        let rate = NameRate::new(&Dns::default());
        let now = Time::ZERO + Span::from_secs(1);
        let of = |asker: &Asker, known| {
            (0..400_000).take_while(|_| rate.on_questions_at(now, asker, 1, known)).count()
        };
        let at_once = |asker: &Asker| of(asker, false);
        let client = Asker::at([192, 0, 2, 1].into());
        assert_eq!(at_once(&client), 10_000);
        assert_eq!(at_once(&Asker::Account(1)), 160_000);
        assert_eq!(at_once(&Asker::Peer("ship".into())), 160_000);
        assert_eq!(at_once(&Asker::Relay), 400_000);
        // the other family of known names leaves others theirs, and has an end
        let other = Asker::at([192, 0, 2, 3].into());
        let allowed = (0..10_000).filter(|_| rate.on_questions_at(now, &other, 1, true));
        assert_eq!(allowed.count(), 10_000);
        assert_eq!(at_once(&other), 10_000);
        assert_eq!([of(&other, true), of(&client, true)], [0, 10_000]);
        assert_eq!(rate.limited(), 6);
        // nobody else's, and not for ever
        assert!(rate.on_questions_at(now, &Asker::at([192, 0, 2, 2].into()), 1, false));
        assert!(rate.on_questions_at(now + Span::from_millis(1), &client, 1, false));
    }

    #[test]
    fn one_behind_a_tunnel_leaves_names_for_others_and_numbers_gain_a_relay_nothing() {
        let rate = NameRate::new(&Dns::default());
        let now = Time::ZERO + Span::from_secs(1);
        for whole in [Asker::Peer("near".into()), Asker::Account(1)] {
            let whole = Arc::new(whole);
            let at_once = |number, known| {
                let asker = Asker::Behind(Arc::clone(&whole), number);
                (0..400_000).take_while(|_| rate.on_questions_at(now, &asker, 1, known)).count()
            };
            assert_eq!(at_once(1, false), 40_000);
            assert_eq!((2..=255).map(|number| at_once(number, false)).sum::<usize>(), 120_000);
            assert!(!rate.on_questions_at(now, &whole, 1, false));
            assert_eq!((0..=255).map(|number| at_once(number, true)).sum::<usize>(), 160_000);
        }
    }

    #[test]
    fn names_within_the_rate_have_both_their_questions_however_many_are_above_it() {
        let rate = NameRate::new(&Dns::default());
        let client = Asker::at([192, 0, 2, 1].into());
        let mut now = Time::ZERO + Span::from_secs(1);
        let mut names = 0;
        while rate.on_questions_at(now, &client, 2, false) {
            names += 1;
        }
        assert_eq!((names, rate.limited()), (5_000, 2));
        // ten thousand within a second
        for _ in 0..10_000 {
            now += Span::from_micros(100);
            names += u32::from(rate.on_questions_at(now, &client, 2, false));
        }
        assert_eq!(names, 5_500);
    }
}
