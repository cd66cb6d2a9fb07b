//! A client's place among the connections: who gives it back for another.

use super::arrival::NoPlace;
use super::{Deferred, Resources, State};
use crate::observe::registry::ConnectionEntry;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::overload::{PlaceId, Source, ample_memory};
use ekiden_model::units::{Span, Time};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};

/// Idle clients that turn out to have sent a request, until one is closed all the same.
const TRIES: usize = 8;

/// How often the memory of silent connections is added up, while it is short.
const LOOKED: Span = Span::from_millis(100);

/// What all connections of a source hold, in bytes.
#[derive(Debug, Default)]
pub(super) struct SourceMemory {
    /// Of `budgets.sessions`.
    sessions: AtomicU64,
    /// Of `budgets.memory`.
    transit: Arc<AtomicU64>,
}

/// One client's connection, with all that is within its TLS.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// Unset where it is apart.
    pub(super) id: OnceLock<PlaceId>,
    /// The connection's own entry.
    entry: OnceLock<Arc<ConnectionEntry>>,
    /// The session that idled last between two requests: its own, or one within its TLS.
    idled: Mutex<Option<Arc<ConnectionEntry>>>,
    pub(super) evicted: AtomicBool,
    /// Bytes of the budget.
    held: AtomicU64,
    /// The same of all connections of its source.
    held_by_source: Arc<SourceMemory>,
    /// For a connection to a server: what is left to newcomers is not for it.
    pub(super) apart: bool,
}

impl Place {
    /// For memory of a connection to a server, in the share of the same source.
    pub(super) fn apart(&self) -> Self {
        let held_by_source = Arc::clone(&self.held_by_source);
        Self { apart: true, held_by_source, ..Self::default() }
    }

    /// A session waits for its next request.
    pub(super) fn on_idle(&self, entry: &Arc<ConnectionEntry>) {
        *locked(&self.idled) = Some(Arc::clone(entry));
    }

    pub(super) fn held(&self) -> u64 {
        self.held.load(SeqCst)
    }

    pub(super) fn held_by_source(&self) -> u64 {
        self.held_by_source.sessions.load(SeqCst)
    }

    pub(super) fn take(&self, bytes: u64) {
        self.held.fetch_add(bytes, SeqCst);
        self.held_by_source.sessions.fetch_add(bytes, SeqCst);
    }

    pub(super) fn give(&self, bytes: u64) {
        self.held.fetch_sub(bytes, SeqCst);
        self.held_by_source.sessions.fetch_sub(bytes, SeqCst);
    }
}

/// Why a request is not served: its source has as many in service, or as much memory, as is left to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ShareUsed {
    #[error(
        "your address has as many requests in service as it may have beside others; try again when one has ended"
    )]
    Places,
    #[error(
        "your address uses as much memory as it may use beside others; try again when one of its connections has ended"
    )]
    Memory,
}

/// A client's share of the connection limit. Its drop makes room for another client.
#[derive(Debug)]
pub(crate) struct AdmissionPermit {
    pub(super) resources: Arc<Resources>,
    pub(super) place: Arc<Place>,
    /// Within another connection's TLS, whose place it shares.
    inner: bool,
    entry: OnceLock<Arc<ConnectionEntry>>,
    /// A request is served.
    busy: AtomicBool,
    logged_in: AtomicBool,
}

impl AdmissionPermit {
    /// A permit that was counted before.
    pub(super) fn counted(resources: &Arc<Resources>, place: Arc<Place>, inner: bool) -> Self {
        Self {
            resources: Arc::clone(resources),
            place,
            inner,
            entry: OnceLock::new(),
            busy: AtomicBool::new(false),
            logged_in: AtomicBool::new(false),
        }
    }

