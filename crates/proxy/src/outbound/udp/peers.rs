//! An association's remote hosts. Only they may answer (RFC 4787 §5, address and port-dependent
//! filtering), while datagrams go to them.

use super::DECIDED;
use crate::destination::Host;
use crate::outbound::recent::Recent;
use ekiden_model::units::{Span, Time};
use std::net::SocketAddr;

/// The hosts that were sent to, with times.
#[derive(Debug)]
pub(crate) struct Peers {
    idle: Span,
    of: Recent<SocketAddr, Peer>,
}

#[derive(Debug)]
struct Peer {
    sent: Time,
    answered: bool,
    /// The first datagram to it since its last answer.
    unanswered: Option<Time>,
    /// When the rules and the kernel last let it be sent to, and as which host: a rule may name one.
    permitted: Option<(Time, Host)>,
}

impl Peers {
    /// At most `most` hosts, each for `idle` after the last datagram to it.
    pub(crate) const fn new(most: usize, idle: Span) -> Self {
        Self { idle, of: Recent::new(most) }
    }

    /// Records a datagram to `to`; returns the host that was forgotten for it, if any.
    pub(crate) fn on_sent(&mut self, now: Time, to: SocketAddr) -> Option<SocketAddr> {
        match self.of.used(&to) {
            Some(peer) => {
                peer.sent = now;
                peer.unanswered.get_or_insert(now);
                None
            }
            None => {
                let unanswered = Some(now);
                let peer = Peer { sent: now, answered: false, unanswered, permitted: None };
                let forgotten = self.of.insert(to, peer);
                forgotten.map(|(peer, _)| peer)
            }
        }
    }

    /// Whether datagrams for `host` may go to the peer, by a decision that still holds.
    pub(crate) fn is_permitted(&self, now: Time, peer: SocketAddr, host: &Host) -> bool {
        let permitted = self.of.get(&peer).and_then(|peer| peer.permitted.as_ref());
        permitted.is_some_and(|(since, of)| of == host && now.since(*since) < DECIDED)
    }

    /// Records that decision, about a peer that was sent to.
    pub(crate) fn permit(&mut self, now: Time, peer: SocketAddr, host: &Host) {
        if let Some(peer) = self.of.get_mut(&peer) {
            peer.permitted = Some((now, host.clone()));
        }
    }

    /// Whether a datagram from `from` is an answer; records it.
    pub(crate) fn on_answer(&mut self, now: Time, from: SocketAddr) -> bool {
        let peer = self.of.get_mut(&from).filter(|peer| now.since(peer.sent) < self.idle);
        peer.map(|peer| (peer.answered, peer.unanswered) = (true, None)).is_some()
    }

    /// Whether the host has answered since it is known.
    pub(crate) fn has_answered(&self, peer: SocketAddr) -> bool {
        self.of.get(&peer).is_some_and(|peer| peer.answered)
    }

    /// When the first datagram went to the host after its last answer, if one did.
    pub(crate) fn unanswered_since(&self, peer: SocketAddr) -> Option<Time> {
        self.of.get(&peer)?.unanswered
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
    fn peers_may_answer_for_a_while() {
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
    fn the_first_datagram_without_an_answer_is_remembered() {
        let mut peers = Peers::new(2, Span::from_secs(10));
        assert_eq!(peers.unanswered_since(peer(1)), None);
        peers.on_sent(at(1), peer(1));
        peers.on_sent(at(2), peer(1));
        assert_eq!(peers.unanswered_since(peer(1)), Some(at(1)));
        peers.on_answer(at(3), peer(1));
        assert_eq!(peers.unanswered_since(peer(1)), None);
        peers.on_sent(at(4), peer(1));
        assert_eq!(peers.unanswered_since(peer(1)), Some(at(4)));
    }

    #[test]
    fn a_decision_about_a_host_holds_for_a_second_and_for_no_other_host() {
        let mut peers = Peers::new(2, Span::from_secs(10));
        let named = Host::from_name("a.example").unwrap();
        let itself = Host::Address(peer(1).ip());
        peers.permit(at(0), peer(1), &named);
        assert!(!peers.is_permitted(at(0), peer(1), &named), "nothing was sent there");
        peers.on_sent(at(0), peer(1));
        peers.permit(at(0), peer(1), &named);
        assert!(peers.is_permitted(at(0), peer(1), &named));
        assert!(!peers.is_permitted(at(0), peer(1), &itself));
        assert!(!peers.is_permitted(at(0), peer(2), &named));
        // what is sent meanwhile does not prolong it
        peers.on_sent(at(1), peer(1));
        assert!(!peers.is_permitted(at(1), peer(1), &named));
        peers.permit(at(1), peer(1), &itself);
        assert!(peers.is_permitted(at(1), peer(1), &itself));
        assert!(!peers.is_permitted(at(1), peer(1), &named));
    }

    #[test]
    fn forgets_the_least_recently_used_peer() {
        let mut peers = Peers::new(2, Span::from_secs(10));
        peers.on_sent(at(0), peer(1));
        peers.on_sent(at(1), peer(2));
        peers.on_sent(at(2), peer(1));
        assert_eq!(peers.on_sent(at(3), peer(3)), Some(peer(2)));
        assert!(peers.on_answer(at(3), peer(1)) && !peers.on_answer(at(3), peer(2)));
    }

    proptest! {
        #[test]
        fn keeps_the_newest_within_the_limit(
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
