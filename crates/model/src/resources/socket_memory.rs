//! The kernel's memory for TCP sockets: its holders, which of them give it back while it is low, and which newcomers
//! come in meanwhile.
//!
//! Requests in service hold it in two queues: what their reader has not acknowledged, and what waits to be read. A reader
//! that stops holds both until its idle time-out. With `h` the bytes of one holder, `t` those of all and `n` the
//! holders, a holder is *large* where
//!
//! ```text
//! h ≥ limit / 16   and   n ≥ 2   and   h·(n − 1) ≥ 2·(t − h)
//! ```
//! that is, where it has twice what the others have on average. So equal holders take nothing from each other. While
//! the memory has been low for [`SocketMemoryConfig::patience`], the largest gives back the connection that has stood
//! still for longest, until enough is free or it is large no longer (longest queue drop: Suter et al., INFOCOM 1998).
//!
//! A newcomer is admitted meanwhile if its address has less than an even share, `h·n < t`, or nothing, where accounts
//! count with the addresses that they come from: who a newcomer is shows once it has logged in. Linux cuts buffers
//! from the second number of `net.ipv4.tcp_mem` on; a socket that holds less than an even part of the third gets more
//! all the same (`__sk_mem_raise_allocated`), and an empty queue always takes a packet (`sk_forced_mem_schedule`).

use crate::units::{Span, Time};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// The part of the limit below which a holder is never large.
const PART: u64 = 16;

/// When connections give memory back, and what newcomers are taken to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketMemoryConfig {
    /// How long it is low before a connection in service is closed: until then idle ones are.
    pub patience: Span,
    /// A connection stands still when nothing was accepted for so long.
    pub still: Span,
    /// Bytes that an admitted newcomer counts until the next look.
    pub newcomer: u64,
    /// How long a newcomer counts among the holders if it holds nothing.
    pub remembered: Span,
}

impl Default for SocketMemoryConfig {
    /// 3 s for idle ones; 8 s, in which a path's outage of some seconds is over and the kernel has retransmitted four
    /// times (RFC 6298 §5.5, from 300 ms); a first window of 64 KiB.
    fn default() -> Self {
        Self {
            patience: Span::from_secs(3),
            still: Span::from_secs(8),
            newcomer: 64 << 10,
            remembered: Span::from_secs(10),
        }
    }
}

/// What waits in one queue of a socket, and since when nothing of it was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueProgress {
    accepted: u64,
    held: u64,
    since: Time,
}

impl QueueProgress {
    /// One look: bytes `accepted` since the start, and bytes that are `held` now. A shorter queue counts as progress,
    /// too: of Multipath TCP the kernel counts one path.
    pub fn on_look(&mut self, now: Time, accepted: u64, held: u64) {
        if accepted != self.accepted || held < self.held || self.held == 0 {
            self.since = now;
        }
        (self.accepted, self.held) = (accepted, held);
    }

    /// Bytes that waited at the last look.
    pub const fn held(&self) -> u64 {
        self.held
    }

    /// Since when nothing was accepted; `None` where nothing waits.
    pub fn still_since(&self) -> Option<Time> {
        (self.held > 0).then_some(self.since)
    }
}

/// One connection of which a request is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServedConnection<H> {
    /// Whose it is.
    pub holder: H,
    /// The address that it came from, if its newcomers are judged by that.
    pub address: Option<H>,
    /// Whether that is an account; accounts give last.
    pub account: bool,
    /// Bytes in its queues.
    pub held: u64,
    /// Since when nothing was accepted where most of them wait; `None` where nothing waits.
    pub still_since: Option<Time>,
}

/// How much is too much, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketShortage {
    /// The most that can be in use before buffers are cut.
    pub limit: u64,
    /// So much is to be given back until it is low no longer.
    pub excess: u64,
}

/// Who holds socket memory while it is low. A look takes a time proportional to the connections, times the logarithm of
/// the holders; the memory is proportional to the holders.
#[derive(Debug, Clone)]
pub struct SocketMemory<H> {
    config: SocketMemoryConfig,
    low_since: Option<Time>,
    held: BTreeMap<H, u64>,
    total: u64,
    by_address: BTreeMap<H, u64>,
    by_address_total: u64,
    newcomers: BTreeMap<H, Time>,
}

impl<H: Ord + Clone> SocketMemory<H> {
    /// It is not low.
    pub const fn new(config: SocketMemoryConfig) -> Self {
        Self {
            config,
            low_since: None,
            held: BTreeMap::new(),
            total: 0,
            by_address: BTreeMap::new(),
            by_address_total: 0,
            newcomers: BTreeMap::new(),
        }
    }

    /// It is low no longer.
    pub fn on_enough(&mut self) {
        *self = Self::new(self.config);
    }

