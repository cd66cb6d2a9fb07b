//! How long a peer has had no tunnel, and how long a request waits for one.

use crate::units::{Span, Time};

/// A request may come again after this long where nothing says when the next attempt is.
const AGAIN: Span = Span::from_secs(5);
/// What an attempt takes, at least.
const ATTEMPT: Span = Span::from_secs(1);

/// The time without a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Outage {
    /// When the last tunnel was lost, or when the peer became known.
    since: Time,
    /// When the next attempt begins, while this relay pauses between two.
    next: Option<Time>,
    logged: bool,
}

impl Outage {
    /// One that begins now: no tunnel was tried yet, or the last one was lost.
    pub const fn new(now: Time) -> Self {
        Self { since: now, next: None, logged: false }
    }

    /// A tunnel was lost.
    pub const fn on_lost(&mut self, now: Time) {
        *self = Self::new(now);
    }

    /// An attempt begins, or the next one begins at a time.
    pub const fn on_attempt(&mut self, next: Option<Time>) {
        self.next = next;
    }

    /// How long it has lasted.
    pub const fn lasted(&self, now: Time) -> Span {
        now.since(self.since)
    }

    /// How long a request waits for a tunnel: `patience` from the beginning of the outage on, and then not at all.
    pub fn wait(&self, now: Time, patience: Span) -> Span {
        Span::from_nanos(patience.as_nanos().saturating_sub(self.lasted(now).as_nanos()))
    }

    /// Time until the next attempt, if it is known.
    pub fn retry_in(&self, now: Time) -> Option<Span> {
        self.next.map(|next| next.since(now))
    }

    /// When a request that failed may come again.
    pub fn retry_after(&self, now: Time) -> Span {
        self.retry_in(now).map_or(AGAIN, |wait| wait + ATTEMPT)
    }

    /// Whether this is the first request that fails without waiting.
    pub const fn is_to_be_logged(&mut self) -> bool {
        !core::mem::replace(&mut self.logged, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    #[test]
    fn requests_wait_at_the_beginning_of_an_outage_alone() {
        let patience = Span::from_secs(10);
        let mut outage = Outage::new(at(100));
        assert_eq!(outage.wait(at(100), patience), patience);
        assert_eq!(outage.wait(at(104), patience), Span::from_secs(6));
        assert_eq!(outage.wait(at(110), patience), Span::ZERO);
        assert_eq!(outage.wait(at(900), patience), Span::ZERO);
        outage.on_lost(at(901));
        assert_eq!(outage.wait(at(902), patience), Span::from_secs(9));
    }

    #[test]
    fn a_failed_request_comes_again_after_the_next_attempt() {
        let mut outage = Outage::new(at(0));
        assert_eq!((outage.retry_in(at(1)), outage.retry_after(at(1))), (None, AGAIN));
        outage.on_attempt(Some(at(20)));
        assert_eq!(outage.retry_in(at(8)), Some(Span::from_secs(12)));
        assert_eq!(outage.retry_after(at(8)), Span::from_secs(13));
        outage.on_attempt(None);
        assert_eq!(outage.retry_after(at(21)), AGAIN);
        assert!(outage.is_to_be_logged() && !outage.is_to_be_logged());
    }
}