    /// What its source holds of bytes in transit.
    pub(crate) fn in_transit(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.place.held_by_source.transit)
    }

    pub(crate) fn assign_to(&self, entry: &Arc<ConnectionEntry>) {
        // set once, at the beginning
        let _ = self.entry.set(Arc::clone(entry));
        // the place is the outer connection's, and stays when one within it is closed
        if self.inner {
            return;
        }
        entry.set_place(self.place.id.get().copied());
        let evicted = {
            // an eviction either sees the entry or was before
            let state = &mut *locked(&self.resources.state);
            if let Some(leg) = state.legs.get_mut(entry.legs[0].load(Relaxed)) {
                leg.set_owner(entry);
            }
            let _ = self.place.entry.set(Arc::clone(entry));
            self.place.evicted.load(SeqCst)
        };
        if evicted {
            entry.evicted.store(true, Relaxed);
            entry.end();
        }
    }

    /// A request is served from now on, so that the connection is not closed for another. Without a log-in it is not
    /// where its address would leave too little to others.
    pub(crate) fn serve(&self) -> Result<(), ShareUsed> {
        let Some(id) = self.place.id.get().filter(|_| !self.busy.load(Relaxed)) else {
            return Ok(());
        };
        let resources = &self.resources;
        let mut state = locked(&resources.state);
        let most = state.shared_places();
        let used = if self.logged_in.load(Relaxed) {
            // its account's limits are for it
            None
        } else if !state.sources.may_serve(*id, most) {
            Some(ShareUsed::Places)
        } else {
            (!state.has_memory_to_serve(*id, &self.place)).then_some(ShareUsed::Memory)
        };
        let Some(used) = used else {
            self.busy.store(true, Relaxed);
            if state.sources.on_busy(*id) {
                // what it holds cannot be had back any more, whatever the last look saw
                state.silent_memory = state.silent_memory.saturating_sub(self.place.held());
            }
            return Ok(());
        };
        state.counts.share_refused += 1;
        Err(used)
    }

    /// No request is served any more.
    pub(crate) fn set_silent(&self) {
        self.resources.change(|state, _| self.be_silent(state));
    }

    pub(super) fn be_silent(&self, state: &mut State) {
        if let Some(id) = self.place.id.get() {
            state.sources.on_silent(*id, self.busy.swap(false, Relaxed));
        }
    }

    /// An account has logged in.
    pub(crate) fn set_logged_in(&self) {
        if let Some(id) = self.place.id.get()
            && !self.logged_in.swap(true, Relaxed)
        {
            self.resources.change(|state, deferred| {
                state.sources.on_log_in(clock::now(), *id);
                state.serve(deferred);
            });
        }
    }

    /// A permit for a session within this connection.
    pub(crate) fn inner(&self) -> Result<Self, NoPlace> {
        let place = self.resources.inner_place(&self.place)?;
        Ok(Self::counted(&self.resources, place, true))
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        let entry = self.entry.get();
        self.resources.change(|state, deferred| {
            if let Some(entry) = entry {
                state.unpark(entry.id);
            }
            // the permit of an evicted connection was passed on at its eviction
            let evicted = entry.is_some_and(|entry| entry.evicted.load(Relaxed))
                || (!self.inner && self.place.evicted.load(SeqCst));
            // a tick that found it silent before parks it no more
            entry.inspect(|entry| entry.evicted.store(true, Relaxed));
            if !evicted {
                state.clients -= 1;
            }
            // finds nothing after an eviction
            if let Some(id) = self.place.id.get() {
                if self.inner {
                    self.be_silent(state);
                    state.sources.on_inner_closed(*id);
                } else {
                    state.sources.on_close(*id);
                }
            }
            state.serve(deferred);
        });
    }
}

impl Resources {
    /// What a source holds of bytes in transit, whether it has connections or not.
    pub(crate) fn in_transit(&self, source: Source) -> Arc<AtomicU64> {
        Arc::clone(&locked(&self.state).memory_of(source).transit)
    }

    /// A place within another connection's, as for a new client of its source that has no other.
    fn inner_place(self: &Arc<Self>, outer: &Arc<Place>) -> Result<Arc<Place>, NoPlace> {
        self.change(|state, deferred| {
            let id = outer.id.get().copied();
            if outer.evicted.load(SeqCst) {
                return Err(NoPlace::Room);
            }
            let most = state.shared_places();
            if !id.is_none_or(|id| state.sources.may_hold_within(id, most)) {
                state.counts.share_refused += 1;
                return Err(NoPlace::Share);
            }
            // it does not give its own place
            if let Some(id) = id {
                state.sources.on_busy(id);
            }
            let room = id.is_none_or(|id| state.sources.has_room_within(id));
            let held = id.and_then(|id| state.sources.source(id));
            let held = held.map_or(0, |source| state.sources.held(source).saturating_sub(1));
            state.level();
            let mut found = room && !state.pressure.low();
            found = found || state.evict_silent(held, !room, deferred);
            if !found && room {
                if state.settings.evicts() {
                    state.evict(1, deferred);
                }
                found = !state.is_full();
            }
            if found {
                state.clients += 1;
                id.into_iter().for_each(|id| state.sources.on_inner(id));
            }
            id.into_iter().for_each(|id| state.sources.on_silent(id, true));
            found.then(|| Arc::clone(outer)).ok_or(NoPlace::Room)
        })
    }
}

impl State {
    /// Counts a new client from `source`. A peer's flow is served from now on to its end.
    pub(super) fn take_place(&mut self, now: Time, source: Source) -> Arc<Place> {
        self.clients += 1;
        let place = Arc::new(Place { held_by_source: self.memory_of(source), ..Place::default() });
        // set once, here
        let _ = place.id.set(self.sources.on_admit(now, source, Arc::clone(&place)));
        place
    }

