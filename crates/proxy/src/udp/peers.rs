//! Whom an association has spoken to: they alone may answer (RFC 4787 §5, address and port-dependent
//! filtering), for as long as they are spoken to.

use ekiden_model::units::{Span, Time};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Told of each datagram that goes out, in the order of time.
#[derive(Debug)]
pub(super) struct Peers {
    most: usize,
    idle: Span,
    of: BTreeMap<SocketAddr, Peer>,
}

#[derive(Debug)]
struct Peer {
    /// When it was sent to last.
    sent: Time,
    answered: bool,
}

impl Peers {
    /// At most so many, each for so long after what was sent to it last.
    pub(super) const fn new(most: usize, idle: Span) -> Self {
        Self { most, idle, of: BTreeMap::new() }
    }

    /// A datagram goes to `to`. Answers whom it takes the place of.
    pub(super) fn on_sent(&mut self, now: Time, to: SocketAddr) -> Option<SocketAddr> {
        self.of.entry(to).or_insert(Peer { sent: now, answered: false }).sent = now;
        if self.of.len() <= self.most {
            return None;
        }
        let others = self.of.iter().filter(|(peer, _)| **peer != to);
        let oldest = others.min_by_key(|(_, peer)| peer.sent).map(|(peer, _)| *peer)?;
        self.of.remove(&oldest);
        Some(oldest)
    }

    /// A datagram comes from `from`; whether it may.
    pub(super) fn on_answer(&mut self, now: Time, from: SocketAddr) -> bool {
        let peer = self.of.get_mut(&from).filter(|peer| now.since(peer.sent) < self.idle);
        peer.map(|peer| peer.answered = true).is_some()
    }

    /// Whether one has answered since it is spoken to.
    pub(super) fn has_answered(&self, peer: SocketAddr) -> bool {
        self.of.get(&peer).is_some_and(|peer| peer.answered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn peer(n: u8) -> SocketAddr {
        ([192, 0, 2, n], 53).into()
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    #[test]
    fn who_was_spoken_to_may_answer_for_a_while() {
        let mut peers = Peers::new(2, Span::from_secs(10));
        assert!(!peers.on_answer(at(0), peer(1)) && !peers.has_answered(peer(1)));
        assert_eq!(peers.on_sent(at(0), peer(1)), None);
        let other_port = SocketAddr::new(peer(1).ip(), 54);
        assert!(peers.on_answer(at(9), peer(1)) && !peers.on_answer(at(9), other_port));
        assert!(!peers.on_answer(at(10), peer(1)));
        assert!(peers.has_answered(peer(1)) && !peers.has_answered(other_port));
        assert_eq!(peers.on_sent(at(10), peer(1)), None);
        assert!(peers.on_answer(at(19), peer(1)));
    }

    #[test]
    fn the_one_spoken_to_longest_ago_makes_room() {
        let mut peers = Peers::new(2, Span::from_secs(10));
        peers.on_sent(at(0), peer(1));
        peers.on_sent(at(1), peer(2));
        peers.on_sent(at(2), peer(1));
        assert_eq!(peers.on_sent(at(3), peer(3)), Some(peer(2)));
        assert!(peers.on_answer(at(3), peer(1)) && !peers.on_answer(at(3), peer(2)));
    }

    proptest! {
        #[test]
        fn never_more_than_the_most_and_never_without_the_newest(
            most in 1_usize..8, sent in proptest::collection::vec(0_u8..20, 0..60),
        ) {
            let mut peers = Peers::new(most, Span::from_secs(1_000));
            for (second, n) in sent.into_iter().enumerate() {
                peers.on_sent(at(second as u64), peer(n));
                prop_assert!(peers.of.len() <= most);
                prop_assert!(peers.on_answer(at(second as u64), peer(n)));
            }
        }
    }
}
