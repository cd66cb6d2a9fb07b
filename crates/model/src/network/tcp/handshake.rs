//! Handshake a connection: when to send another SYN.

use crate::units::{Span, Time};

/// How a connection is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandshakeConfig {
    /// How long the first SYN is waited for; doubled for each further one (RFC 6298 §2.1: 1 s).
    pub initial: Span,
    /// The longest wait between two.
    pub most: Span,
    /// How many SYNs follow the first before it is given up.
    pub again: u32,
}

impl Default for HandshakeConfig {
    /// RFC 6298, and as persistent as Linux (`tcp_syn_retries`).
    fn default() -> Self {
        Self { initial: Span::from_secs(1), most: Span::from_secs(60), again: 6 }
    }
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// Send a SYN.
    Send,
    /// It is in vain.
    GiveUp,
}

/// One attempt to open a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handshake {
    config: HandshakeConfig,
    sent: u32,
    wait: Span,
    deadline: Time,
    last: Time,
}

impl Handshake {
    /// Begins; the first SYN is sent now.
    pub fn new(config: HandshakeConfig, now: Time) -> Self {
        Self { config, sent: 1, wait: config.initial, deadline: now + config.initial, last: now }
    }

    /// When the next SYN is due.
    pub const fn deadline(&self) -> Time {
        self.deadline
    }

    /// The wait is over.
    pub fn on_deadline(&mut self, now: Time) -> Attempt {
        if self.sent > self.config.again {
            self.deadline = Time::NEVER;
            return Attempt::GiveUp;
        }
        self.sent += 1;
        self.last = now;
        self.wait = self.wait.saturating_mul(2).min(self.config.most);
        self.deadline = now + self.wait;
        Attempt::Send
    }

    /// The answer came: a round-trip sample, unless a SYN was repeated (Karn).
    pub fn on_answer(&mut self, now: Time) -> Option<Span> {
        self.deadline = Time::NEVER;
        (self.sent == 1).then(|| now.since(self.last))
    }

    /// How many SYNs were sent.
    pub const fn sent(&self) -> u32 {
        self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_and_ends() {
        let mut opening = Handshake::new(HandshakeConfig::default(), Time::ZERO);
        let mut waits = std::vec::Vec::new();
        loop {
            let due = opening.deadline();
            waits.push(due.as_nanos() / 1_000_000_000);
            if opening.on_deadline(due) == Attempt::GiveUp {
                break;
            }
        }
        assert_eq!(waits, [1, 3, 7, 15, 31, 63, 123]);
        assert_eq!(opening.sent(), 7);
        assert_eq!(opening.deadline(), Time::NEVER);
    }

    #[test]
    fn a_repeated_syn_gives_no_sample() {
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let mut clean = Handshake::new(HandshakeConfig::default(), at(0));
        assert_eq!(clean.on_answer(at(44)), Some(Span::from_millis(44)));
        let mut repeated = Handshake::new(HandshakeConfig::default(), at(0));
        assert_eq!(repeated.on_deadline(at(1000)), Attempt::Send);
        assert_eq!(repeated.on_answer(at(1044)), None);
    }
}