    /// It is low, once a second: which of these connections to close, by their place.
    pub fn on_low(
        &mut self,
        now: Time,
        shortage: SocketShortage,
        connections: &[ServedConnection<H>],
    ) -> Vec<usize> {
        let since = *self.low_since.get_or_insert(now);
        self.newcomers.retain(|_, at| now.since(*at) < self.config.remembered);
        self.count(connections);
        let (mut freed, mut chosen) = (0, Vec::new());
        if now.since(since) >= self.config.patience {
            // nobody becomes large by what others give
            let large = |(_, held): &(&H, &u64)| self.is_large(**held, shortage.limit);
            let large = self
                .held
                .iter()
                .filter(large)
                .map(|(holder, _)| holder.clone())
                .collect::<BTreeSet<_>>();
            for accounts in [false, true] {
                let of = |one: &ServedConnection<H>| {
                    one.account == accounts && large.contains(&one.holder)
                };
                self.choose(now, shortage, connections, &of, &mut freed, &mut chosen);
            }
        }
        chosen
    }

    fn count(&mut self, connections: &[ServedConnection<H>]) {
        (self.held, self.total, self.by_address) = (BTreeMap::new(), 0, BTreeMap::new());
        for one in connections {
            *self.held.entry(one.holder.clone()).or_default() += one.held;
            self.total += one.held;
            if let Some(address) = &one.address {
                *self.by_address.entry(address.clone()).or_default() += one.held;
            }
        }
        self.by_address_total = self.by_address.values().sum();
        for address in self.newcomers.keys() {
            // nobody is large beside itself
            if !self.by_address.contains_key(address) {
                self.by_address.insert(address.clone(), 0);
                self.held.insert(address.clone(), 0);
            }
        }
    }

    fn choose(
        &mut self,
        now: Time,
        shortage: SocketShortage,
        connections: &[ServedConnection<H>],
        of: &impl Fn(&ServedConnection<H>) -> bool,
        freed: &mut u64,
        chosen: &mut Vec<usize>,
    ) {
        // by holder; the last has stood still for longest, of equals it holds the most
        let mut still = BTreeMap::<&H, Vec<(Reverse<Time>, u64, usize)>>::new();
        for (at, one) in connections.iter().enumerate() {
            if let Some(since) = one.still_since
                && now.since(since) >= self.config.still
                && of(one)
            {
                still.entry(&one.holder).or_default().push((Reverse(since), one.held, at));
            }
        }
        still.values_mut().for_each(|of| of.sort_unstable());
        let held = |held: &BTreeMap<H, u64>, holder: &H| held.get(holder).copied().unwrap_or(0);
        let mut order: BTreeSet<(u64, &H)> =
            still.keys().map(|holder| (held(&self.held, holder), *holder)).collect();
        while *freed < shortage.excess {
            let Some((bytes, holder)) = order.pop_last() else { return };
            // no smaller one is large where this is not
            if !self.is_large(bytes, shortage.limit) {
                return;
            }
            let Some((_, given, at)) = still.get_mut(holder).and_then(Vec::pop) else { continue };
            chosen.push(at);
            *freed += given;
            self.total -= given;
            let left = bytes - given;
            self.held.insert(holder.clone(), left);
            order.insert((left, holder));
            let address = connections[at].address.as_ref();
            if let Some(kept) = address.and_then(|address| self.by_address.get_mut(address)) {
                *kept -= given;
                self.by_address_total -= given;
            }
        }
    }

    fn is_large(&self, held: u64, limit: u64) -> bool {
        let others = self.held.len().saturating_sub(1);
        let rest = u128::from(self.total - held);
        others > 0 && held >= limit / PART && u128::from(held) * others as u128 >= 2 * rest
    }

    /// Whether a newcomer from this address is admitted although this memory is low.
    pub fn admits(&self, address: &H) -> bool {
        let own = self.by_address.get(address).copied().unwrap_or(0);
        let all = u128::from(own) * self.by_address.len() as u128;
        self.low_since.is_some() && (own == 0 || all < u128::from(self.by_address_total))
    }

    /// A newcomer was admitted although this memory is low.
    pub fn on_admitted(&mut self, now: Time, address: H) {
        *self.by_address.entry(address.clone()).or_default() += self.config.newcomer;
        self.by_address_total += self.config.newcomer;
        self.newcomers.insert(address, now);
    }
}

