//! Counters of datagrams: of each association or flow for the log, and of all since the start for the status.

use crate::observe::status::UdpStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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

/// Totals of all associations, and of all flows from tunnels, since the start.
#[derive(Debug, Default)]
pub(crate) struct UdpCounts {
    now: AtomicU64,
    begun: AtomicU64,
    up: AtomicU64,
    down: AtomicU64,
    dropped: [AtomicU64; 5],
}

/// The counters of one association or flow.
#[derive(Debug)]
pub(crate) struct UdpTally {
    all: Arc<UdpCounts>,
    /// Whether it counts against the limit on associations.
    association: bool,
    up: u64,
    down: u64,
    dropped: u64,
    first_loss: Option<String>,
}

impl UdpCounts {
    pub(crate) fn begin(self: &Arc<Self>, most: u64) -> Option<UdpTally> {
        let one_more = |now| (now < most).then_some(now + 1);
        self.now.fetch_update(Relaxed, Relaxed, one_more).ok()?;
        self.begun.fetch_add(1, Relaxed);
        Some(self.tally(true))
    }

    pub(crate) fn flow(self: &Arc<Self>) -> UdpTally {
        self.tally(false)
    }

    fn tally(self: &Arc<Self>, association: bool) -> UdpTally {
        let all = Arc::clone(self);
        UdpTally { all, association, up: 0, down: 0, dropped: 0, first_loss: None }
    }

    pub(crate) fn status(&self, most: u64) -> UdpStatus {
        let dropped = |loss: DropReason| self.dropped[loss as usize].load(Relaxed);
        UdpStatus {
            associations: self.now.load(Relaxed),
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
        if self.association {
            self.all.now.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_associations_up_to_the_limit() {
        let all = Arc::new(UdpCounts::default());
        let first = all.begin(2).unwrap();
        let second = all.begin(2).unwrap();
        assert!(all.begin(2).is_none());
        drop(first);
        assert!(all.begin(2).is_some());
        drop(second);
        // flows do not count as associations
        drop(all.flow());
        let status = all.status(2);
        assert_eq!((status.associations, status.begun, status.limit), (0, 3, 2));
    }

    #[test]
    fn summarizes_in_words() {
        let mut one = Arc::new(UdpCounts::default()).begin(1).unwrap();
        one.up();
        assert_eq!(one.in_words("closed"), "closed; 1 datagrams up, 0 down");
        one.on_dropped(DropReason::Refused, || "a rule refuses x:1".to_owned());
        let text = one.in_words("closed");
        assert!(text.ends_with(", 1 dropped, the first because: a rule refuses x:1"), "{text}");
    }
}
