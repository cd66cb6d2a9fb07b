//! Counters of datagrams: of each association or flow for the log, and of all since the start for the status.

use crate::observe::status::UdpStatus;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::associations::{
    AssociationId, AssociationShare, Associations, NoAssociation,
};
use ekiden_model::resources::overload::Source;
use ekiden_model::units::{Span, Time};
use std::future::pending;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// An association that moves datagrams is entered as moving once in this time, because each entry takes a lock.
const MOVES: Span = Span::from_secs(1);

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
    /// A client without account by its network, or a joined peer.
    Source(Source),
}

impl Holder {
    /// The holder of an association that a client asks for.
    pub(crate) fn of(account: Option<i64>, client: IpAddr) -> Self {
        account.map_or_else(|| Self::Source(client.into()), Self::Account)
    }

    const fn of_free(self) -> u64 {
        match self {
            Self::Source(source) => source.of_free(),
            Self::Account(_) => 1,
        }
    }

    /// Whether what is kept for accounts is for it.
    const fn is_known(self) -> bool {
        match self {
            Self::Source(source) => source.is_invited(),
            Self::Account(_) => true,
        }
    }
}

/// How many associations there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AssociationLimits {
    /// Of all.
    pub(crate) most: u64,
    /// Of these, kept for accounts and peers.
    pub(crate) kept: u64,
}

/// Totals of all associations, and of all flows from tunnels, since the start.
#[derive(Debug, Default)]
pub(crate) struct UdpCounts {
    /// Associations now, and how each hears that it gives way.
    held: Mutex<Associations<Holder, Arc<Notify>>>,
    begun: AtomicU64,
    gave_way: AtomicU64,
    up: AtomicU64,
    down: AtomicU64,
    dropped: [AtomicU64; 5],
}

/// The counters of one association or flow.
#[derive(Debug)]
pub(crate) struct UdpTally {
    all: Arc<UdpCounts>,
    /// Where it counts against the limit on associations.
    place: Option<Place>,
    up: u64,
    down: u64,
    dropped: u64,
    first_loss: Option<String>,
}

/// An association's place among all.
#[derive(Debug)]
struct Place {
    id: AssociationId,
    gives_way: Arc<Notify>,
    /// When it was last entered as moving.
    moved: Time,
}

impl UdpCounts {
    /// Begins an association within `limits`, as the model decides; one of another holder may end for it. `proven`: the
    /// holder's address cannot be forged.
    pub(crate) fn begin(
        self: &Arc<Self>,
        limits: AssociationLimits,
        holder: Holder,
        proven: bool,
    ) -> Result<UdpTally, NoAssociation> {
        let mut tally = self.flow();
        tally.enter(limits, holder, proven)?;
        Ok(tally)
    }

    /// Counters that do not count as an association yet.
    pub(crate) fn flow(self: &Arc<Self>) -> UdpTally {
        let all = Arc::clone(self);
        UdpTally { all, place: None, up: 0, down: 0, dropped: 0, first_loss: None }
    }

