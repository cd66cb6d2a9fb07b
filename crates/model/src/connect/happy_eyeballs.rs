//! Which address to try when: RFC 8305, "Happy Eyeballs Version 2".
//!
//! ```text
//! on_addresses(family, …)   once per family asked, also when its answer is empty or failed
//! next(now, permitted)      Some(attempt): start it; ask again until None. `permitted`: asked before
//!                           an attempt beside a running one
//! deadline()                ask next() again then; no on_deadline, because several may be due
//! on_failed(now, number)    an attempt failed; the next one need not wait
//! is_exhausted()            nothing is left to try and nothing to wait for
//! ```
//! The driver stops at the first attempt that succeeds and drops the others. What was permitted is
//! given back as attempts end: all but one of [`HappyEyeballs::running`] take part of it.

use crate::units::{Span, Time};
use alloc::collections::VecDeque;
use core::net::IpAddr;

/// The delays, and which family goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Between two attempts (RFC 8305 §5: 250 ms recommended, 100 ms … 2 s).
    pub attempt_delay: Span,
    /// The time that all attempts have.
    pub within: Span,
    /// How long the second family's answer waits for the first's (RFC 8305 §3: 50 ms).
    pub resolution_delay: Span,
    /// Whether IPv6 goes first (RFC 8305 §4).
    pub ipv6_first: bool,
}

/// Addresses that are tried in all, as families alternate. One that refuses is followed by the next at once, so a name
/// with many of a stranger's would make one request look for open ports at all of them. Of silent ones, no more have
/// their time.
pub const MOST_ATTEMPTS: usize = 8;

/// Of these, one family's while the other has some, or may have.
const OF_EACH: usize = MOST_ATTEMPTS / 2;

/// Attempts that run at once: each is a socket, and a name whose addresses are all silent would hold one for each.
pub const MOST_AT_ONCE: usize = 4;

impl Config {
    /// The age at which the oldest of so many attempts gives way to the next address: half of the time that all have, for
    /// a path whose queue takes seconds. Where too few may run, a quarter, so that the other family has its part.
    fn gives_way_after(&self, running: usize) -> Span {
        let parts = if running >= MOST_AT_ONCE { 2 } else { 4 };
        self.attempt_delay.max(Span::from_nanos(self.within.as_nanos() / parts))
    }
}

/// Whether the preferred family's answers come at all. Where no name server answers AAAA, waiting for it would cost
/// each new name [`Config::resolution_delay`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FamilyAnswers {
    /// Names in a row whose answer did not come while it was waited for, or was not waited for.
    missing: u32,
}

/// Names without an answer after which nothing waits.
const MISSING: u32 = 3;
/// One of so many waits all the same, so that answers are noticed when they come again.
const AGAIN: u32 = 16;

impl FamilyAnswers {
    /// The resolution delay for the next name.
    pub const fn delay(&self, configured: Span) -> Span {
        match self.missing < MISSING || self.missing.is_multiple_of(AGAIN) {
            true => configured,
            false => Span::ZERO,
        }
    }

    /// The other family's first attempt began without an answer.
    pub const fn on_missing(&mut self) {
        self.missing = self.missing.wrapping_add(1);
    }

    /// An answer came, be it that there is no address.
    pub const fn on_answer(&mut self) {
        self.missing = 0;
    }
}

/// One attempt to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// Counted from 0 within the race.
    pub number: u32,
    /// Where to.
    pub address: IpAddr,
    /// The running attempt that is given up for it, if any.
    pub instead_of: Option<u32>,
}

/// One race.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HappyEyeballs {
    config: Config,
    /// Addresses not yet tried: of the family that goes first, and of the other.
    left: [VecDeque<IpAddr>; 2],
    /// How many were tried of each.
    tried: [usize; 2],
    answered: [bool; 2],
    /// Which of the two is tried next.
    turn: usize,
    /// No attempt starts before.
    not_before: Time,
    started: u32,
    /// Attempts that run, oldest first, and since when.
    running: VecDeque<(u32, Time)>,
}

