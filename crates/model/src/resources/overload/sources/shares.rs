//! Which sources may have more in service beside others: of all places, and of those of strangers.

use super::{PlaceId, Source, Sources};
use crate::resources::overload::served::leaves_room;

impl<T> Sources<T> {
    /// Whether another request of this connection's source may be served, of `most` places for all sources.
    pub fn may_serve(&self, id: PlaceId, most: u64) -> bool {
        self.source(id).is_none_or(|source| self.may_begin(source, most))
    }

    /// The same for a source, before its connection has a place.
    pub fn may_begin(&self, source: Source, most: u64) -> bool {
        self.served.may(source, most) && self.leaves_strangers_room(source)
    }

    /// Whether a connection may have another within it. Of one in service that is in service at once. One with a log-in
    /// has its account's limits.
    pub fn may_hold_within(&self, id: PlaceId, most: u64) -> bool {
        let place = self.places.get(id.0);
        place.is_none_or(|place| place.served_to_strangers() == 0 || self.may_serve(id, most))
    }

    /// The share among strangers, whose places are fewer where some are kept for accounts.
    fn leaves_strangers_room(&self, source: Source) -> bool {
        let holder = self.holders.get(&source);
        let known = source.is_invited() || self.known.contains_key(&source);
        let (known, own) = holder.map_or((known, 0), |holder| (holder.known, holder.served));
        let most = self.config.strangers;
        known || leaves_room(own, most.saturating_sub(self.strangers_served), most)
    }
}
