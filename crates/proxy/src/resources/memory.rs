//! Memory that is counted for clients: heads, TLS and HTTP/2. Where it is short, unfinished connections of the sources
//! that hold the most of it give it back, and a newcomer of another source need not wait for that.

use super::place::{AdmissionPermit, Place};
use super::{Deferred, Resources, State};
use crate::observe::log_throttle::{LogThrottle, left_out_in_words};
use crate::observe::waiting::WaitCount;
use crate::transfer::budget::CountedMemory;
use crate::transfer::tls_session::SESSION;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::budget::Budget;
use ekiden_model::resources::overload::{PlaceId, ample_memory};
use ekiden_model::units::{Bytes, Span};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, timeout_at};

/// This part of the budget is left to newcomers of sources that hold few places, who then need not wait until others
/// have given memory back. A shortage closes connections that hold as much, so that it is not looked for at each byte.
const SPARE: u64 = 64;

/// When less than half of that is left, or less than this, connections are closed for the next newcomers: some sessions.
const SOME: u64 = 4 * SESSION as u64;

/// How often and after what time memory is asked for again: a second in all.
const RETRIES: u32 = 200;
/// The task of a closed connection ends within this. One that takes longer waits for something else, such as the hash of
/// a password: others are closed in its place.
const ENDING: Span = Span::from_millis(200);
const RETRY: Duration = Duration::from_millis(5);

/// One after another waits for memory that others give back.
#[derive(Debug, Default)]
pub(super) struct MemoryTurn {
    lock: Mutex<()>,
    /// Some was given back.
    given: Notify,
    waiting: WaitCount,
}

/// How often memory did not suffice, and when the log said so last.
#[derive(Debug, Default)]
pub(super) struct RefusedMemory {
    pub(super) times: AtomicU64,
    logged: LogThrottle,
    /// The same where a source had its share.
    share_logged: LogThrottle,
}

/// Memory from the budget of sessions; the drop returns it.
#[derive(Debug)]
pub(crate) struct HeldMemory {
    resources: Arc<Resources>,
    place: Arc<Place>,
    bytes: u64,
}

impl AdmissionPermit {
    /// Counts `bytes` of memory, as soon as unfinished connections have given them back; fails where
    /// none does.
    pub(crate) async fn hold(&self, bytes: usize) -> Option<HeldMemory> {
        let mut held = HeldMemory::none(&self.resources, &self.place);
        held.resize(bytes).await.then_some(held)
    }

    /// The same for a connection to a server, which may outlive this one and stays in the share of its source.
    pub(crate) async fn hold_apart(&self, bytes: usize) -> Option<HeldMemory> {
        if !self.resources.may_hold_more(&self.place) {
            return None;
        }
        let mut held = HeldMemory::none(&self.resources, &Arc::new(self.place.apart()));
        held.resize(bytes).await.then_some(held)
    }

    /// The same for memory that is of use and not needed, see [`HeldMemory::resize_if_free`].
    pub(crate) fn hold_if_free(&self, bytes: usize) -> Option<HeldMemory> {
        HeldMemory::none(&self.resources, &self.place).beside_if_free(bytes)
    }

    /// Whether less than an eighth of the memory is left.
    pub(crate) fn is_memory_short(&self) -> bool {
        let memory = &self.resources.memory;
        memory.left() < memory.limit() / 8
    }

    /// Whether memory is short, and its source is one of those that hold many places.
    pub(crate) fn is_large_while_short(&self) -> bool {
        let Resources { memory, state, .. } = &*self.resources;
        let short = memory.left() <= 2 * spare(memory);
        let large = |id: &PlaceId| {
            let sources = &locked(state).sources;
            // or all are alike
            sources.large() > 1 && !sources.is_small(*id)
        };
        short && self.place.id.get().is_some_and(large)
    }
}

impl HeldMemory {
    fn none(resources: &Arc<Resources>, place: &Arc<Place>) -> Self {
        Self { resources: Arc::clone(resources), place: Arc::clone(place), bytes: 0 }
    }

    /// So many of these bytes, or all, which the result gives back from now on.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        let mut part = Self::none(&self.resources, &self.place);
        part.bytes = self.bytes.min(bytes as u64);
        self.bytes -= part.bytes;
        part
    }

    /// More for the same connection, until the result is dropped: nothing yet.
    pub(crate) fn beside(&self) -> Self {
        Self::none(&self.resources, &self.place)
    }

    /// The same for `bytes`, as [`HeldMemory::resize_if_free`] counts them.
    pub(crate) fn beside_if_free(&self, bytes: usize) -> Option<Self> {
        let mut held = self.beside();
        held.resize_if_free(bytes).then_some(held)
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
        let done = ample && self.resources.take_leaving(&self.place, more, 0);
        if done {
            self.bytes = self.bytes.max(bytes);
        }
        done
    }

    fn give(&self, bytes: u64) {
        if bytes > 0 {
            self.resources.memory.give(bytes);
            // in between it counts twice, so that somebody waits a little and nobody is closed or refused
            self.place.give(bytes);
            self.resources.memory_turns.iter().for_each(|turn| turn.given.notify_one());
        }
    }
}

impl CountedMemory for HeldMemory {}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.give(self.bytes);
    }
}

/// What is left to newcomers.
pub(super) fn spare(memory: &Budget) -> u64 {
    memory.limit() / SPARE
}

