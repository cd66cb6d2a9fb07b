//! Where the time of writes goes: a histogram for each part and kind.

use crate::observer::{Delivery, Observer};
use ekiden_record::histogram::Histogram;

/// Parts of a write's time, as [`Delivery`] names them, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parts {
    /// Send buffer and the host's own link.
    pub server: Histogram,
    /// Routers.
    pub router: Histogram,
    /// Waiting for what came before.
    pub client: Histogram,
    /// All together.
    pub end_to_end: Histogram,
}

impl Parts {
    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Self) {
        self.server.merge(&other.server);
        self.router.merge(&other.router);
        self.client.merge(&other.client);
        self.end_to_end.merge(&other.end_to_end);
    }
}

/// Delays by kind of write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delays {
    kinds: Vec<Parts>,
}

impl Delays {
    /// What was counted for a kind; nothing if none was delivered.
    pub fn kind(&self, kind: u8) -> Option<&Parts> {
        self.kinds.get(usize::from(kind))
    }

    /// Adds what another run has counted.
    pub fn merge(&mut self, other: &Self) {
        let most = self.kinds.len().max(other.kinds.len());
        self.kinds.resize_with(most, Parts::default);
        self.kinds.iter_mut().zip(&other.kinds).for_each(|(ours, theirs)| ours.merge(theirs));
    }
}

impl Observer for Delays {
    const ORDERED: bool = false;

    fn delivered(&mut self, delivery: &Delivery) {
        let at = usize::from(delivery.kind);
        if self.kinds.len() <= at {
            self.kinds.resize_with(at + 1, Parts::default);
        }
        let Some(parts) = self.kinds.get_mut(at) else { return };
        parts.server.add(delivery.server.as_nanos());
        parts.router.add(delivery.router.as_nanos());
        parts.client.add(delivery.client.as_nanos());
        parts.end_to_end.add(delivery.end_to_end.as_nanos());
    }
}
