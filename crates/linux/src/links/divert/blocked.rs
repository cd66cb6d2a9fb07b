//! Which pairs are blocked now: no client may fill the kernel's set, because the others' QUIC would get no answer then.

use ekiden_model::resources::overload::Source;
use ekiden_model::units::{Span, Time};
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};

/// How long a pair is blocked: a browser that saw QUIC fail uses TCP for some minutes, and may then try again.
pub(super) const BLOCKED_SECONDS: u32 = 30;
/// The most pairs of the kernel's set of a family.
pub(super) const MOST: usize = 16_384;
/// Those that are put into it: the kernel removes the ones that have ended up to some seconds later.
const IN_USE: usize = MOST / 4 * 3;
/// The most pairs of one client. A browser begins far fewer connections in that time.
const OF_CLIENT: usize = 256;
/// Of an IPv6 /64: one client may use any of its addresses, and many clients share it.
const OF_NETWORK: usize = IN_USE / 4;

/// A client with its port, and a destination.
pub(super) type Pair = (SocketAddr, IpAddr);

/// Pairs that are blocked.
#[derive(Debug, Default)]
pub(super) struct BlockedPairs {
    /// With their ends, the earliest first.
    order: VecDeque<(Time, Pair)>,
    known: HashSet<Pair>,
    of_client: HashMap<IpAddr, usize>,
    of_network: HashMap<Source, usize>,
    /// Of IPv4, and of IPv6.
    of_family: [usize; 2],
}

impl BlockedPairs {
    /// Takes in those that are not blocked yet and for which there is room, and returns them.
    pub(super) fn take(&mut self, now: Time, pairs: &[Pair]) -> Vec<Pair> {
        while self.order.front().is_some_and(|(end, _)| *end <= now) {
            let first = self.order.pop_front();
            self.forget(first);
        }
        let end = now + Span::from_secs(BLOCKED_SECONDS.into());
        let fits = |pair: &&Pair| self.add(end, **pair);
        pairs.iter().filter(fits).copied().collect()
    }

    /// Forgets the last ones that were taken in: the kernel has not.
    pub(super) fn undo(&mut self, pairs: usize) {
        for _ in 0..pairs {
            let last = self.order.pop_back();
            self.forget(last);
        }
    }

    fn add(&mut self, end: Time, pair: Pair) -> bool {
        let (client, family) = (pair.0.ip(), usize::from(pair.0.is_ipv6()));
        let network = Source::from(client);
        let has = self.of_client.get(&client).copied().unwrap_or(0);
        let all = self.of_network.get(&network).copied().unwrap_or(0);
        let fits = has < OF_CLIENT && all < OF_NETWORK && self.of_family[family] < IN_USE;
        if !fits || !self.known.insert(pair) {
            return false;
        }
        self.of_client.insert(client, has + 1);
        self.of_network.insert(network, all + 1);
        self.of_family[family] += 1;
        self.order.push_back((end, pair));
        true
    }

    fn forget(&mut self, pair: Option<(Time, Pair)>) {
        let Some((_, pair)) = pair else { return };
        let (client, family) = (pair.0.ip(), usize::from(pair.0.is_ipv6()));
        self.known.remove(&pair);
        self.of_family[family] = self.of_family[family].saturating_sub(1);
        one_less(&mut self.of_client, client);
        one_less(&mut self.of_network, Source::from(client));
    }
}

fn one_less<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    let left = counts.get(&key).map_or(0, |has| has.saturating_sub(1));
    match left {
        0 => counts.remove(&key),
        left => counts.insert(key, left),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Time = Time::from_nanos(9_000_000_000);

    /// Pairs of one client, by so many ports.
    fn pairs(client: u32, ports: usize) -> Vec<Pair> {
        let to = IpAddr::from([192, 0, 2, 1]);
        let client = IpAddr::from((0x0a00_0000 + client).to_be_bytes());
        (1..=ports).map(|port| (SocketAddr::new(client, port as u16), to)).collect()
    }

    #[test]
    fn a_client_with_many_ports_leaves_room_for_the_others() {
        let mut blocked = BlockedPairs::default();
        assert_eq!(blocked.take(NOW, &pairs(1, 60_000)).len(), OF_CLIENT);
        assert_eq!(blocked.take(NOW, &pairs(1, 60_000)), []);
        assert_eq!(blocked.take(NOW, &pairs(2, 3)), pairs(2, 3));
        assert_eq!(blocked.take(NOW, &pairs(2, 4)), pairs(2, 4)[3..], "the others are blocked");
        // as much again when they have ended
        let before = NOW + Span::from_millis(29_999);
        assert_eq!(blocked.take(before, &pairs(1, 1_000)), []);
        assert_eq!(blocked.take(NOW + Span::from_secs(30), &pairs(1, 1_000)).len(), OF_CLIENT);
        // many clients together stay within the kernel's set
        let all: usize = (3..200).map(|n| blocked.take(NOW, &pairs(n, OF_CLIENT)).len()).sum();
        assert!(all < MOST && all + OF_CLIENT == IN_USE, "{all}");
        let v6 = ("[fd77::2]:1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        assert_eq!(blocked.take(NOW, &[v6]), [v6], "another set");
    }

    #[test]
    fn the_addresses_of_one_network_leave_three_quarters() {
        let to: IpAddr = "2001:db8::1".parse().unwrap();
        let of = |network: u16, host: u16| {
            let client = IpAddr::from([0xfd77, 0, 0, network, 0, 0, 0, host]);
            (1..=OF_CLIENT).map(move |port| (SocketAddr::new(client, port as u16), to))
        };
        let mut blocked = BlockedPairs::default();
        let many: Vec<Pair> = (1..=60).flat_map(|host| of(1, host)).collect();
        assert_eq!(blocked.take(NOW, &many).len(), OF_NETWORK);
        let other: Vec<Pair> = of(2, 1).collect();
        assert_eq!(blocked.take(NOW, &other), other);
        assert_eq!(blocked.take(NOW + Span::from_secs(30), &many).len(), OF_NETWORK);
    }

    #[test]
    fn a_pair_that_the_kernel_did_not_take_is_not_blocked() {
        let mut blocked = BlockedPairs::default();
        blocked.take(NOW, &pairs(1, 5));
        let more = blocked.take(NOW, &pairs(1, 9));
        assert_eq!(more.len(), 4);
        blocked.undo(more.len());
        assert_eq!(blocked.take(NOW, &pairs(1, 9)), more);
    }

    proptest! {
        #[test]
        fn counts_are_those_of_the_pairs(steps in proptest::collection::vec((0_u32..4, 0_usize..400, 0_u64..20), 1..60)) {
            let (mut blocked, mut now) = (BlockedPairs::default(), NOW);
            for (client, ports, seconds) in steps {
                now += Span::from_secs(seconds);
                let taken = blocked.take(now, &pairs(client, ports));
                if seconds % 3 == 0 {
                    blocked.undo(taken.len());
                }
                let total: usize = blocked.of_client.values().sum();
                prop_assert_eq!([total, 0], blocked.of_family);
                prop_assert_eq!((total, total), (blocked.order.len(), blocked.known.len()));
                prop_assert!(blocked.of_client.values().all(|has| (1..=OF_CLIENT).contains(has)));
            }
        }
    }
}
