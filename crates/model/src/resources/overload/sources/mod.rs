//! Places by source address: who gives one back for whom, and the places kept for accounts.
//!
//! A connection without a log-in counts for its source. It is *silent* while no request of it is
//! served: nothing has arrived, or a handshake or a head is unfinished, or it idles between two
//! requests. Where all places are taken, a newcomer takes the place of the longest silent
//! connection of the source that holds the most (longest queue drop: Suter et al., INFOCOM 1998;
//! RFC 4987 §3.4 for the oldest). With `h` the places of the newcomer's source and `m` those of
//! the largest with a silent connection, this happens where
//!
//! ```text
//! m ≥ h + 2, or h = 0
//! ```
//! so that no swap makes the division less even, and two equal sources take nothing from each
//! other. Where accounts exist, strangers hold at most [`SourcesConfig::strangers`] places; the
//! others are for connections that have logged in, and for newcomers of sources from which an
//! account has logged in. How many places a source may have in service, `served.rs` says: of all
//! places, and of those of strangers. A peer is known for ever, and its flows are requests: never
//! silent, and in only where they may be served.

mod memory;
mod shares;

use super::Source;
use super::served::Served;
use crate::slab::{Handle, List, Slab};
use crate::units::{Span, Time};
use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Reverse;

/// The limits of [`Sources`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourcesConfig {
    /// The most places of connections that have not logged in, from sources not known.
    pub strangers: u64,
    /// How long a source stays known after a log-in from it.
    pub remembered: Span,
    /// The most known sources; beyond, the one is forgotten whose last log-in is the oldest.
    pub most_known: usize,
}

impl Default for SourcesConfig {
    /// No places are kept; a source is known for a day.
    fn default() -> Self {
        Self { strangers: u64::MAX, remembered: Span::from_secs(86_400), most_known: 4_096 }
    }
}

/// A connection's entry, until it is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlaceId(Handle);

/// A look at the sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SourcesSnapshot {
    /// Places of connections that have not logged in, from sources not known.
    pub strangers: u64,
    /// Places of connections that have logged in.
    pub logged_in: u64,
    /// Sources that hold a place without a log-in.
    pub sources: usize,
    /// The one that holds the most places, silent or not, and how many.
    pub largest: Option<(Source, u64)>,
    /// Sources from which an account has logged in.
    pub known: usize,
}

#[derive(Debug, Clone)]
struct Place<T> {
    source: Source,
    who: T,
    /// The connection, and those within it.
    places: u64,
    /// Requests that are served now.
    busy: u32,
    logged_in: bool,
    /// Its turn among the silent; of two, the lower is silent for longer.
    since: u64,
}

impl<T> Place<T> {
    /// Places in service.
    const fn served(&self) -> u64 {
        if self.busy > 0 { self.places } else { 0 }
    }

    /// Of those, places without a log-in.
    const fn served_to_strangers(&self) -> u64 {
        if self.logged_in { 0 } else { self.served() }
    }
}

#[derive(Debug, Clone, Copy)]
struct Holder {
    /// Places without a log-in.
    held: u64,
    /// Of those, places in service.
    served: u64,
    /// Its silent connections, the longest silent first.
    silent: List,
    known: bool,
}

/// Holders with a silent connection: the largest last, of equals the longest silent.
type Order = BTreeSet<(u64, Reverse<u64>, Source)>;

/// The places of all connections by their sources. Each event takes a time logarithmic in the number of
/// sources; the memory is proportional to the places held and to `most_known`.
#[derive(Debug, Clone)]
pub struct Sources<T> {
    config: SourcesConfig,
    places: Slab<Place<T>, 1>,
    holders: BTreeMap<Source, Holder>,
    /// Of strangers, and of known sources.
    orders: [Order; 2],
    /// How many addresses hold so many places without a log-in.
    sizes: BTreeMap<u64, usize>,
    known: BTreeMap<Source, u64>,
    log_ins: BTreeMap<u64, (Source, Time)>,
    strangers: u64,
    /// Of those, places in service.
    strangers_served: u64,
    logged_in: u64,
    /// All places, with a log-in and without.
    places_held: u64,
    served: Served,
    turns: u64,
}

impl<T> Sources<T> {
    /// Nobody holds a place.
    pub fn new(config: SourcesConfig) -> Self {
        Self {
            config,
            places: Slab::with_capacity(0),
            holders: BTreeMap::new(),
            orders: [Order::new(), Order::new()],
            sizes: BTreeMap::new(),
            known: BTreeMap::new(),
            log_ins: BTreeMap::new(),
            strangers: 0,
            strangers_served: 0,
            logged_in: 0,
            places_held: 0,
            served: Served::default(),
            turns: 0,
        }
    }

    /// Sets other limits; strangers beyond a lower one keep their places.
    pub const fn set_config(&mut self, config: SourcesConfig) {
        self.config = config;
    }

