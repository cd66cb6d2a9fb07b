//! The memory of connections by their sources: which silent ones give some back, and which sources may hold more.

use super::{Holder, Place, PlaceId, Source, Sources};
use crate::resources::overload::served::may_hold_more;
use crate::slab::Handle;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// The bytes of a silent connection, its turn, and its entry.
type Weighed = (u64, Reverse<u64>, Handle);

impl<T> Sources<T> {
    /// Silent connections of sources with `least` places or more that hold `wanted` bytes together, or all that hold any:
    /// each time the largest of the source that holds the most bytes, of equals the longest silent.
    pub fn heaviest(&self, wanted: u64, least: u64, bytes: impl Fn(&T) -> u64) -> Vec<PlaceId> {
        let mut sources = BTreeMap::<Source, (u64, Vec<Weighed>)>::new();
        for (place, handle) in self.silent(|holder| holder.held >= least) {
            let held = bytes(&place.who);
            if held > 0 {
                let (sum, of) = sources.entry(place.source).or_default();
                *sum += held;
                of.push((held, Reverse(place.since), handle));
            }
        }
        for (_, of) in sources.values_mut() {
            of.sort_unstable();
        }
        let mut order: BTreeSet<(u64, Source)> =
            sources.iter().map(|(source, (sum, _))| (*sum, *source)).collect();
        let (mut chosen, mut freed) = (Vec::new(), 0_u64);
        while freed < wanted {
            let Some((sum, source)) = order.pop_last() else { break };
            let Some((held, _, handle)) = sources.get_mut(&source).and_then(|(_, of)| of.pop())
            else {
                continue;
            };
            freed = freed.saturating_add(held);
            chosen.push(PlaceId(handle));
            order.insert((sum.saturating_sub(held), source));
        }
        chosen
    }

    /// What all silent connections hold.
    pub fn held_by_silent(&self, bytes: impl Fn(&T) -> u64) -> u64 {
        self.silent(|_| true).map(|(place, _)| bytes(&place.who)).sum()
    }

    /// Silent connections of some holders.
    fn silent(&self, of: impl Fn(&Holder) -> bool) -> impl Iterator<Item = (&Place<T>, Handle)> {
        self.holders.values().filter(move |holder| of(holder)).flat_map(|holder| {
            let first = holder.silent.head(&self.places);
            let handles = core::iter::successors(first, |handle| self.places.after(0, *handle));
            handles.filter_map(|handle| Some((self.places.get(handle)?, handle)))
        })
    }

    /// Whether a connection may hold more beside others, where its source holds `own` bytes of `limit`, and `lasting` of
    /// all cannot be had back. One of which nothing is served gives its memory back; for one with a log-in there are its
    /// account's limits.
    pub fn may_hold_more(&self, id: PlaceId, own: u64, lasting: u64, limit: u64) -> bool {
        let place = self.places.get(id.0);
        let counts = place.is_some_and(|place| place.busy > 0 && !place.logged_in);
        !counts || may_hold_more(own, lasting, limit)
    }

    /// Whether it may have another request served beside others, with the same arguments: where nothing of its source is
    /// served, always.
    pub fn may_serve_with(&self, id: PlaceId, own: u64, lasting: u64, limit: u64) -> bool {
        let source = self.source(id);
        let first = source.is_none_or(|source| !self.served.has(source));
        first || may_hold_more(own, lasting, limit)
    }
}
