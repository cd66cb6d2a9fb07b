//! Counters of datagrams: of each association or flow for the log, and of all since the start for the status.

use crate::observe::status::UdpStatus;
use ekiden_linux::host::sync::locked;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DropReason {
    /// No header, a fragment, or no clear destination.
    Malformed,
    /// Not from the association's client.
    Foreign,
    /// The client may not go there, or no route there carries datagrams.
    Refused,
    /// No such name, no route, or no room at the moment.
    Undelivered,
    /// Over the limits of the account or the relay.
    Limited,
}

/// Whose an association is, for its share of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    /// An account, by its number.
    Account(i64),
    /// A client without account; of IPv6 by its /64 (RFC 6177).
    Address(IpAddr),
}

impl Holder {
    /// The holder of an association that a client asks for.
    pub(crate) fn of(account: Option<i64>, client: IpAddr) -> Self {
        match (account, client.to_canonical()) {
            (Some(account), _) => Self::Account(account),
            (None, IpAddr::V6(v6)) if !v6.is_loopback() => {
                let [a, b, c, d, ..] = v6.segments();
                Self::Address(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into())
            }
            (None, client) => Self::Address(client),
        }
    }
}

/// Why there is no association for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// All are taken.
    All,
    /// The client has so many, its share.
    Share(u64),
}

/// Totals of all associations, and of all flows from tunnels, since the start.
#[derive(Debug, Default)]
pub(crate) struct UdpCounts {
    /// Associations now.
    held: Mutex<BTreeMap<Holder, u64>>,
    begun: AtomicU64,
    up: AtomicU64,
    down: AtomicU64,
    dropped: [AtomicU64; 5],
}

/// The counters of one association or flow.
#[derive(Debug)]
pub(crate) struct UdpTally {
    all: Arc<UdpCounts>,
    /// Where it counts against the limit on associations.
    holder: Option<Holder>,
    up: u64,
    down: u64,
    dropped: u64,
    first_loss: Option<String>,
}

impl UdpCounts {
    /// Begins an association, one of `most`. A holder takes another only while more are free than it has (dynamic
    /// thresholds; Choudhury and Hahne, IEEE/ACM ToN 6(2), 1998). So one holder has half of them at most, and each
    /// that comes later half of what it finds free.
    pub(crate) fn begin(self: &Arc<Self>, most: u64, holder: Holder) -> Result<UdpTally, NoRoom> {
        let mut held = locked(&self.held);
        let free = most.saturating_sub(held.values().sum());
        let own = held.get(&holder).copied().unwrap_or_default();
        if free == 0 {
            return Err(NoRoom::All);
        }
        if own >= free {
            return Err(NoRoom::Share(own));
        }
        held.insert(holder, own + 1);
        drop(held);
        self.begun.fetch_add(1, Relaxed);
        Ok(self.tally(Some(holder)))
    }

    pub(crate) fn flow(self: &Arc<Self>) -> UdpTally {
        self.tally(None)
    }

    fn tally(self: &Arc<Self>, holder: Option<Holder>) -> UdpTally {
        let all = Arc::clone(self);
        UdpTally { all, holder, up: 0, down: 0, dropped: 0, first_loss: None }
    }

    pub(crate) fn status(&self, most: u64) -> UdpStatus {
        let dropped = |loss: DropReason| self.dropped[loss as usize].load(Relaxed);
        UdpStatus {
            associations: locked(&self.held).values().sum(),
            limit: most,
            begun: self.begun.load(Relaxed),
            datagrams_up: self.up.load(Relaxed),
            datagrams_down: self.down.load(Relaxed),
            malformed: dropped(DropReason::Malformed),
            foreign: dropped(DropReason::Foreign),
            refused: dropped(DropReason::Refused),
            undelivered: dropped(DropReason::Undelivered),
            limited: dropped(DropReason::Limited),
        }
    }
}

impl UdpTally {
    pub(crate) fn up(&mut self) {
        self.up += 1;
        self.all.up.fetch_add(1, Relaxed);
    }

