//! A name that datagrams go to: its addresses, the one in use, and when the name is asked for again.

use ekiden_model::units::{Span, Time};
use std::net::IpAddr;

/// An address of a name that does not answer for this long gives way to the next: one second, as
/// before a first retransmission (RFC 8085 §3.1.1).
const UNANSWERED: Span = Span::from_secs(1);

/// A name whose address in use was sent to for so long without an answer is asked for again, and not sooner after the
/// last time. A host with a dynamic address may have moved.
const AGAIN: Span = Span::from_secs(30);

/// A name in use.
#[derive(Debug)]
pub(super) struct ResolvedName {
    /// At least one.
    addresses: Vec<IpAddr>,
    /// The address in use. One that does not answer for a while gives way, each once.
    nth: usize,
    since: Time,
    /// All were tried.
    settled: bool,
    /// When it was last asked for.
    asked: Time,
}

impl ResolvedName {
    /// `addresses`: at least one; `nth`: which of them is used first.
    pub(super) const fn new(now: Time, addresses: Vec<IpAddr>, nth: usize) -> Self {
        Self { addresses, nth, since: now, settled: false, asked: now }
    }

    /// The address in use.
    pub(super) fn address(&self) -> IpAddr {
        self.addresses[self.nth]
    }

    pub(super) const fn count(&self) -> usize {
        self.addresses.len()
    }

    /// Uses the next address, after the last one the first.
    pub(super) const fn advance(&mut self) {
        self.nth = (self.nth + 1) % self.addresses.len();
    }

    /// A datagram is about to be sent; `answered`: the address in use has answered before.
    pub(super) fn on_sending(&mut self, now: Time, answered: bool) {
        if self.settled || now.since(self.since) < UNANSWERED {
            return;
        }
        self.settled = answered || self.nth + 1 == self.addresses.len();
        if !answered {
            self.advance();
            self.since = now;
        }
    }

    /// Whether to ask for the name again. `unanswered`: when the first datagram since the last answer went to the address
    /// in use.
    pub(super) fn is_due(&self, now: Time, unanswered: Option<Time>) -> bool {
        let silent = unanswered.is_some_and(|since| now.since(since) >= AGAIN);
        silent && now.since(self.asked) >= AGAIN
    }

    /// The name is asked for again.
    pub(super) const fn on_asked(&mut self, now: Time) {
        self.asked = now;
    }

    /// The name's addresses now, at least one. The address in use stays so where it is among them.
    pub(super) fn on_addresses(&mut self, now: Time, addresses: Vec<IpAddr>) {
        let in_use = self.address();
        match addresses.iter().position(|address| *address == in_use) {
            Some(nth) => {
                // new ones have their turn
                self.settled &= addresses.iter().all(|address| self.addresses.contains(address));
                (self.addresses, self.nth) = (addresses, nth);
            }
            None => *self = Self::new(now, addresses, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    fn ip(n: u8) -> IpAddr {
        [192, 0, 2, n].into()
    }

    #[test]
    fn addresses_that_do_not_answer_give_way_once_each() {
        let mut name = ResolvedName::new(at(0), vec![ip(1), ip(2)], 0);
        let mut used = Vec::new();
        for second in 0..5 {
            name.on_sending(at(second), false);
            used.push(name.address());
        }
        assert_eq!(used, [ip(1), ip(2), ip(1), ip(1), ip(1)]);
        let mut name = ResolvedName::new(at(0), vec![ip(1), ip(2)], 0);
        name.on_sending(at(5), true);
        name.on_sending(at(9), false);
        assert_eq!(name.address(), ip(1), "it answered once");
    }

    #[test]
    fn a_name_is_asked_for_again_every_30_s_without_an_answer() {
        let mut name = ResolvedName::new(at(0), vec![ip(1)], 0);
        let mut asked = Vec::new();
        for second in 0..100 {
            // its last answer came 8 s after the start
            let unanswered = (second >= 10).then_some(at(10));
            if name.is_due(at(second), unanswered) {
                name.on_asked(at(second));
                asked.push(second);
            }
        }
        assert_eq!(asked, [40, 70]);
        assert!(!name.is_due(at(1_000), None), "it answers");
    }

    #[test]
    fn the_address_in_use_stays_while_the_name_has_it() {
        let mut name = ResolvedName::new(at(0), vec![ip(1), ip(2)], 1);
        name.on_addresses(at(30), vec![ip(2), ip(3)]);
        assert_eq!(name.address(), ip(2));
        // the new one has its turn, since nobody answers
        name.on_sending(at(31), false);
        assert_eq!(name.address(), ip(3));
        name.on_addresses(at(60), vec![ip(4), ip(1)]);
        assert_eq!(name.address(), ip(4));
    }
}
