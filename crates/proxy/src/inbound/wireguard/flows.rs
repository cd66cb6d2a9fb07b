//! What a client has under way in the kernel. The kernel remembers each flow that it forwards, in one table for the whole
//! machine; once that is full, nobody gets a new one. So a client has a part of it, and what it did not ask for is not
//! its: its address may have been another device's before.

use ekiden_model::units::{Span, Time};
use ekiden_wireguard::{Header, Protocol};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// The most flows of a client. A place is 32 bytes, and all of a client's take 130 kB at most.
pub(super) const MOST: usize = 2_048;
/// After so long without a packet a flow is over, as the kernel's own for UDP are.
pub(super) const IDLE: Span = Span::from_secs(120);
/// Between two searches for those that are over.
const BETWEEN: Span = Span::from_secs(1);

/// What is one flow to the kernel, and one client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Flow {
    other: IpAddr,
    protocol: Protocol,
    /// The other end's; 0 where there are none.
    port: u16,
    /// The client's, or what tells its pings apart.
    own: u16,
}

impl Flow {
    /// `None`: the kernel remembers nothing new for it. It is an error of ICMP, or a later fragment, which does not pass
    /// without the first one.
    fn of(header: &Header, from_client: bool, other: SocketAddr) -> Option<Self> {
        let (protocol, port) = (header.protocol, other.port());
        let own = match protocol {
            Protocol::Icmp => header.query?,
            _ if protocol.has_ports() => {
                let (source, destination) = header.ports?;
                if from_client { source } else { destination }
            }
            _ => 0,
        };
        Some(Self { other: other.ip(), protocol, port, own })
    }
}

/// The flows of a client, with the times of their last packets.
#[derive(Debug, Default)]
pub(super) struct Flows {
    known: BTreeMap<Flow, Time>,
    searched: Time,
}

impl Flows {
    /// Whether a packet from the client to `other` may pass: it is of a flow, or there is room for another.
    pub(super) fn on_sent(&mut self, now: Time, header: &Header, other: SocketAddr) -> bool {
        let Some(flow) = Flow::of(header, true, other) else { return true };
        if self.refresh(now, flow) {
            return true;
        }
        if self.known.len() >= MOST && now >= self.searched + BETWEEN {
            self.searched = now;
            self.known.retain(|_, last| now < *last + IDLE);
        }
        let has_room = self.known.len() < MOST;
        if has_room {
            self.known.insert(flow, now);
        }
        has_room
    }

    /// Whether a packet from `other` is for the client. TCP that it does not know it resets by itself, and a connection
    /// may be silent for longer than is remembered. Errors and answers of ICMP are few.
    pub(super) fn on_answer(&mut self, now: Time, header: &Header, other: SocketAddr) -> bool {
        let is_known = match Flow::of(header, false, other) {
            Some(flow) => self.refresh(now, flow),
            None => self.has_any(header.protocol, other.ip()),
        };
        is_known || matches!(header.protocol, Protocol::Tcp | Protocol::Icmp)
    }

    fn refresh(&mut self, now: Time, flow: Flow) -> bool {
        let Some(last) = self.known.get_mut(&flow) else { return false };
        *last = now;
        true
    }

    fn has_any(&self, protocol: Protocol, other: IpAddr) -> bool {
        let flow = |port, own| Flow { other, protocol, port, own };
        self.known.range(flow(0, 0)..=flow(u16::MAX, u16::MAX)).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_nanos(9_000_000_000);

    fn other(port: u16) -> SocketAddr {
        SocketAddr::new([192, 0, 2, 1].into(), port)
    }

    fn header(protocol: Protocol, ports: Option<(u16, u16)>, query: Option<u16>) -> Header {
        let (source, destination) = ([10, 77, 0, 2].into(), other(0).ip());
        Header { source, destination, protocol, ports, query, length: 100, payload: 80 }
    }

    #[test]
    fn pings_and_ports_take_places_and_fragments_and_errors_take_none() {
        let mut flows = Flows::default();
        let ping = |id| header(Protocol::Icmp, None, Some(id));
        let passed = (0..3_000).filter(|id| flows.on_sent(NOW, &ping(*id), other(0))).count();
        assert_eq!((passed, flows.known.len()), (MOST, MOST));
        let others = [Protocol::Tcp, Protocol::Other(132)].map(|one| (one, Some((1, 2))));
        for (protocol, ports) in others.into_iter().chain([(Protocol::Other(47), None)]) {
            assert!(!flows.on_sent(NOW, &header(protocol, ports, None), other(2)), "{protocol:?}");
        }
        // the kernel remembers nothing for them
        for protocol in [Protocol::Icmp, Protocol::Udp, Protocol::Tcp] {
            assert!(flows.on_sent(NOW, &header(protocol, None, None), other(0)), "{protocol:?}");
        }
        let later = NOW + IDLE;
        assert!(flows.on_sent(later, &ping(2_999), other(0)));
        assert_eq!(flows.known.len(), 1, "the others are over");
    }

    #[test]
    fn answers_keep_a_flow_and_strangers_datagrams_are_refused() {
        let mut flows = Flows::default();
        assert!(flows.on_sent(NOW, &header(Protocol::Udp, Some((5, 7)), None), other(7)));
        let answer = header(Protocol::Udp, Some((7, 5)), None);
        assert!(flows.on_answer(NOW + Span::from_secs(119), &answer, other(7)));
        assert_eq!(flows.known.values().next(), Some(&(NOW + Span::from_secs(119))));
        let stranger = SocketAddr::new([192, 0, 2, 9].into(), 7);
        let wrong = header(Protocol::Udp, Some((7, 6)), None);
        assert!(
            !flows.on_answer(NOW, &answer, stranger) && !flows.on_answer(NOW, &answer, other(8))
        );
        assert!(!flows.on_answer(NOW, &wrong, other(7)), "another port of the client");
        assert!(!flows.on_answer(NOW, &header(Protocol::Other(47), None, None), other(0)));
        // later fragments of what is known
        let fragment = header(Protocol::Udp, None, None);
        assert!(flows.on_answer(NOW, &fragment, other(0)));
        assert!(!flows.on_answer(NOW, &fragment, stranger));
        for (protocol, ports) in [(Protocol::Tcp, Some((7, 5))), (Protocol::Icmp, None)] {
            assert!(flows.on_answer(NOW, &header(protocol, ports, None), stranger), "{protocol:?}");
        }
    }
}
