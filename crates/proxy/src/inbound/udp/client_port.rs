//! Which port of its own address an association's client sends from, and when it last did.

use ekiden_model::units::{Span, Time};
use std::net::SocketAddr;

/// Silence of the known port after which another one may take its place. Many NATs forget a port that was silent for 30 to
/// 60 s, although RFC 4787 §4.3 asks for two minutes; what the client sends next comes from another one.
const SILENT: Span = Span::from_secs(30);

#[derive(Debug)]
pub(super) struct ClientPort {
    /// Answers go there.
    known: Option<SocketAddr>,
    /// The port that was known before. It comes back at once, so that a forged datagram takes no association for good. Then
    /// none is here: otherwise the forger's would come back, too.
    before: Option<SocketAddr>,
    /// When the client last sent, or the association began.
    heard: Time,
}

impl ClientPort {
    /// Of an association that begins.
    pub(super) const fn new(now: Time) -> Self {
        Self { known: None, before: None, heard: now }
    }

    /// Where answers go; `None`: nothing that could be read has come yet.
    pub(super) const fn known(&self) -> Option<SocketAddr> {
        self.known
    }

    /// When the client last sent, or the association began.
    pub(super) const fn heard(&self) -> Time {
        self.heard
    }

    /// Whether a datagram from here, which is the client's address, may be the client's.
    pub(super) fn may_send(&self, now: Time, from: SocketAddr) -> bool {
        match self.known {
            Some(known) if known != from => {
                self.before == Some(from) || now.since(self.heard) >= SILENT
            }
            _ => true,
        }
    }

    /// A datagram came from where the client may send. What cannot be read may come from anybody at its address.
    pub(super) fn on_datagram(&mut self, now: Time, from: SocketAddr, readable: bool) {
        if self.known != Some(from) {
            if !readable {
                return;
            }
            let returns = self.before == Some(from);
            self.before = self.known.replace(from).filter(|_| !returns);
        }
        self.heard = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    fn port(n: u16) -> SocketAddr {
        ([192, 0, 2, 1], n).into()
    }

    #[test]
    fn another_port_takes_the_place_of_one_that_was_silent_for_30_s() {
        let mut client = ClientPort::new(at(0));
        assert!(client.may_send(at(0), port(1)));
        client.on_datagram(at(0), port(1), true);
        client.on_datagram(at(20), port(1), true);
        assert!(!client.may_send(at(49), port(2)) && client.may_send(at(50), port(2)));
        client.on_datagram(at(50), port(2), true);
        assert_eq!((client.known(), client.heard()), (Some(port(2)), at(50)));
        // and so again
        assert!(!client.may_send(at(79), port(3)) && client.may_send(at(80), port(3)));
    }

    #[test]
    fn a_forged_datagram_leaves_the_association_to_its_client() {
        let mut client = ClientPort::new(at(0));
        client.on_datagram(at(0), port(1), true);
        client.on_datagram(at(40), port(666), true);
        assert!(client.may_send(at(41), port(1)));
        client.on_datagram(at(41), port(1), true);
        assert_eq!(client.known(), Some(port(1)));
        assert!(!client.may_send(at(42), port(666)) && !client.may_send(at(42), port(667)));
        // it has to wait as before, and the client comes back as before
        assert!(!client.may_send(at(70), port(666)) && client.may_send(at(71), port(666)));
        client.on_datagram(at(71), port(666), true);
        assert!(client.may_send(at(72), port(1)));
        client.on_datagram(at(72), port(1), true);
        assert!(!client.may_send(at(73), port(666)));
    }

    #[test]
    fn datagrams_that_cannot_be_read_take_no_association_and_prolong_none_of_another_port() {
        let mut client = ClientPort::new(at(0));
        client.on_datagram(at(1), port(1), false);
        assert_eq!((client.known(), client.heard()), (None, at(0)));
        client.on_datagram(at(2), port(1), true);
        client.on_datagram(at(40), port(2), false);
        assert_eq!((client.known(), client.heard()), (Some(port(1)), at(2)));
        client.on_datagram(at(41), port(1), false);
        assert_eq!(client.heard(), at(41), "the known port is not silent");
    }
}
