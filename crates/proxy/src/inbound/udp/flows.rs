//! The flows of a port whose datagrams begin them, as a forwarded port and diverted QUIC have.

use bytes::Bytes;
use ekiden_model::resources::initial_rate::{Allowance, Config, InitialRate};
use ekiden_model::resources::overload::Source;
use ekiden_model::units::{Span, Time};
use std::collections::BTreeMap;
use std::net::IpAddr;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

/// So many flows are never searched for ended ones.
const FEW: usize = 64;

/// Where each flow takes its datagrams, by its ends.
#[derive(Debug)]
pub(crate) struct Flows<Ends> {
    queues: BTreeMap<Ends, Sender<Bytes>>,
    /// At so many, the ended ones are removed.
    sweep: usize,
}

impl<Ends: Ord> Flows<Ends> {
    pub(crate) const fn new() -> Self {
        Self { queues: BTreeMap::new(), sweep: FEW }
    }

    /// Gives a datagram to its flow, and back where there is none or it ended. It costs the same however many flows there
    /// are: a sender without one may come with any number of addresses.
    pub(crate) fn pass(&mut self, ends: &Ends, packet: Bytes) -> Option<Bytes> {
        let Some(queue) = self.queues.get(ends) else { return Some(packet) };
        match queue.try_send(packet) {
            // one too many is lost, as on any path
            Ok(()) | Err(TrySendError::Full(_)) => None,
            Err(TrySendError::Closed(packet)) => {
                self.queues.remove(ends);
                Some(packet)
            }
        }
    }

    /// Takes in a flow with its first datagram. At most 64 are held beyond twice as many as live.
    pub(crate) fn insert(&mut self, ends: Ends, queue: Sender<Bytes>, first: Bytes) {
        if self.queues.len() >= self.sweep {
            self.queues.retain(|_, queue| !queue.is_closed());
            self.sweep = (2 * self.queues.len()).max(FEW);
        }
        // cannot fail: the queue is new
        let _ = queue.try_send(first);
        self.queues.insert(ends, queue);
    }
}

/// Flows of one network, an IPv4 address or an IPv6 /64: so many at once, as a household's pages open some tens each, and
/// 64 more a second.
const OWN: Allowance = Allowance { burst: 256, interval: Span::from_micros(15_625) };
/// Of all together, whose addresses may be forged: so many at once, and a second. One takes up to 80 µs of a core, also
/// where it ends at once.
const ALL: Allowance = Allowance { burst: 1_024, interval: Span::from_nanos(976_563) };
/// Networks that are remembered.
const NETWORKS: usize = 1_024;

/// How many flows begin. Places bound those that live, and not those that end at once because they may go nowhere.
#[derive(Debug)]
pub(crate) struct FlowRate(InitialRate);

impl FlowRate {
    pub(crate) const fn new(now: Time) -> Self {
        let config = Config { address: [OWN; 4], all: [ALL; 4], remembered: NETWORKS };
        Self(InitialRate::new(config, now))
    }

    /// A datagram without a flow came: whether one may begin. It counts as a stranger's Initial does.
    pub(crate) fn on_datagram(&mut self, now: Time, client: IpAddr) -> bool {
        self.0.on_initial(now, Source::unproven(client), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc::{Receiver, channel};

    fn begin(flows: &mut Flows<usize>, ends: usize) -> Receiver<Bytes> {
        let (queue, packets) = channel(1);
        flows.insert(ends, queue, Bytes::new());
        packets
    }

    #[test]
    fn one_network_begins_so_many_flows_and_leaves_some_to_others() {
        let mut rate = FlowRate::new(Time::ZERO);
        let mut begun = |second, client: IpAddr| {
            let now = Time::ZERO + Span::from_secs(second);
            (0..10_000).filter(|_| rate.on_datagram(now, client)).count()
        };
        let [one, other] = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
        assert_eq!([begun(0, one), begun(0, other)], [256; 2]);
        assert_eq!([begun(1, one), begun(1, other)], [64; 2]);
        // of all, whatever addresses they bear
        let mut rate = FlowRate::new(Time::ZERO);
        let forged = (0..=u16::MAX).map(|nth| IpAddr::from([10, 0, (nth >> 8) as u8, nth as u8]));
        assert_eq!(forged.filter(|client| rate.on_datagram(Time::ZERO, *client)).count(), 1_024);
    }

    #[test]
    fn datagrams_without_a_flow_search_none() {
        let mut flows = Flows::new();
        let mut live: Vec<_> = (0..1_000).map(|ends| begin(&mut flows, ends)).collect();
        // a search would remove these
        live.truncate(900);
        assert!((1_000..11_000).all(|ends| flows.pass(&ends, Bytes::new()).is_some()));
        assert_eq!(flows.queues.len(), 1_000);
        // an ended one goes when it is met
        assert!(flows.pass(&950, Bytes::new()).is_some());
        assert_eq!(flows.queues.len(), 999);
    }

    #[test]
    fn ended_flows_are_removed_as_others_begin() {
        let mut flows = Flows::new();
        let live: Vec<_> = (0..1_000).map(|ends| begin(&mut flows, ends)).collect();
        for ends in 1_000..11_000 {
            drop(begin(&mut flows, ends));
            assert!(flows.queues.len() <= 2 * live.len() + FEW, "{}", flows.queues.len());
        }
        // those that live stay; their queues are full, and one too many is lost
        assert!((0..1_000).all(|ends| flows.pass(&ends, Bytes::new()).is_none()));
    }
}
