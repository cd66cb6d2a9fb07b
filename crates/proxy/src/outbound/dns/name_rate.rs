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
/// before has fifty names each, of both families.
const BURST: Span = Span::from_secs(10);

/// For names of which nothing is known, and as much again for the other family of known ones. Some servers do not say for
/// how long a name lacks it, so that each connection asks.
type Rates = [Mutex<QuestionRate>; 2];

#[derive(Debug)]
pub(crate) struct NameRate {
    addresses: Rates,
    /// Of accounts and peers, behind which many may be.
    groups: Rates,
    /// Questions above the rate.
    limited: AtomicU64,
}

impl NameRate {
    pub(crate) fn new(dns: &Dns) -> Self {
        let rates = |per_second| -> Rates {
            [(); 2].map(|()| Mutex::new(QuestionRate::with_burst(per_second, BURST)))
        };
        let (addresses, groups) = (rates(of_address(dns)), rates(of_group(dns)));
        Self { addresses, groups, limited: AtomicU64::new(0) }
    }

    /// Other settings from now on.
    pub(super) fn configure(&self, dns: &Dns) {
        self.addresses.iter().for_each(|rate| locked(rate).configure(of_address(dns)));
        self.groups.iter().for_each(|rate| locked(rate).configure(of_group(dns)));
    }

    /// A question for a destination's name is to begin: whether it may. What this relay asks for itself always may.
    /// `known`: addresses of the name's other family are kept.
    pub(crate) fn on_question(&self, asker: &Asker, known: bool) -> bool {
        self.on_question_at(clock::now(), asker, known)
    }

    fn on_question_at(&self, now: Time, asker: &Asker, known: bool) -> bool {
        let [new, other] = match asker {
            Asker::Relay => return true,
            Asker::Client(_) => &self.addresses,
            Asker::Account(_) | Asker::Peer(_) => &self.groups,
        };
        // it is one rate, whatever its door proves
        let takes = |rate: &Mutex<QuestionRate>| locked(rate).on_question(now, asker.clone(), true);
        let allowed = (known && takes(other)) || takes(new);
        self.limited.fetch_add(u64::from(!allowed), Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_room_for_an_office_an_account_for_sixteen_and_the_relay_any() {
        let rate = NameRate::new(&Dns::default());
        let now = Time::ZERO + Span::from_secs(1);
        let of = |asker: &Asker, known| {
            (0..400_000).take_while(|_| rate.on_question_at(now, asker, known)).count()
        };
        let at_once = |asker: &Asker| of(asker, false);
        let client = Asker::at([192, 0, 2, 1].into());
        assert_eq!(at_once(&client), 10_000);
        assert_eq!(at_once(&Asker::Account(1)), 160_000);
        assert_eq!(at_once(&Asker::Peer("ship".into())), 160_000);
        assert_eq!(at_once(&Asker::Relay), 400_000);
        // the other family of known names leaves others theirs, and has an end
        let other = Asker::at([192, 0, 2, 3].into());
        assert_eq!((0..10_000).filter(|_| rate.on_question_at(now, &other, true)).count(), 10_000);
        assert_eq!(at_once(&other), 10_000);
        assert_eq!([of(&other, true), of(&client, true)], [0, 10_000]);
        assert_eq!(rate.limited(), 6);
        // nobody else's, and not for ever
        assert!(rate.on_question_at(now, &Asker::at([192, 0, 2, 2].into()), false));
        assert!(rate.on_question_at(now + Span::from_millis(1), &client, false));
    }
}