    /// Whether the places kept for accounts leave one for a newcomer of this source.
    pub fn has_room(&self, now: Time, source: Source) -> bool {
        self.strangers < self.config.strangers || self.is_known(now, source)
    }

    /// Whether a connection within it finds room beside the places kept for accounts.
    pub fn has_room_within(&self, id: PlaceId) -> bool {
        let stranger = self.places.get(id.0).is_some_and(|place| {
            let known = self.holders.get(&place.source).is_some_and(|holder| holder.known);
            !place.logged_in && !known
        });
        !stranger || self.strangers < self.config.strangers
    }

    /// Whether an account has logged in from this source, or it was invited.
    pub fn is_known(&self, now: Time, source: Source) -> bool {
        let last = self.known.get(&source).and_then(|turn| self.log_ins.get(turn));
        let remembered = last.is_some_and(|(_, at)| now.since(*at) < self.config.remembered);
        remembered || source.is_invited()
    }

    /// A connection got a place; it is silent, or busy at once where it is a peer's flow.
    pub fn on_admit(&mut self, now: Time, source: Source, who: T) -> PlaceId {
        self.forget(now);
        let since = self.turn();
        let place = Place { source, who, places: 1, busy: 0, logged_in: false, since };
        let handle = self.places.insert(place);
        self.places_held += 1;
        self.change(source, |holder, places| {
            holder.held += 1;
            holder.silent.push_back(places, handle);
        });
        if source.is_invited() {
            self.on_busy(PlaceId(handle));
        }
        PlaceId(handle)
    }

    /// A request of it is served; whether it could be closed for others until now.
    pub fn on_busy(&mut self, id: PlaceId) -> bool {
        let Some(place) = self.places.get(id.0) else { return false };
        let was_silent = place.busy == 0 && !place.logged_in;
        let source = place.source;
        self.alter(id, |place| place.busy += 1);
        self.change(source, |holder, places| holder.silent.unlink(places, id.0));
        was_silent
    }

    /// A request of it has ended, or bytes have arrived between two: its silence begins anew.
    pub fn on_silent(&mut self, id: PlaceId, served: bool) {
        let since = self.turn();
        self.alter(id, |place| place.busy -= place.busy.min(u32::from(served)));
        let Some(place) = self.places.get(id.0) else { return };
        let (source, goes_on) = (place.source, place.busy > 0 || place.logged_in);
        if goes_on {
            return;
        }
        self.change(source, |holder, places| {
            holder.silent.unlink(places, id.0);
            places.get_mut(id.0).into_iter().for_each(|place| place.since = since);
            holder.silent.push_back(places, id.0);
        });
    }

    /// A connection within it took a place.
    pub fn on_inner(&mut self, id: PlaceId) {
        self.weigh(id, true);
    }

    /// A connection within it gave its place back.
    pub fn on_inner_closed(&mut self, id: PlaceId) {
        self.weigh(id, false);
    }

    fn weigh(&mut self, id: PlaceId, more: bool) {
        let add = |n: u64| if more { n + 1 } else { n.saturating_sub(1) };
        self.alter(id, |place| place.places = add(place.places));
        let Some(place) = self.places.get(id.0) else { return };
        let source = place.source;
        self.places_held = add(self.places_held);
        match place.logged_in {
            true => self.logged_in = add(self.logged_in),
            false => {
                self.change(source, |holder, _| holder.held = add(holder.held));
            }
        }
    }

    /// It has logged in: it counts as a stranger no longer, and its source is known.
    pub fn on_log_in(&mut self, now: Time, id: PlaceId) {
        let Some(place) = self.places.get(id.0) else { return };
        let (source, weight, before) = (place.source, place.places, place.logged_in);
        self.alter(id, |place| place.logged_in = true);
        self.remember(now, source);
        if !before {
            self.logged_in += weight;
        }
        self.change(source, |holder, places| {
            holder.known = true;
            if !before {
                holder.silent.unlink(places, id.0);
                holder.held -= weight;
            }
        });
    }

    /// The connection is gone; `None` when it was removed before.
    pub fn on_close(&mut self, id: PlaceId) -> Option<T> {
        self.alter(id, |place| place.busy = 0);
        let place = self.places.get(id.0)?;
        let (source, weight) = (place.source, place.places);
        self.places_held -= weight;
        if place.logged_in {
            self.logged_in -= weight;
        } else {
            self.change(source, |holder, places| {
                holder.silent.unlink(places, id.0);
                holder.held -= weight;
            });
        }
        self.places.remove(id.0).map(|place| place.who)
    }

    /// All places of all sources.
    pub const fn places_held(&self) -> u64 {
        self.places_held
    }

    /// The silent connection that gives its place to a newcomer of `source`, or to one of none;
    /// `strangers` asks for one of sources not known.
    pub fn victim(&self, source: Option<Source>, strangers: bool) -> Option<PlaceId> {
        let held = source.map_or(0, |source| self.held(source));
        self.victim_beside(held, strangers)
    }