impl Resources {
    /// Whether a connection may hold more beside those of other sources, which matters while memory is short.
    fn may_hold_more(&self, place: &Place) -> bool {
        if self.memory.used() <= ample_memory(self.memory.limit()) {
            return true;
        }
        let source = {
            let state = &mut *locked(&self.state);
            if state.may_hold_more(place) {
                return true;
            }
            state.counts.share_refused += 1;
            place.id.get().and_then(|id| state.sources.source(*id))
        };
        // without the lock: the log may take its time
        if let Some(source) = source
            && let Some(left_out) = self.memory_refused.share_logged.due()
        {
            let (source, left_out) = (self.peers.name_of(source), left_out_in_words(left_out));
            let (own, used) =
                (self.percent(place.held_by_source()), self.percent(self.memory.used()));
            let limit = Bytes::new(self.memory.limit());
            tracing::warn!(
                "no more memory for {source}: it holds {own} % of budgets.sessions, {limit}, and {used} % are in use{left_out}. Its clients get 503 or are closed; raise `sessions` of [budgets] for more of them"
            );
        }
        false
    }

    /// As a share of the memory.
    fn percent(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(100) / self.memory.limit().max(1)
    }

    /// No unfinished connection gives `bytes` back.
    fn refuse_memory(&self, bytes: u64) {
        self.memory_refused.times.fetch_add(1, Relaxed);
        if let Some(left_out) = self.memory_refused.logged.due() {
            let (used, left_out) = (self.percent(self.memory.used()), left_out_in_words(left_out));
            let (bytes, limit) = (Bytes::new(bytes), Bytes::new(self.memory.limit()));
            tracing::warn!(
                "no memory for {bytes} of a head, TLS or HTTP/2: {used} % of budgets.sessions, {limit}, are in use{left_out}. Clients get 503 or are closed; raise `sessions` of [budgets] for more of them"
            );
        }
    }

    /// How many wait for memory that others give back.
    pub(super) fn memory_waiting(&self) -> u64 {
        self.memory_turns.iter().map(|turn| turn.waiting.now()).sum()
    }

    fn take_leaving(&self, place: &Place, bytes: u64, spare: u64) -> bool {
        let taken = self.memory.take_leaving(bytes, spare);
        if taken {
            place.take(bytes);
        }
        taken
    }

    async fn take_memory(self: &Arc<Self>, place: &Place, bytes: u64) -> bool {
        if !self.may_hold_more(place) {
            return false;
        }
        let spare = spare(&self.memory);
        if self.take_leaving(place, bytes, spare) {
            return true;
        }
        let small = !place.apart
            && place.id.get().is_none_or(|id| locked(&self.state).sources.is_small(*id));
        let (kept, turn) = if small { (0, 0) } else { (spare, 1) };
        if self.take_leaving(place, bytes, kept) {
            // plain requests give it back soon, and nobody is closed for a few of them
            if self.memory.left() < (spare / 2).max(SOME).min(spare) {
                self.change(|state, deferred| state.free_memory(place, 0, small, deferred));
            }
            return true;
        }
        // in turn, or thousands would ask again at once
        let turn = &self.memory_turns[turn];
        let _waits = turn.waiting.enter();
        let _mine = turn.lock.lock().await;
        for _ in 0..RETRIES {
            if place.evicted.load(SeqCst) {
                return false;
            }
            if self.take_leaving(place, bytes, kept) {
                return true;
            }
            if !self.change(|state, deferred| state.free_memory(place, bytes, small, deferred)) {
                break;
            }
            // closed connections give it back as their tasks end
            let again = Instant::now() + RETRY;
            while timeout_at(again, turn.given.notified()).await.is_ok() {
                if self.take_leaving(place, bytes, kept) {
                    return true;
                }
            }
        }
        self.refuse_memory(bytes);
        false
    }
}

impl State {
    /// Closes the largest unfinished connections of the sources that hold the most memory, unless closed ones are about
    /// to give back enough for `wanted` and for newcomers; whether `wanted` will be free for `place`. Large sources give
    /// first. Small ones keep what is left to newcomers, but for each other.
    fn free_memory(
        &mut self,
        place: &Place,
        wanted: u64,
        small: bool,
        deferred: &mut Deferred,
    ) -> bool {
        let now = clock::now();
        self.ending.retain(|(since, place)| place.held() > 0 && now < *since + ENDING);
        let ending: u64 = self.ending.iter().map(|(_, place)| place.held()).sum();
        let mut free = self.memory.left().saturating_add(ending);
        let spare = spare(&self.memory);
        let all = wanted.saturating_add(spare);
        if free < all {
            let (missing, large) = ((all - free).max(spare), self.sources.large());
            free += self.close_heaviest(missing, large, place, deferred);
        }
        let mine = if small { wanted } else { all };
        if free < mine {
            let missing = mine - free;
            let held = |place: &Arc<Place>| place.held();
            if small || self.sources.held_by_silent(held) >= missing.saturating_add(spare) {
                free += self.close_heaviest(missing, 0, place, deferred);
            }
        }
        free >= mine
    }

    /// Closes unfinished connections of sources with `least` places or more, but for `place`; what they will give back.
    fn close_heaviest(
        &mut self,
        missing: u64,
        least: u64,
        place: &Place,
        deferred: &mut Deferred,
    ) -> u64 {
        let held = |other: &Arc<Place>| match std::ptr::eq(Arc::as_ptr(other), place) {
            true => 0,
            false => other.held(),
        };
        let mut freed = 0;
        for id in self.sources.heaviest(missing, least, held) {
            freed += self.sources.get(id).map_or(0, |place| place.held());
            self.counts.unfinished_evicted += 1;
            self.end_place(id, deferred);
        }
        freed
    }
}

#[cfg(test)]
mod tests;