#[cfg(test)]
mod laws;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    pub(super) const MIB: u64 = 1 << 20;
    pub(super) const LIMIT: u64 = 64 * MIB;
    pub(super) const CONFIG: SocketMemoryConfig = SocketMemoryConfig {
        patience: Span::from_secs(3),
        still: Span::from_secs(8),
        newcomer: 64 << 10,
        remembered: Span::from_secs(10),
    };

    /// A connection of stranger `holder` that holds so many MiB, and stands still since this second.
    pub(super) fn served(holder: u8, mib: u64, still_since: u64) -> ServedConnection<u8> {
        let still_since = Some(at(still_since * 1_000));
        ServedConnection {
            holder,
            address: Some(holder),
            account: false,
            held: mib * MIB,
            still_since,
        }
    }

    /// What is closed at second 20 of a shortage that began at second 10.
    pub(super) fn closed(excess: u64, connections: &[ServedConnection<u8>]) -> Vec<usize> {
        let mut memory = SocketMemory::new(CONFIG);
        let shortage = SocketShortage { limit: LIMIT, excess: excess * MIB };
        assert!(memory.on_low(at(10_000), shortage, connections).is_empty(), "idle ones first");
        memory.on_low(at(20_000), shortage, connections)
    }

    #[test]
    fn the_largest_gives_what_stood_still_for_longest() {
        let (one, other) = ([served(1, 20, 9), served(1, 30, 5)], served(2, 4, 0));
        assert_eq!(closed(5, &[one[0], one[1], other]), [1]);
        assert_eq!(closed(31, &[one[0], one[1], other]), [1, 0]);
        assert_eq!(
            closed(60, &[one[0], one[1], other]),
            [1, 0],
            "4 MiB are never large beside nothing"
        );
        let moves = |mut one: ServedConnection<u8>| {
            one.still_since = Some(at(13_000));
            one
        };
        assert_eq!(closed(60, &[moves(one[0]), moves(one[1]), other]), [], "7 s are too few");
    }

    #[test]
    fn equal_ones_take_nothing_from_each_other() {
        assert_eq!(closed(60, &[served(1, 30, 0), served(2, 30, 0)]), []);
        assert_eq!(closed(60, &[served(1, 39, 0), served(2, 20, 0)]), []);
        assert_eq!(closed(60, &[served(1, 40, 0), served(2, 20, 0)]), [0]);
        assert_eq!(closed(60, &[served(1, 60, 0)]), [], "nobody else is there");
        assert_eq!(closed(60, &[served(1, 3, 0), served(2, 0, 0)]), [], "below a sixteenth");
    }

    #[test]
    fn accounts_give_last() {
        let account = ServedConnection { account: true, ..served(1, 40, 0) };
        let connections = [account, served(2, 12, 9), served(3, 0, 9), served(4, 0, 9)];
        assert_eq!(closed(5, &connections), [0], "the stranger is not large");
        let connections = [account, served(2, 60, 9), served(3, 0, 9), served(4, 0, 9)];
        assert_eq!(closed(5, &connections), [1]);
        assert_eq!(closed(61, &connections), [1, 0]);
    }

    #[test]
    fn newcomers_below_an_even_share_are_admitted() {
        let mut memory = SocketMemory::new(CONFIG);
        assert!(!memory.admits(&3), "it is not low");
        let shortage = SocketShortage { limit: LIMIT, excess: MIB };
        memory.on_low(at(0), shortage, &[served(1, 40, 0), served(2, 20, 0)]);
        assert!(memory.admits(&3) && memory.admits(&2) && !memory.admits(&1));
        for n in 1..2_000 {
            if !memory.admits(&3) {
                assert_eq!(n, 481, "of 60 MiB + 64 KiB · n a third is 64 KiB · n");
                return;
            }
            memory.on_admitted(at(500), 3);
        }
        panic!("a flood of one address is admitted");
    }

    #[test]
    fn an_account_brings_no_newcomers_while_it_holds_much() {
        let mut memory = SocketMemory::new(CONFIG);
        let shortage = SocketShortage { limit: LIMIT, excess: MIB };
        let account = ServedConnection { holder: 100, account: true, ..served(1, 40, 0) };
        // of a flow that came out of a tunnel
        let far =
            ServedConnection { holder: 101, account: true, address: None, ..served(9, 60, 0) };
        memory.on_low(at(0), shortage, &[account, served(2, 4, 0), far]);
        assert!(!memory.admits(&1) && memory.admits(&2) && memory.admits(&9));
        // its newcomers are not others, beside whom it would be large
        memory.on_admitted(at(100), 1);
        let still = ServedConnection { still_since: Some(at(0)), ..account };
        assert!(memory.on_low(at(20_000), shortage, &[still]).is_empty());
    }

    #[test]
    fn a_queue_stands_still_from_the_last_byte_that_was_accepted() {
        let mut queue = QueueProgress::default();
        let mut since = |second: u64, accepted, held| {
            queue.on_look(at(second * 1_000), accepted, held);
            queue.still_since()
        };
        assert_eq!(since(1, 0, 0), None);
        assert_eq!(since(10, 0, 500), Some(at(10_000)), "it was empty before");
        assert_eq!(since(11, 0, 900), Some(at(10_000)));
        assert_eq!(since(12, 1, 900), Some(at(12_000)));
        assert_eq!(since(13, 1, 900), Some(at(12_000)));
        assert_eq!(since(14, 1, 899), Some(at(14_000)));
        assert_eq!(since(15, 2, 0), None);
    }
}