impl HappyEyeballs {
    /// A race in which nothing is resolved yet.
    pub const fn new(config: Config) -> Self {
        Self {
            config,
            left: [VecDeque::new(), VecDeque::new()],
            tried: [0, 0],
            answered: [false, false],
            turn: 0,
            not_before: Time::NEVER,
            started: 0,
            running: VecDeque::new(),
        }
    }

    /// One family's answer in the resolver's order; empty ends the wait for it, of a long one the
    /// first [`MOST_ATTEMPTS`] count.
    pub fn on_addresses(
        &mut self,
        now: Time,
        ipv6: bool,
        addresses: impl IntoIterator<Item = IpAddr>,
    ) {
        let family = usize::from(ipv6 != self.config.ipv6_first);
        self.left[family].extend(addresses.into_iter().take(MOST_ATTEMPTS));
        self.answered[family] = true;
        if self.started > 0 {
            return;
        }
        // the preferred family's addresses start at once; the other's wait a little for them
        let start = if self.answered[0] && (!self.left[0].is_empty() || self.answered[1]) {
            now
        } else if !self.left[1].is_empty() {
            if self.answered[0] { now } else { now + self.config.resolution_delay }
        } else {
            return;
        };
        self.not_before = self.not_before.min(start);
    }

    /// An attempt failed: the next may start immediately.
    pub fn on_failed(&mut self, now: Time, number: u32) {
        self.running.retain(|(running, _)| *running != number);
        self.not_before = self.not_before.min(now);
    }

    /// Attempts that run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// The next attempt, when it is time; [`MOST_ATTEMPTS`] in all. Families alternate (RFC 8305 §4, one address each). One
    /// beside others starts if it is `permitted` and there are fewer than [`MOST_AT_ONCE`]. If not, it waits for a failure,
    /// or until the oldest gives way; `permitted` is asked again meanwhile.
    pub fn next(&mut self, now: Time, permitted: impl FnOnce() -> bool) -> Option<Attempt> {
        if now < self.not_before {
            return None;
        }
        let turn = [self.turn, 1 - self.turn].into_iter().find(|family| self.may_try(*family))?;
        let address = *self.left[turn].front()?;
        let running = self.running.len();
        let beside = running == 0 || running < MOST_AT_ONCE && permitted();
        let instead_of = if beside { None } else { Some(self.give_up_oldest(now)?) };
        self.left[turn].pop_front();
        self.tried[turn] += 1;
        self.turn = 1 - turn;
        let number = self.started;
        self.started += 1;
        if self.tried.iter().sum::<usize>() >= MOST_ATTEMPTS {
            self.left.iter_mut().for_each(VecDeque::clear);
        }
        self.running.push_back((number, now));
        self.not_before = now + self.config.attempt_delay;
        Some(Attempt { number, address, instead_of })
    }

    /// Whether a family has an address to try, and a part of the attempts for it: what the other needs is kept for it.
    fn may_try(&self, family: usize) -> bool {
        let other = 1 - family;
        let alone = self.answered[other] && self.left[other].is_empty();
        !self.left[family].is_empty() && (alone || self.tried[family] < OF_EACH)
    }

    /// The oldest attempt, if it is old enough to give way; if not, nothing starts before it is, or before another may
    /// have been permitted.
    fn give_up_oldest(&mut self, now: Time) -> Option<u32> {
        let (number, since) = *self.running.front()?;
        let until = since + self.config.gives_way_after(self.running.len());
        if now < until {
            let again = match self.running.len() < MOST_AT_ONCE {
                true => now + self.config.attempt_delay,
                false => until,
            };
            self.not_before = until.min(again);
            return None;
        }
        self.running.pop_front();
        Some(number)
    }

    /// When to call [`HappyEyeballs::next`] again; [`Time::NEVER`] while only an event can bring
    /// news.
    pub fn deadline(&self) -> Time {
        if self.may_try(0) || self.may_try(1) { self.not_before } else { Time::NEVER }
    }

    /// Whether every address that may be tried was given out, and both families have answered.
    pub fn is_exhausted(&self) -> bool {
        self.left.iter().all(VecDeque::is_empty) && self.answered == [true, true]
    }
}

#[cfg(test)]
mod tests;
