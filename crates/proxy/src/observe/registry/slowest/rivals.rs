//! Who else takes a tunnel. One look at all connections serves every question, and asks the kernel nothing.

use super::about;
use std::collections::HashMap;
use std::sync::Arc;

/// Others that are named.
const NAMED: usize = 3;

/// What one connection takes of the tunnel that carries it.
#[derive(Debug, Clone)]
pub(crate) struct TunnelShare {
    pub(crate) peer: Arc<str>,
    /// Its account, its peer or its client's address.
    pub(crate) name: String,
    /// Whether it sends into the tunnel, or waits to.
    pub(crate) sends: bool,
    /// What comes out of the tunnel for it, bits per second.
    pub(crate) receives: u64,
}

/// What all connections take of all tunnels.
#[derive(Debug, Default)]
pub(crate) struct TunnelShares {
    own: HashMap<u64, TunnelShare>,
    tunnels: HashMap<Arc<str>, [Takers; 2]>,
}

/// A sum and its parts by name; the largest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Takers {
    sum: u64,
    parts: Vec<(String, u64)>,
}

/// The other connections in the same tunnel, by account, peer or address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rivals {
    /// How many send into it at this end, or wait to: they take turns.
    senders: Takers,
    /// What comes out of it for others, bits per second.
    receivers: Takers,
    /// Names beyond those that are kept.
    more: [usize; 2],
}

impl TunnelShares {
    /// Sums up what connections take, each with its number.
    pub(crate) fn new(shares: impl Iterator<Item = (u64, TunnelShare)>) -> Self {
        let mut sums: HashMap<Arc<str>, HashMap<String, [u64; 2]>> = HashMap::new();
        let own: HashMap<_, _> = shares
            .inspect(|(_, share)| {
                let names = sums.entry(Arc::clone(&share.peer)).or_default();
                let [senders, receives] = names.entry(share.name.clone()).or_default();
                *senders += u64::from(share.sends);
                *receives += share.receives;
            })
            .collect();
        let takers = |names: &HashMap<String, [u64; 2]>, which: usize| {
            let parts = names.iter().map(|(name, sums)| (name.clone(), sums[which]));
            let mut takers = Takers { parts: parts.filter(|part| part.1 > 0).collect(), sum: 0 };
            takers.sum = takers.parts.iter().map(|part| part.1).sum();
            takers.sort();
            takers
        };
        let tunnels =
            sums.into_iter().map(|(peer, names)| (peer, [0, 1].map(|which| takers(&names, which))));
        Self { own, tunnels: tunnels.collect() }
    }
}

impl Takers {
    fn sort(&mut self) {
        self.parts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    }

    /// Those but `own` of one name, the first [`NAMED`] of them, and how many names are left out.
    fn without(&self, name: &str, own: u64) -> (Self, usize) {
        let left = |part: &(String, u64)| if part.0 == name { part.1 - own } else { part.1 };
        let gone = self.parts.iter().any(|part| part.0 == name && part.1 == own);
        // one of them is smaller now, and may belong behind the next
        let first = self.parts.iter().take(NAMED + 1);
        let parts = first.map(|part| (part.0.clone(), left(part))).filter(|part| part.1 > 0);
        let mut others = Self { sum: self.sum - own, parts: parts.collect() };
        others.sort();
        others.parts.truncate(NAMED);
        let more = self.parts.len() - usize::from(gone) - others.parts.len();
        (others, more)
    }

    fn named(&self, more: usize, figure: impl Fn(u64) -> String) -> String {
        let named = self.parts.iter().map(|(name, n)| format!("{name} {}", figure(*n)));
        let mut named: Vec<String> = named.collect();
        if more > 0 {
            named.push(format!("and {more} more"));
        }
        named.join(", ")
    }
}

impl Rivals {
    /// Those of the connection of this number.
    pub(crate) fn of(connection: u64, all: &TunnelShares) -> Self {
        let own = all.own.get(&connection);
        let Some((own, tunnel)) = own.and_then(|own| Some((own, all.tunnels.get(&own.peer)?)))
        else {
            return Self::default();
        };
        let (senders, more_send) = tunnel[0].without(&own.name, own.sends.into());
        let (receivers, more_receive) = tunnel[1].without(&own.name, own.receives);
        Self { senders, receivers, more: [more_send, more_receive] }
    }

    /// What comes out of the tunnel for others, bits per second.
    pub(super) const fn receive(&self) -> u64 {
        self.receivers.sum
    }

    /// `; 3 other connections send, too: sato 2, suzuki 1`.
    pub(super) fn senders(&self) -> String {
        let verb = match self.senders.sum {
            0 => return String::new(),
            1 => "; 1 other connection sends, too".to_owned(),
            n => format!("; {n} other connections send, too"),
        };
        match self.senders.parts.as_slice() {
            // all of the tunnel's own peer, which says nothing
            [(name, _)] if name.starts_with("peer ") => verb,
            _ => format!("{verb}: {}", self.senders.named(self.more[0], |n| n.to_string())),
        }
    }

    /// `; others take 1.5 Mbit/s of it: sato 1.2 Mbit/s, suzuki 300 kbit/s`.
    pub(super) fn receivers(&self) -> Option<String> {
        let rate = self.receivers.sum;
        let list = || self.receivers.named(self.more[1], |rate| about(rate).to_string());
        (rate > 0).then(|| format!("; others take {} of it: {}", about(rate), list()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// As if each were compared with all others.
        #[test]
        fn rivals_are_all_others_of_the_tunnel(
            connections in prop::collection::vec((0_usize..2, 0_usize..7, any::<bool>(), 0_u64..4), 1..40)
        ) {
            let peers: [Arc<str>; 2] = ["far".into(), "ship".into()];
            let share = |(peer, name, sends, receives): &(usize, usize, bool, u64)| TunnelShare {
                peer: Arc::clone(&peers[*peer]),
                name: format!("name {name}"),
                sends: *sends,
                receives: *receives,
            };
            let all = || connections.iter().map(share).enumerate().map(|(id, share)| (id as u64, share));
            let shares = TunnelShares::new(all());
            for (id, own) in all() {
                let rivals = Rivals::of(id, &shares);
                let others = all().filter(|(other, share)| *other != id && share.peer == own.peer);
                let others: Vec<_> = others.map(|(_, share)| share).collect();
                let mut names: HashMap<String, u64> = HashMap::new();
                for other in &others {
                    *names.entry(other.name.clone()).or_default() += other.receives;
                }
                let mut names: Vec<_> = names.into_iter().filter(|name| name.1 > 0).collect();
                names.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
                prop_assert_eq!(rivals.receive(), names.iter().map(|name| name.1).sum::<u64>());
                prop_assert_eq!(rivals.more[1], names.len().saturating_sub(NAMED));
                names.truncate(NAMED);
                prop_assert_eq!(&rivals.receivers.parts, &names);
                let send = others.iter().filter(|other| other.sends).count() as u64;
                prop_assert_eq!(rivals.senders.sum, send);
            }
        }
    }
}