    /// Places that sources share: all but those of sockets beside clients.
    pub(super) fn shared_places(&self) -> u64 {
        let others = (self.clients + self.spares).saturating_sub(self.sources.places_held());
        self.settings.connections.saturating_sub(others)
    }

    /// What a source holds.
    fn memory_of(&mut self, source: Source) -> Arc<SourceMemory> {
        let held = Arc::clone(self.memory_by_source.entry(source).or_default());
        // now and then: those of which nothing is left
        if self.memory_by_source.len() > 2 * self.memory_kept {
            self.memory_by_source.retain(|_, held| {
                Arc::strong_count(held) > 1 || Arc::strong_count(&held.transit) > 1
            });
            self.memory_kept = self.memory_by_source.len().max(64);
        }
        held
    }

    /// What cannot be had back of the memory: what is held by connections of which a request is served.
    fn lasting_memory(&mut self) -> u64 {
        // all silent connections are looked at
        let now = clock::now();
        if self.silent_looked.is_none_or(|looked| now >= looked + LOOKED) {
            let silent = self.sources.held_by_silent(|place| place.held());
            (self.silent_looked, self.silent_memory) = (Some(now), silent);
        }
        self.memory.used().saturating_sub(self.silent_memory)
    }

    /// Whether memory allows another request of this source.
    fn has_memory_to_serve(&mut self, id: PlaceId, place: &Place) -> bool {
        let (limit, used) = (self.memory.limit(), self.memory.used());
        used <= ample_memory(limit) || {
            let lasting = self.lasting_memory();
            self.sources.may_serve_with(id, place.held_by_source(), lasting, limit)
        }
    }

    /// Whether a connection may hold more memory beside those of other sources.
    pub(super) fn may_hold_more(&mut self, place: &Place) -> bool {
        let Some(id) = place.id.get() else { return true };
        let limit = self.memory.limit();
        // all of it first: that may suffice, and takes no time
        let (own, used) = (place.held_by_source(), self.memory.used());
        self.sources.may_hold_more(*id, own, used, limit) || {
            let lasting = self.lasting_memory();
            self.sources.may_hold_more(*id, own, lasting, limit)
        }
    }

    /// Closes the silent connection that gives its place to one whose source holds `held`; `strangers`:
    /// one of a source without an account.
    pub(super) fn evict_silent(
        &mut self,
        held: u64,
        strangers: bool,
        deferred: &mut Deferred,
    ) -> bool {
        for tried in 0..=TRIES {
            let Some(id) = self.sources.victim_beside(held, strangers) else { return false };
            if tried < TRIES && self.has_asked(id, deferred) {
                self.sources.on_silent(id, false);
                continue;
            }
            self.counts.silent_evicted += 1;
            self.end_place(id, deferred);
            return true;
        }
        false
    }

    /// Whether it idled between two requests, and the next has arrived unread.
    fn has_asked(&self, id: PlaceId, deferred: &mut Deferred) -> bool {
        let idled = self.sources.get(id).and_then(|place| locked(&place.idled).clone());
        idled.filter(|entry| self.parked.contains_key(&entry.id)).is_some_and(|entry| {
            deferred.sessions.extend(entry.sessions());
            entry.has_spoken()
        })
    }

    pub(super) fn end_place(&mut self, id: PlaceId, deferred: &mut Deferred) {
        let Some(place) = self.sources.on_close(id) else { return };
        place.evicted.store(true, SeqCst);
        self.clients -= 1;
        if let Some(entry) = place.entry.get() {
            entry.evicted.store(true, Relaxed);
            self.unpark(entry.id);
            deferred.ended.push(Arc::clone(entry));
        }
        // now and then, or those that have ended would be kept until memory is short
        if self.ending.len().is_power_of_two() {
            self.ending.retain(|(_, place)| place.held() > 0);
        }
        if place.held() > 0 {
            self.ending.push((clock::now(), place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use std::net::{IpAddr, Ipv4Addr};

    #[test]
    fn a_tunnel_that_ended_after_it_was_found_silent_is_not_kept_as_idle() {
        let resources = Resources::new(&Settings::default(), false).0;
        let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let [(_stays, silent), (ends, ended)] = [1, 2].map(|id| {
            let place = locked(&resources.state).take_place(clock::now(), client.into());
            let permit = AdmissionPermit::counted(&resources, place, false);
            // within TLS at both ends: no leg of it is managed
            let entry = Arc::new(ConnectionEntry::new(id, (client, 5_000).into(), None));
            permit.assign_to(&entry);
            (permit, entry)
        });
        drop(ends);
        // as the tick does with those that it found a while ago
        for entry in [silent, ended] {
            locked(&resources.state).park_tunnel(clock::now(), entry);
        }
        assert_eq!(resources.status(false).1.tunnels, 1);
    }
}
