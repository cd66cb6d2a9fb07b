//! A client's place among the connections: who gives it back for another.

use super::{Deferred, Resources, State};
use crate::observe::registry::ConnectionEntry;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::overload::{PlaceId, Source};
use ekiden_model::units::Time;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

/// Idle clients that turn out to have sent a request, until one is closed all the same.
const TRIES: usize = 8;

/// One client's connection, with all that is within its TLS.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// Unset for flows out of tunnels, whose peers were invited.
    pub(super) id: OnceLock<PlaceId>,
    /// The connection's own entry.
    entry: OnceLock<Arc<ConnectionEntry>>,
    pub(super) evicted: AtomicBool,
    /// Bytes of the budget.
    pub(super) held: AtomicU64,
    /// For a connection to a server: what is left to newcomers is not for it.
    pub(super) apart: bool,
}

impl Place {
    /// For memory of something that is no client's connection.
    pub(super) fn apart() -> Self {
        Self { apart: true, ..Self::default() }
    }
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

    /// A request is served from now on, so that the connection is not closed for another.
    pub(crate) fn set_busy(&self) {
        if let Some(id) = self.place.id.get()
            && !self.busy.swap(true, Relaxed)
        {
            locked(&self.resources.state).sources.on_busy(*id);
        }
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
    pub(crate) fn inner(&self) -> Option<Self> {
        let place = self.resources.inner_place(&self.place)?;
        Some(Self::counted(&self.resources, place, true))
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
    /// A place within another connection's, as for a new client of its source that has no other.
    fn inner_place(self: &Arc<Self>, outer: &Arc<Place>) -> Option<Arc<Place>> {
        self.change(|state, deferred| {
            let id = outer.id.get().copied();
            if outer.evicted.load(SeqCst) {
                return None;
            }
            // it does not give its own place
            id.into_iter().for_each(|id| state.sources.on_busy(id));
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
            found.then(|| Arc::clone(outer))
        })
    }
}

impl State {
    /// Counts a new client from `source`; `None` where it came out of a tunnel.
    pub(super) fn take_place(&mut self, now: Time, source: Option<Source>) -> Arc<Place> {
        self.clients += 1;
        let place = Arc::new(Place::default());
        if let Some(source) = source {
            // set once, here
            let _ = place.id.set(self.sources.on_admit(now, source, Arc::clone(&place)));
        }
        place
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
            if tried < TRIES && self.has_asked(id) {
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
    fn has_asked(&self, id: PlaceId) -> bool {
        let entry = self.sources.get(id).and_then(|place| place.entry.get());
        entry.is_some_and(|entry| self.parked.contains_key(&entry.id) && entry.has_spoken())
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
            self.ending.retain(|place| place.held.load(SeqCst) > 0);
        }
        if place.held.load(SeqCst) > 0 {
            self.ending.push(place);
        }
    }
}