    pub(crate) fn down(&mut self) {
        self.down += 1;
        self.all.down.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_dropped(&mut self, loss: DropReason) {
        self.dropped += 1;
        self.all.dropped[loss as usize].fetch_add(1, Relaxed);
    }

    /// Counts a dropped datagram; the log says why the first one was.
    pub(crate) fn on_dropped(&mut self, loss: DropReason, why: impl FnOnce() -> String) {
        self.count_dropped(loss);
        self.first_loss.get_or_insert_with(why);
    }

    /// For the log: the reason of the end, and the counters.
    pub(crate) fn in_words(&self, why: &str) -> String {
        let Self { up, down, dropped, .. } = self;
        let dropped = match &self.first_loss {
            None => String::new(),
            Some(first) => format!(", {dropped} dropped, the first because: {first}"),
        };
        format!("{why}; {up} datagrams up, {down} down{dropped}")
    }
}

impl Drop for UdpTally {
    fn drop(&mut self) {
        let Some(holder) = self.holder else { return };
        let mut held = locked(&self.all.held);
        match held.get_mut(&holder) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(held.remove(&holder)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_associations_up_to_the_limit() {
        let all = Arc::new(UdpCounts::default());
        let [one, two, three] = [1, 2, 3].map(Holder::Account);
        let first = all.begin(2, one).unwrap();
        let second = all.begin(2, two).unwrap();
        assert_eq!(all.begin(2, three).unwrap_err(), NoRoom::All);
        drop(first);
        assert!(all.begin(2, three).is_ok());
        drop(second);
        // flows do not count as associations
        drop(all.flow());
        let status = all.status(2);
        assert_eq!((status.associations, status.begun, status.limit), (0, 3, 2));
    }

    #[test]
    fn one_holder_has_half_of_them() {
        let all = Arc::new(UdpCounts::default());
        let take = |holder| std::iter::from_fn(|| all.begin(256, holder).ok()).collect::<Vec<_>>();
        let at = |text: &str| Holder::of(None, text.parse().unwrap());
        let first = take(at("2001:db8::1"));
        assert_eq!(first.len(), 128);
        assert_eq!(all.begin(256, at("2001:db8::2")).unwrap_err(), NoRoom::Share(128));
        let others = [at("2001:db8:0:1::1"), at("::ffff:192.0.2.1"), Holder::Account(7)].map(take);
        assert_eq!(others.each_ref().map(Vec::len), [64, 32, 16]);
        drop(first);
        assert_eq!(all.status(256).associations, 112);
        drop(others);
        assert!(locked(&all.held).is_empty());
    }

    proptest::proptest! {
        #[test]
        fn the_first_of_a_holder_finds_room(
            most in 1_u64..40,
            steps in proptest::collection::vec((0_i64..6, proptest::bool::ANY), 1..200),
        ) {
            let all = Arc::new(UdpCounts::default());
            let mut held: Vec<(i64, UdpTally)> = Vec::new();
            for (who, begins) in steps {
                let own = held.iter().filter(|(whose, _)| *whose == who).count() as u64;
                let free = most - held.len() as u64;
                if !begins {
                    let last = held.iter().position(|(whose, _)| *whose == who);
                    last.map(|last| held.swap_remove(last));
                    continue;
                }
                let began = all.begin(most, Holder::Account(who));
                proptest::prop_assert_eq!(began.is_ok(), own < free);
                held.extend(began.ok().map(|tally| (who, tally)));
                proptest::prop_assert_eq!(all.status(most).associations, held.len() as u64);
            }
        }
    }

    #[test]
    fn summarizes_in_words() {
        let mut one = Arc::new(UdpCounts::default()).begin(1, Holder::Account(1)).unwrap();
        one.up();
        assert_eq!(one.in_words("closed"), "closed; 1 datagrams up, 0 down");
        one.on_dropped(DropReason::Refused, || "a rule refuses x:1".to_owned());
        let text = one.in_words("closed");
        assert!(text.ends_with(", 1 dropped, the first because: a rule refuses x:1"), "{text}");
    }
}