    /// The same, for a newcomer whose source holds `held` places.
    pub fn victim_beside(&self, held: u64, strangers: bool) -> Option<PlaceId> {
        let orders = &self.orders[..if strangers { 1 } else { 2 }];
        let (most, _, source) = orders.iter().filter_map(BTreeSet::last).max()?;
        if *most < held + 2 && held > 0 {
            return None;
        }
        let holder = self.holders.get(source)?;
        holder.silent.head(&self.places).map(PlaceId)
    }

    /// The longest silent connection of this source.
    pub fn longest_silent(&self, source: Source) -> Option<PlaceId> {
        self.holders.get(&source)?.silent.head(&self.places).map(PlaceId)
    }

    /// Whose place it is.
    pub fn get(&self, id: PlaceId) -> Option<&T> {
        self.places.get(id.0).map(|place| &place.who)
    }

    /// The source of a place.
    pub fn source(&self, id: PlaceId) -> Option<Source> {
        self.places.get(id.0).map(|place| place.source)
    }

    /// The places of this source without a log-in.
    pub fn held(&self, source: Source) -> u64 {
        self.holders.get(&source).map_or(0, |holder| holder.held)
    }

    /// A source is large from so many places on: half of the largest address's. Flows of peers hold none of that memory.
    pub fn large(&self) -> u64 {
        self.sizes.last_key_value().map_or(0, |(most, _)| most.div_ceil(2))
    }

    /// Whether its source is not large and nothing of it is served yet, or it has logged in: what is kept for newcomers is
    /// for such.
    pub fn is_small(&self, id: PlaceId) -> bool {
        let place = self.places.get(id.0);
        place.is_some_and(|place| {
            place.logged_in || (place.busy == 0 && self.held(place.source) < self.large())
        })
    }

    /// One look.
    pub fn snapshot(&self) -> SourcesSnapshot {
        let held = self.holders.iter().map(|(source, holder)| (*source, holder.held));
        SourcesSnapshot {
            strangers: self.strangers,
            logged_in: self.logged_in,
            sources: self.holders.len(),
            largest: held.max_by_key(|(_, held)| *held),
            known: self.known.len(),
        }
    }

    const fn turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// Changes a place, and what of it is in service.
    fn alter(&mut self, id: PlaceId, work: impl FnOnce(&mut Place<T>)) {
        let Some(place) = self.places.get_mut(id.0) else { return };
        let (source, all, own) = (place.source, place.served(), place.served_to_strangers());
        work(place);
        let (all_now, own_now) = (place.served(), place.served_to_strangers());
        self.served.change(source, all, all_now);
        if own != own_now {
            self.change(source, |holder, _| {
                holder.served = holder.served.saturating_sub(own) + own_now;
            });
        }
    }

    /// Changes a holder, and all that is derived from it.
    fn change(&mut self, source: Source, work: impl FnOnce(&mut Holder, &mut Slab<Place<T>, 1>)) {
        let known = source.is_invited() || self.known.contains_key(&source);
        let new = Holder { held: 0, served: 0, silent: List::new(0), known };
        let holder = self.holders.entry(source).or_insert(new);
        let place = |holder: &Holder, places: &Slab<Place<T>, 1>| {
            let first = places.get(holder.silent.head(places)?)?;
            Some((holder.held, Reverse(first.since), source))
        };
        if let Some(key) = place(holder, &self.places) {
            self.orders[usize::from(holder.known)].remove(&key);
        }
        let before = holder.held;
        if !holder.known {
            self.strangers -= before;
            self.strangers_served -= holder.served;
        }
        work(holder, &mut self.places);
        if !holder.known {
            self.strangers += holder.held;
            self.strangers_served += holder.served;
        }
        if let Some(key) = place(holder, &self.places) {
            self.orders[usize::from(holder.known)].insert(key);
        }
        let after = holder.held;
        if after == 0 {
            self.holders.remove(&source);
        }
        if after != before && !source.is_invited() {
            self.count_size(before, false);
            self.count_size(after, true);
        }
    }

    fn count_size(&mut self, held: u64, more: bool) {
        if held == 0 {
            return;
        }
        let sources = self.sizes.entry(held).or_default();
        *sources = if more { *sources + 1 } else { sources.saturating_sub(1) };
        if *sources == 0 {
            self.sizes.remove(&held);
        }
    }

    fn remember(&mut self, now: Time, source: Source) {
        let turn = self.turn();
        if let Some(before) = self.known.insert(source, turn) {
            self.log_ins.remove(&before);
        }
        self.log_ins.insert(turn, (source, now));
        self.forget(now);
    }

    fn forget(&mut self, now: Time) {
        while let Some((_, (source, at))) = self.log_ins.first_key_value() {
            let old = now.since(*at) >= self.config.remembered;
            if !old && self.known.len() <= self.config.most_known {
                return;
            }
            self.known.remove(source);
            self.log_ins.pop_first();
        }
    }
}
