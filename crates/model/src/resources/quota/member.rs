//! State of accounts and connections: buckets and positions.

use super::bucket::Bucket;
use super::limits::Limits;
use super::spending::{Loan, Spending};
use crate::slab::{Handle, List};
use crate::units::{Rate, Time};
use alloc::boxed::Box;

/// Seconds of connects at once (algorithms/split-connections C.9: 20 a second, 100 at once).
const CONNECTS_AT_ONCE: u64 = 5;

/// Links of a flow beside those of its two rings: all flows of its account.
pub(super) const ALL: usize = 2;

#[derive(Debug, Clone)]
pub(super) struct AccountState {
    pub(super) limits: Limits,
    /// It has left, and goes when its last connection does.
    pub(super) leaving: bool,
    pub(super) connections: u32,
    pub(super) flows: List,
    pub(super) connects: Option<Bucket>,
    pub(super) spending: Option<Spending>,
    pub(super) lanes: [Lane; 2],
}

#[derive(Debug, Clone)]
pub(super) struct Lane {
    pub(super) bucket: Bucket,
    /// Flows that wait for the account or for the relay, in turn.
    pub(super) ring: List,
    pub(super) place: LanePosition,
    /// Its virtual start time: bytes received for its weight.
    pub(super) start: u128,
    /// Bytes that datagrams may still use while others wait.
    pub(super) stock: u64,
    pub(super) used: u64,
    pub(super) waiting: u32,
}

/// Where an account stands in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LanePosition {
    Out,
    /// Among those that wait for the relay.
    Turn,
    /// It waits for its own rate, until then; or for its quota's loans ([`Time::NEVER`]).
    Later(Time),
}

#[derive(Debug, Clone)]
pub(super) struct Conn {
    pub(super) account: Handle,
    pub(super) sides: [Side; 2],
}

#[derive(Debug, Clone)]
pub(super) struct Side {
    /// Where each connection has a rate.
    pub(super) bucket: Option<Box<Bucket>>,
    pub(super) state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Idle,
    /// Waits for its own rate, until then.
    Parked(u64, Time),
    Ring(u64),
    /// Was called, and has not asked again; until then its turn is kept.
    Called(u64, Loan, Time),
    Moving(u64, Loan),
}

impl AccountState {
    pub(super) fn is_over(&self) -> bool {
        self.leaving || self.spending.as_ref().is_some_and(Spending::is_cut)
    }
}

/// A bucket in which a connect is a byte.
pub(super) fn connects(most: u32, now: Time) -> Bucket {
    let (rate, burst) = connect_rate(most);
    Bucket::with_burst(rate, burst, now)
}

pub(super) fn connect_rate(most: u32) -> (Option<Rate>, u64) {
    let most = u64::from(most);
    (Some(Rate::from_bits_per_second(8 * most)), CONNECTS_AT_ONCE * most)
}

impl Lane {
    /// When it may be served that wants so much, of a quota of which so much is left; `None`: now.
    pub(super) fn due(&mut self, now: Time, want: u64, left: u64) -> Option<Time> {
        if left == 0 {
            return Some(Time::NEVER);
        }
        let least = self.bucket.least(want);
        (self.bucket.available(now) < least).then(|| self.bucket.when(least))
    }
}

impl Side {
    /// The same of a connection's own rate.
    pub(super) fn due(&mut self, now: Time, want: u64) -> Option<Time> {
        let bucket = self.bucket.as_mut()?;
        let least = bucket.least(want);
        (bucket.available(now) < least).then(|| bucket.when(least))
    }

    pub(super) fn available(&mut self, now: Time) -> u64 {
        self.bucket.as_mut().map_or(u64::MAX, |bucket| bucket.available(now))
    }

    pub(super) fn lend(&mut self, bytes: u64) {
        if let Some(bucket) = &mut self.bucket {
            bucket.lend(bytes);
        }
    }

    pub(super) fn charge(&mut self, now: Time, bytes: u64) {
        if let Some(bucket) = &mut self.bucket {
            bucket.charge(now, bytes);
        }
    }

    pub(super) fn settle(&mut self, now: Time, lent: u64, used: u64) {
        if let Some(bucket) = &mut self.bucket {
            bucket.settle(now, lent, used);
        }
    }

    /// Another rate from now on; a first one begins with what is lent, and nothing saved up.
    pub(super) fn set_rate(&mut self, now: Time, rate: Option<Rate>) {
        match (&mut self.bucket, rate) {
            (Some(bucket), Some(_)) => bucket.set_rate(now, rate),
            (bucket, None) => *bucket = None,
            (bucket, Some(_)) => {
                let mut empty = Bucket::new(None, now);
                if let State::Called(lent, ..) | State::Moving(lent, _) = self.state {
                    empty.lend(lent);
                }
                empty.set_rate(now, rate);
                *bucket = Some(Box::new(empty));
            }
        }
    }
}
