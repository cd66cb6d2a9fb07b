//! Memory that is counted for a client's connection, and who gives it back for another.
//!
//! Where the budget is spent, connections wait for it in an order: of the sources that hold places, the one with the
//! fewest goes first, so that a newcomer does not wait behind thousands of connections of a few addresses.

use super::place::Place;
use super::{Deferred, Resources, State};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::units::{Span, Time};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

/// A shortage of memory closes connections that hold this part of the budget, so that it is not
/// looked for at each byte.
const AT_ONCE: u64 = 64;

/// How often and after what time memory is asked for again: a second in all.
const RETRIES: u32 = 200;
const RETRY: Duration = Duration::from_millis(5);

/// How long one waits for its turn, below the patience of common clients.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long after a search that found nothing to take nobody with as many places searches again: a search looks at all
/// connections.
const NO_SEARCH: Span = Span::from_millis(5);

/// Memory from the budget of sessions; the drop returns it.
#[derive(Debug)]
pub(crate) struct HeldMemory {
    resources: Arc<Resources>,
    place: Arc<Place>,
    bytes: u64,
}

/// When a search found nothing to take, for how many places of a source, and for a connection that held how much: one
/// that holds as much finds nothing, either.
#[derive(Debug, Clone, Copy)]
pub(super) struct VainSearch {
    at: Time,
    places: u64,
    held: u64,
}

impl Default for VainSearch {
    fn default() -> Self {
        Self { at: Time::ZERO, places: u64::MAX, held: u64::MAX }
    }
}

impl HeldMemory {
    /// Counts `bytes` for a connection.
    pub(super) async fn new(
        resources: &Arc<Resources>,
        place: Arc<Place>,
        bytes: usize,
    ) -> Option<Self> {
        let mut held = Self { resources: Arc::clone(resources), place, bytes: 0 };
        held.resize(bytes).await.then_some(held)
    }

    /// Counts `bytes` in all from now on; `false` where there are no more, and then as many as before.
    pub(crate) async fn resize(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 && !self.resources.take_memory(&self.place, more).await {
            return false;
        }
        self.give(self.bytes.saturating_sub(bytes));
        self.bytes = bytes;
        true
    }

    /// The same for memory that is of use and not needed: nobody is closed for it, and half of the
    /// budget is left to those who need it.
    pub(crate) fn resize_if_free(&mut self, bytes: usize) -> bool {
        let (bytes, memory) = (bytes as u64, &self.resources.memory);
        let more = bytes.saturating_sub(self.bytes);
        let ample = memory.used().saturating_add(more) <= memory.limit() / 2;
        let done = ample && self.resources.take_free(&self.place, more);
        if done {
            self.bytes = self.bytes.max(bytes);
        }
        done
    }

    fn give(&self, bytes: u64) {
        self.place.held.fetch_sub(bytes, SeqCst);
        self.resources.memory.give(bytes);
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.give(self.bytes);
    }
}

impl Resources {
    /// Counts `bytes` of memory for something that outlives its client, as soon as unfinished
    /// connections have given them back; fails where none does.
    pub(crate) async fn hold_apart(self: &Arc<Self>, bytes: usize) -> Option<HeldMemory> {
        HeldMemory::new(self, Arc::default(), bytes).await
    }

    fn take_free(&self, place: &Place, bytes: u64) -> bool {
        let taken = self.memory.take(bytes);
        if taken {
            place.held.fetch_add(bytes, SeqCst);
        }
        taken
    }

    async fn take_memory(self: &Arc<Self>, place: &Place, bytes: u64) -> bool {
        // nothing is taken from under those who wait
        if self.memory_turns.is_free() && self.take_free(place, bytes) {
            return true;
        }
        let taken = self.take_memory_in_turn(place, bytes).await;
        if !taken {
            self.memory_refused.fetch_add(1, Relaxed);
        }
        taken
    }

    async fn take_memory_in_turn(self: &Arc<Self>, place: &Place, bytes: u64) -> bool {
        let places = locked(&self.state).places_beside(place);
        let turn = self.memory_turns.turn(places);
        let Ok(_turn) = tokio::time::timeout(PATIENCE, turn).await else { return false };
        for _ in 0..RETRIES {
            if place.evicted.load(SeqCst) {
                return false;
            }
            if self.take_free(place, bytes) {
                return true;
            }
            if !self.change(|state, deferred| state.free_memory(place, bytes, deferred)) {
                return false;
            }
            // closed connections give it back as their tasks end
            tokio::time::sleep(RETRY).await;
        }
        false
    }
}

impl State {
    /// The places of a connection's source; none where it has logged in or came out of a tunnel.
    fn places_beside(&self, place: &Place) -> u64 {
        place.id.get().map_or(0, |id| self.sources.held_beside(*id))
    }

    /// Closes the largest unfinished connections of the sources that hold the most memory, unless closed
    /// ones are about to give back enough; whether `wanted` will be free for this connection.
    fn free_memory(&mut self, place: &Place, wanted: u64, deferred: &mut Deferred) -> bool {
        self.ending.retain(|place| place.held.load(SeqCst) > 0);
        let ending: u64 = self.ending.iter().map(|place| place.held.load(SeqCst)).sum();
        let free = self.memory.limit().saturating_sub(self.memory.used());
        let missing = wanted.saturating_sub(free.saturating_add(ending));
        if missing == 0 {
            return true;
        }
        let (now, places) = (clock::now(), self.places_beside(place));
        let (own, vain) = (place.held.load(SeqCst), &self.vain_search);
        if places >= vain.places && own >= vain.held && now.since(vain.at) < NO_SEARCH {
            return false;
        }
        let most = missing.max(self.memory.limit() / AT_ONCE);
        let asks = place.id.get().map(|id| (*id, wanted));
        let held = |place: &Arc<Place>| place.held.load(SeqCst);
        let chosen = self.sources.heaviest(most, asks, held);
        let found: u64 = chosen.iter().filter_map(|id| self.sources.get(*id)).map(held).sum();
        if found < missing {
            self.vain_search = VainSearch { at: now, places, held: own };
            return false;
        }
        for id in chosen {
            self.counts.unfinished_evicted += 1;
            self.end_place(id, deferred);
        }
        true
    }
}
