//! What is counted of datagrams: by association or flow, for the log, and of all since the start, for the status.

use crate::status::UdpStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why a datagram was not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// It has no header, is a fragment, or names no clear destination.
    Malformed,
    /// It came to an association's port, and not from its client.
    Foreign,
    /// The client may not go there, or no way there carries datagrams.
    Refused,
    /// No such name, no route, no room at the moment.
    Undelivered,
    /// Over the household's limits, or the relay's.
    Limited,
}

/// Sums of all associations, and of all flows that came out of tunnels, since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    now: AtomicU64,
    begun: AtomicU64,
    up: AtomicU64,
    down: AtomicU64,
    lost: [AtomicU64; 5],
}

/// What one association or flow came to.
#[derive(Debug)]
pub(super) struct Counted {
    all: Arc<Counts>,
    /// One of those that there may be so many of, as long as this is there.
    association: bool,
    up: u64,
    down: u64,
    lost: u64,
}

impl Counts {
    /// Another association, unless there are so many already.
    pub(super) fn begin(self: &Arc<Self>, most: u64) -> Option<Counted> {
        let one_more = |now| (now < most).then_some(now + 1);
        self.now.fetch_update(Relaxed, Relaxed, one_more).ok()?;
        self.begun.fetch_add(1, Relaxed);
        Some(self.counted(true))
    }

    /// A flow that came out of a tunnel.
    pub(super) fn flow(self: &Arc<Self>) -> Counted {
        self.counted(false)
    }

    fn counted(self: &Arc<Self>, association: bool) -> Counted {
        Counted { all: Arc::clone(self), association, up: 0, down: 0, lost: 0 }
    }

    /// One look; `most` is how many there may be.
    pub(crate) fn status(&self, most: u64) -> UdpStatus {
        let lost = |loss: Loss| self.lost[loss as usize].load(Relaxed);
        UdpStatus {
            associations: self.now.load(Relaxed),
            limit: most,
            begun: self.begun.load(Relaxed),
            datagrams_up: self.up.load(Relaxed),
            datagrams_down: self.down.load(Relaxed),
            malformed: lost(Loss::Malformed),
            foreign: lost(Loss::Foreign),
            refused: lost(Loss::Refused),
            undelivered: lost(Loss::Undelivered),
            limited: lost(Loss::Limited),
        }
    }
}

impl Counted {
    /// A datagram went out.
    pub(super) fn up(&mut self) {
        self.up += 1;
        self.all.up.fetch_add(1, Relaxed);
    }

    /// A datagram went to the client.
    pub(super) fn down(&mut self) {
        self.down += 1;
        self.all.down.fetch_add(1, Relaxed);
    }

    pub(super) fn lost(&mut self, loss: Loss) {
        self.lost += 1;
        self.all.lost[loss as usize].fetch_add(1, Relaxed);
    }

    /// For the log: why it ended and what it came to.
    pub(super) fn in_words(&self, why: &str, first_loss: Option<&str>) -> String {
        let Self { up, down, lost, .. } = self;
        let lost = match first_loss {
            None => String::new(),
            Some(first) => format!(", {lost} not passed on, the first because: {first}"),
        };
        format!("{why}; {up} datagrams up, {down} down{lost}")
    }
}

impl Drop for Counted {
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
    fn there_are_no_more_than_there_may_be() {
        let all = Arc::new(Counts::default());
        let first = all.begin(2).unwrap();
        let second = all.begin(2).unwrap();
        assert!(all.begin(2).is_none());
        drop(first);
        assert!(all.begin(2).is_some());
        drop(second);
        // flows are none of them
        drop(all.flow());
        let status = all.status(2);
        assert_eq!((status.associations, status.begun, status.limit), (0, 3, 2));
    }

    #[test]
    fn what_it_came_to_in_words() {
        let mut one = Arc::new(Counts::default()).begin(1).unwrap();
        one.up();
        assert_eq!(one.in_words("closed", None), "closed; 1 datagrams up, 0 down");
        one.lost(Loss::Refused);
        let said = one.in_words("closed", Some("a rule refuses x:1"));
        assert!(
            said.ends_with(", 1 not passed on, the first because: a rule refuses x:1"),
            "{said}"
        );
    }
}
