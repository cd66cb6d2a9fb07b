//! All managed legs: by number, by the tick that looks at them, and how many lead to each address.

use super::TICKS_PER_LOOK;
use super::leg::Leg;
use super::reading::DueLook;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

#[derive(Debug, Default)]
pub(super) struct Legs {
    /// By tick and number, so that a tick walks over its own legs alone. Boxed: a map of numbers that only
    /// grow keeps half of its room empty.
    legs: BTreeMap<(u64, u64), Box<Leg>>,
    /// Outgoing legs by remote address.
    towards: HashMap<SocketAddr, u64>,
}

const fn key(id: u64) -> (u64, u64) {
    (id % TICKS_PER_LOOK, id)
}

impl Legs {
    /// Adds one, by a number that no other has.
    pub(super) fn insert(&mut self, id: u64, leg: Leg) {
        if let Some(to) = leg.to {
            *self.towards.entry(to).or_default() += 1;
        }
        self.legs.insert(key(id), Box::new(leg));
    }

    pub(super) fn remove(&mut self, id: u64) {
        let to = self.legs.remove(&key(id)).and_then(|leg| leg.to);
        if let Some(to) = to
            && let Some(count) = self.towards.get_mut(&to)
        {
            *count -= 1;
            if *count == 0 {
                self.towards.remove(&to);
            }
        }
    }

    pub(super) fn get(&self, id: u64) -> Option<&Leg> {
        self.legs.get(&key(id)).map(|leg| &**leg)
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Leg> {
        self.legs.get_mut(&key(id)).map(|leg| &mut **leg)
    }

    pub(super) fn contains(&self, id: u64) -> bool {
        self.legs.contains_key(&key(id))
    }

    pub(super) fn len(&self) -> usize {
        self.legs.len()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Leg> {
        self.legs.values().map(|leg| &**leg)
    }

    /// The most legs that lead to one address.
    pub(super) fn most_towards(&self) -> u64 {
        self.towards.values().copied().max().unwrap_or(0)
    }

    /// The legs that the kernel is asked about in this tick.
    pub(super) fn due(&mut self, tick: u64) -> Vec<DueLook> {
        let turn = tick % TICKS_PER_LOOK;
        let legs = self.legs.range_mut((turn, 0)..(turn + 1, 0));
        legs.filter_map(|((_, id), leg)| leg.due(*id)).collect()
    }
}