    /// Counts a datagram that was dropped where its association does not see it.
    pub(crate) fn count_dropped(&self, why: DropReason) {
        self.dropped[why as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn status(&self, most: u64) -> UdpStatus {
        let dropped = |loss: DropReason| self.dropped[loss as usize].load(Relaxed);
        UdpStatus {
            associations: locked(&self.held).held(),
            limit: most,
            begun: self.begun.load(Relaxed),
            gave_way: self.gave_way.load(Relaxed),
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
    /// Counts as an association from now on, within `limits`.
    pub(crate) fn enter(
        &mut self,
        AssociationLimits { most, kept }: AssociationLimits,
        holder: Holder,
        proven: bool,
    ) -> Result<(), NoAssociation> {
        let (now, gives_way) = (clock::now(), Arc::new(Notify::new()));
        let (of_free, known) = (holder.of_free(), proven && holder.is_known());
        let share = AssociationShare { most, of_free, proven, known, kept };
        let told = Arc::clone(&gives_way);
        let end = |other: Arc<Notify>| {
            self.all.gave_way.fetch_add(1, Relaxed);
            other.notify_one();
        };
        let id = locked(&self.all.held).begin(now, share, holder, told, end)?;
        self.all.begun.fetch_add(1, Relaxed);
        self.place = Some(Place { id, gives_way, moved: now });
        Ok(())
    }

    /// Returns once its association is to end for another one.
    pub(crate) async fn gives_way(&self) {
        match &self.place {
            Some(place) => place.gives_way.notified().await,
            None => pending().await,
        }
    }

    pub(crate) fn up(&mut self) {
        self.up += 1;
        self.all.up.fetch_add(1, Relaxed);
        self.on_moved();
    }

    pub(crate) fn down(&mut self) {
        self.down += 1;
        self.all.down.fetch_add(1, Relaxed);
        self.on_moved();
    }

    fn on_moved(&mut self) {
        let now = clock::now();
        if let Some(place) = self.place.as_mut().filter(|place| now >= place.moved + MOVES) {
            place.moved = now;
            locked(&self.all.held).on_moved(now, place.id);
        }
    }

    pub(crate) fn count_dropped(&mut self, loss: DropReason) {
        self.dropped += 1;
        self.all.count_dropped(loss);
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
        if let Some(place) = &self.place {
            // it may have ended for another one before
            let _ = locked(&self.all.held).on_end(place.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn of(most: u64) -> AssociationLimits {
        AssociationLimits { most, kept: 0 }
    }

    #[test]
    fn counts_associations_up_to_the_limit() {
        let all = Arc::new(UdpCounts::default());
        let [one, two, three] = [1, 2, 3].map(Holder::Account);
        let first = all.begin(of(2), one, true).unwrap();
        let second = all.begin(of(2), two, true).unwrap();
        assert_eq!(all.begin(of(2), three, true).unwrap_err(), NoAssociation::All);
        drop(first);
        assert!(all.begin(of(2), three, true).is_ok());
        drop(second);
        // what has not entered does not count as an association
        drop(all.flow());
        let status = all.status(2);
        assert_eq!((status.associations, status.begun, status.limit), (0, 3, 2));
    }

    #[test]
    fn one_holder_has_half_of_them() {
        let all = Arc::new(UdpCounts::default());
        let take = |holder| {
            std::iter::from_fn(|| all.begin(of(256), holder, true).ok()).collect::<Vec<_>>()
        };
        let at = |text: &str| Holder::of(None, text.parse().unwrap());
        let first = take(at("2001:db8::1"));
        assert_eq!(first.len(), 128);
        let refused = all.begin(of(256), at("2001:db8::2"), true).unwrap_err();
        assert_eq!(refused, NoAssociation::Share(128));
        let second = take(at("2001:db8:0:1::1"));
        assert_eq!((second.len(), all.status(256).gave_way), (64, 0));
        // of three, the one that has more than an even share gives
        let third = take(Holder::Account(7));
        assert_eq!((third.len(), all.status(256).gave_way), (75, 43));
        assert_eq!(all.status(256).associations, 128 - 43 + 64 + 75);
        drop((first, second, third));
        assert_eq!(all.status(256).associations, 0);
    }

    #[test]
    fn networks_of_clients_without_account_leave_what_is_kept() {
        let all = Arc::new(UdpCounts::default());
        let limits = AssociationLimits { most: 8, kept: 2 };
        // a line of IPv6 may have as many
        let networks = (0..100).map(|nth| format!("2001:db8:{nth}::1").parse().unwrap());
        let strangers: Vec<_> = networks
            .filter_map(|client| all.begin(limits, Holder::of(None, client), true).ok())
            .collect();
        assert_eq!(strangers.len(), 6);
        let account = all.begin(limits, Holder::Account(1), true).unwrap();
        let peer = all.begin(limits, Holder::Source(Source::Peer(1)), true).unwrap();
        // an address that may be forged shows nobody's account
        assert!(all.begin(limits, Holder::Account(2), false).is_err());
        assert_eq!((all.status(8).associations, all.status(8).gave_way), (8, 0));
        drop((strangers, account, peer));
    }

    #[tokio::test]
    async fn an_association_that_ends_for_another_is_told_so() {
        let all = Arc::new(UdpCounts::default());
        let [one, two] = [Holder::Source(Source::Peer(1)), Holder::Account(2)];
        let held: Vec<_> = std::iter::from_fn(|| all.begin(of(9), one, true).ok()).collect();
        assert_eq!(held.len(), 8);
        let news: Vec<_> = (0..2).map(|_| all.begin(of(9), two, true).unwrap()).collect();
        held[0].gives_way().await;
        let is_told = |tally: &UdpTally| {
            let told = std::pin::pin!(tally.gives_way());
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            Future::poll(told, &mut cx).is_ready()
        };
        assert!(!held[1..].iter().chain(&news).any(is_told));
        // its place went over, and is not given back twice
        drop(held);
        assert_eq!((all.status(9).associations, all.status(9).gave_way), (2, 1));
    }

    #[test]
    fn summarizes_in_words() {
        let all = Arc::new(UdpCounts::default());
        let mut one = all.begin(of(1), Holder::Account(1), true).unwrap();
        one.up();
        assert_eq!(one.in_words("closed"), "closed; 1 datagrams up, 0 down");
        one.on_dropped(DropReason::Refused, || "a rule refuses x:1".to_owned());
        let text = one.in_words("closed");
        assert!(text.ends_with(", 1 dropped, the first because: a rule refuses x:1"), "{text}");
    }
}
