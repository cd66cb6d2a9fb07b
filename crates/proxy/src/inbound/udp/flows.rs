//! The flows of a port whose datagrams begin them, as a forwarded port and diverted QUIC have.

use bytes::Bytes;
use std::collections::BTreeMap;
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
