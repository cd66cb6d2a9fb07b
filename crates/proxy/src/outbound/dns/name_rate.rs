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

#[derive(Debug)]
pub(crate) struct NameRate {
    addresses: Mutex<QuestionRate>,
    /// Of accounts and peers, behind which many may be.
    groups: Mutex<QuestionRate>,
    /// Questions above the rate.
    limited: AtomicU64,
}

impl NameRate {
    pub(crate) fn new(dns: &Dns) -> Self {
        let rate = |per_second| Mutex::new(QuestionRate::with_burst(per_second, BURST));
        let (addresses, groups) = (rate(of_address(dns)), rate(of_group(dns)));
        Self { addresses, groups, limited: AtomicU64::new(0) }
    }

    /// Other settings from now on.
    pub(super) fn configure(&self, dns: &Dns) {
        locked(&self.addresses).configure(of_address(dns));
        locked(&self.groups).configure(of_group(dns));
    }

    /// A question for a destination's name is to begin: whether it may. What this relay asks for itself always may.
    pub(crate) fn on_question(&self, asker: &Asker) -> bool {
        self.on_question_at(clock::now(), asker)
    }

    fn on_question_at(&self, now: Time, asker: &Asker) -> bool {
        let rate = match asker {
            Asker::Relay => return true,
            Asker::Client(_) => &self.addresses,
            Asker::Account(_) | Asker::Peer(_) => &self.groups,
        };
        // it is one rate, whatever its door proves
        let allowed = locked(rate).on_question(now, asker.clone(), true);
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
        let at_once =
            |asker: &Asker| (0..200_000).take_while(|_| rate.on_question_at(now, asker)).count();
        let client = Asker::at([192, 0, 2, 1].into());
        assert_eq!(at_once(&client), 10_000);
        assert_eq!(at_once(&Asker::Account(1)), 160_000);
        assert_eq!(at_once(&Asker::Peer("ship".into())), 160_000);
        assert_eq!(at_once(&Asker::Relay), 200_000);
        assert_eq!(rate.limited(), 3);
        // nobody else's, and not for ever
        assert!(rate.on_question_at(now, &Asker::at([192, 0, 2, 2].into())));
        assert!(rate.on_question_at(now + Span::from_millis(1), &client));
    }
}
