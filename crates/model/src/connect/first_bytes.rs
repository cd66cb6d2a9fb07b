//! How long to wait for a client's first bytes before connecting on its behalf. They may name the
//! destination; but in some protocols the server speaks first, and its client must not wait for long.
//!
//! ```text
//! on_bytes(now, read)   after each read, with what is known of the name by now
//! on_end()              the client will send nothing more
//! deadline()            on_deadline(now) then
//! outcome()             Some: connect now
//! ```

use crate::units::{Span, Time};

/// The limits of the wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Until the first byte; zero: nothing is waited for.
    pub silence: Span,
    /// From the first byte to the last one that is needed.
    pub rest: Span,
    /// Bytes that are read at most.
    pub most: usize,
}

/// What the bytes so far say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// They may be the beginning of a name.
    Partial,
    /// More of them would say nothing more.
    Settled,
}

/// Why the wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The bytes named the destination, or showed that they name none.
    Settled,
    /// The client was silent: the server speaks first.
    Silent,
    /// The name did not come in time.
    Late,
    /// The budget was used up before the name came.
    Full,
    /// The client's direction ended.
    Ended,
}

/// One connection's wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstBytes {
    config: Config,
    began: Time,
    /// When the first byte came.
    first: Option<Time>,
    outcome: Option<Outcome>,
}

impl FirstBytes {
    /// A connection that was accepted now.
    pub fn new(config: Config, now: Time) -> Self {
        let outcome = (config.silence == Span::ZERO).then_some(Outcome::Silent);
        Self { config, began: now, first: None, outcome }
    }

    /// So many bytes have come in all, and say this.
    pub fn on_bytes(&mut self, now: Time, read: usize, reading: Reading) {
        self.first.get_or_insert(now);
        if self.outcome.is_none() {
            self.outcome = match reading {
                Reading::Settled => Some(Outcome::Settled),
                Reading::Partial if read >= self.config.most => Some(Outcome::Full),
                Reading::Partial => None,
            };
        }
    }

    /// The client's direction ended, or broke.
    pub fn on_end(&mut self) {
        self.outcome.get_or_insert(Outcome::Ended);
    }

    /// When to stop waiting; [`Time::NEVER`] after the outcome.
    pub fn deadline(&self) -> Time {
        match (self.outcome, self.first) {
            (Some(_), _) => Time::NEVER,
            (None, None) => self.began + self.config.silence,
            (None, Some(first)) => first + self.config.rest,
        }
    }

    /// Ends the wait if it is time.
    pub fn on_deadline(&mut self, now: Time) {
        if now >= self.deadline() {
            self.outcome = Some(if self.first.is_some() { Outcome::Late } else { Outcome::Silent });
        }
    }

    /// Why the wait ended; `None` while it goes on.
    pub const fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// The state, for tests and logs.
    pub const fn snapshot(&self) -> (Option<Time>, Option<Outcome>) {
        (self.first, self.outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CONFIG: Config =
        Config { silence: Span::from_millis(100), rest: Span::from_millis(1000), most: 100 };

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn a_server_that_speaks_first_costs_its_client_one_short_wait() {
        let mut wait = FirstBytes::new(CONFIG, at(0));
        wait.on_deadline(at(99));
        assert_eq!((wait.outcome(), wait.deadline()), (None, at(100)));
        wait.on_deadline(at(100));
        assert_eq!((wait.outcome(), wait.deadline()), (Some(Outcome::Silent), Time::NEVER));
        let never = FirstBytes::new(Config { silence: Span::ZERO, ..CONFIG }, at(0));
        assert_eq!(never.outcome(), Some(Outcome::Silent));
    }

    #[test]
    fn a_name_in_pieces_has_longer() {
        let mut wait = FirstBytes::new(CONFIG, at(0));
        wait.on_bytes(at(90), 10, Reading::Partial);
        assert_eq!(wait.deadline(), at(1090));
        wait.on_bytes(at(500), 20, Reading::Partial);
        assert_eq!(wait.deadline(), at(1090), "each piece does not begin it anew");
        let mut late = wait.clone();
        late.on_deadline(at(1090));
        assert_eq!(late.outcome(), Some(Outcome::Late));
        wait.on_bytes(at(600), 30, Reading::Settled);
        assert_eq!(wait.snapshot(), (Some(at(90)), Some(Outcome::Settled)));
    }

    #[test]
    fn the_end_and_the_budget_end_it() {
        let mut ended = FirstBytes::new(CONFIG, at(0));
        ended.on_end();
        assert_eq!(ended.outcome(), Some(Outcome::Ended));
        let mut full = FirstBytes::new(CONFIG, at(0));
        full.on_bytes(at(1), 100, Reading::Partial);
        assert_eq!(full.outcome(), Some(Outcome::Full));
    }

    proptest! {
        /// Whatever a client sends and when: the wait ends within both limits, and its outcome stays.
        #[test]
        fn ends_in_time_and_only_once(
            pieces in prop::collection::vec((0_u64..500, 1_usize..40, prop::bool::ANY), 0..12),
        ) {
            let (mut wait, mut now, mut read) = (FirstBytes::new(CONFIG, at(0)), 0, 0);
            let mut outcome = None;
            for (pause, bytes, settled) in pieces {
                (now, read) = (now + pause, read + bytes);
                wait.on_deadline(at(now));
                let reading = if settled { Reading::Settled } else { Reading::Partial };
                wait.on_bytes(at(now), read, reading);
                prop_assert!(outcome.is_none() || outcome == wait.outcome());
                outcome = wait.outcome();
                prop_assert!(outcome.is_some() || now < 1100);
            }
            wait.on_deadline(at(now + 1100));
            prop_assert!(wait.outcome().is_some());
        }
    }
}
