//! Which name a client has for an address: the last one that it asked for and that was answered with that address.

use crate::units::{Span, Time};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::net::IpAddr;

/// Addresses of one client; with one more it loses its oldest.
const MOST_OF_ONE: usize = 1_024;
/// Of all clients.
const MOST: usize = 32_768;
/// The least time that a name is known: browsers keep an answer so long, whatever it says.
const LEAST: Span = Span::from_secs(60);

#[derive(Debug, Clone)]
struct Name {
    name: Arc<str>,
    until: Time,
    number: u64,
}

/// Names by client and address.
#[derive(Debug, Clone, Default)]
pub struct Heard {
    names: BTreeMap<(IpAddr, IpAddr), Name>,
    /// Of each client, by age.
    ages: BTreeMap<(IpAddr, u64), IpAddr>,
    /// Of all clients, by age.
    order: BTreeMap<u64, IpAddr>,
    held: BTreeMap<IpAddr, usize>,
    next: u64,
}

impl Heard {
    /// A client was answered that a name has this address, for so long.
    pub fn on_answer(
        &mut self,
        now: Time,
        client: IpAddr,
        address: IpAddr,
        name: &Arc<str>,
        ttl: Span,
    ) {
        let (client, address) = (client.to_canonical(), address.to_canonical());
        self.remove(client, address);
        while self.held.get(&client).is_some_and(|held| *held >= MOST_OF_ONE) {
            let oldest = self.ages.range((client, 0)..=(client, u64::MAX)).next();
            let Some(at) = oldest.map(|(_, at)| *at) else { break };
            self.remove(client, at);
        }
        while self.names.len() >= MOST {
            let oldest = self.order.first_key_value();
            let Some((number, of)) = oldest.map(|(number, of)| (*number, *of)) else { break };
            let Some(at) = self.ages.get(&(of, number)).copied() else { break };
            self.remove(of, at);
        }
        let number = self.next;
        self.next += 1;
        let name = Name { name: Arc::clone(name), until: now + ttl.max(LEAST), number };
        self.names.insert((client, address), name);
        self.ages.insert((client, number), address);
        self.order.insert(number, client);
        *self.held.entry(client).or_default() += 1;
    }

    /// The name by which a client knows an address.
    pub fn name(&self, now: Time, client: IpAddr, address: IpAddr) -> Option<&Arc<str>> {
        let name = self.names.get(&(client.to_canonical(), address.to_canonical()))?;
        (now < name.until).then_some(&name.name)
    }

    /// Names that are kept.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    fn remove(&mut self, client: IpAddr, address: IpAddr) {
        let Some(name) = self.names.remove(&(client, address)) else { return };
        self.ages.remove(&(client, name.number));
        self.order.remove(&name.number);
        if let Some(held) = self.held.get_mut(&client) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;
    use core::net::Ipv4Addr;

    fn ip(n: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(n))
    }

    #[test]
    fn the_last_name_of_an_address_counts_until_its_end() {
        let mut heard = Heard::default();
        let (first, last): (Arc<str>, Arc<str>) = ("a.example".into(), "b.example".into());
        heard.on_answer(at(0), ip(1), ip(9), &first, ms(1_000));
        heard.on_answer(at(0), ip(1), ip(9), &last, ms(100_000));
        assert_eq!(heard.name(at(99_999), ip(1), ip(9)), Some(&last));
        assert_eq!(heard.name(at(100_000), ip(1), ip(9)), None);
        assert_eq!(heard.name(at(1), ip(2), ip(9)), None, "another client asked for another name");
        heard.on_answer(at(0), ip(2), ip(9), &first, ms(1_000));
        assert_eq!(heard.name(at(59_999), ip(2), ip(9)), Some(&first));
    }

    proptest! {
        #[test]
        fn a_client_with_many_addresses_takes_none_of_others(
            asked in proptest::collection::vec((0_u32..4, 0_u32..3_000), 0..6_000),
        ) {
            let mut heard = Heard::default();
            let name: Arc<str> = "a.example".into();
            let mut plain: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            for (client, address) in asked {
                heard.on_answer(at(0), ip(client), ip(address), &name, ms(1));
                let list = plain.entry(client).or_default();
                list.retain(|one| *one != address);
                list.push(address);
                if list.len() > MOST_OF_ONE {
                    list.remove(0);
                }
            }
            let all = plain.values().map(Vec::len).sum::<usize>();
            prop_assert_eq!(heard.len(), all);
            for (client, list) in plain {
                prop_assert!(list.iter().all(|at_| heard.name(at(1), ip(client), ip(*at_)).is_some()));
            }
        }
    }

    #[test]
    fn all_clients_together_are_bounded() {
        let mut heard = Heard::default();
        let name: Arc<str> = "a.example".into();
        for client in 0..100_u32 {
            for address in 0..500 {
                heard.on_answer(at(0), ip(client), ip(address), &name, ms(1));
            }
        }
        assert_eq!(heard.len(), MOST);
        assert!(
            heard.name(at(0), ip(0), ip(0)).is_none() && heard.name(at(0), ip(99), ip(0)).is_some()
        );
        assert_eq!((heard.ages.len(), heard.order.len()), (MOST, MOST));
    }
}
