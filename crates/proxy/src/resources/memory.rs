//! Memory that is counted for clients: heads, TLS and HTTP/2. Where it is short, unfinished connections of the sources
//! that hold the most of it give it back, and a newcomer of another source need not wait for that.

use super::place::{AdmissionPermit, Place};
use super::{Deferred, Resources, State};
use crate::transfer::tls_session::SESSION;
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::budget::Budget;
use ekiden_model::resources::overload::{PlaceId, ample_memory};
use std::sync::Arc;
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
const RETRY: Duration = Duration::from_millis(5);

/// One after another waits for memory that others give back.
#[derive(Debug, Default)]
pub(super) struct MemoryTurn {
    lock: Mutex<()>,
    /// Some was given back.
    given: Notify,
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
        let mut held = HeldMemory::none(Arc::clone(&self.resources), Arc::clone(&self.place));
        held.resize(bytes).await.then_some(held)
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
    const fn none(resources: Arc<Resources>, place: Arc<Place>) -> Self {
        Self { resources, place, bytes: 0 }
    }

    /// More for the same connection, until the result is dropped, as [`HeldMemory::resize_if_free`] counts it.
    pub(crate) fn beside_if_free(&self, bytes: usize) -> Option<Self> {
        let mut held = Self::none(Arc::clone(&self.resources), Arc::clone(&self.place));
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
    /// Counts `bytes` of memory for something that outlives its client, as soon as unfinished
    /// connections have given them back; fails where none does.
    pub(crate) async fn hold_apart(self: &Arc<Self>, bytes: usize) -> Option<HeldMemory> {
        let mut held = HeldMemory::none(Arc::clone(self), Arc::new(Place::apart()));
        held.resize(bytes).await.then_some(held)
    }

    fn take_leaving(&self, place: &Place, bytes: u64, spare: u64) -> bool {
        let taken = self.memory.take_leaving(bytes, spare);
        if taken {
            place.take(bytes);
        }
        taken
    }

    async fn take_memory(self: &Arc<Self>, place: &Place, bytes: u64) -> bool {
        if self.memory.used() > ample_memory(self.memory.limit()) {
            let state = &mut *locked(&self.state);
            if !state.may_hold_more(place) {
                state.counts.share_refused += 1;
                return false;
            }
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
        self.memory_refused.fetch_add(1, Relaxed);
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
        self.ending.retain(|place| place.held() > 0);
        let ending: u64 = self.ending.iter().map(|place| place.held()).sum();
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
mod tests {
    use super::*;
    use crate::resources::ShareUsed;
    use crate::settings::Settings;
    use ekiden_linux::host::clock;
    use ekiden_model::units::Bytes;
    use std::future::poll_fn;
    use std::net::{IpAddr, Ipv4Addr};
    use std::pin::{Pin, pin};
    use std::task::Poll;

    const KIB: usize = 1024;
    const LARGE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const SMALL: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

    fn resources(memory: u64) -> Arc<Resources> {
        let mut settings = Settings::default();
        settings.budgets.sessions = Bytes::new(memory);
        Resources::new(&settings, false).0
    }

    fn client(resources: &Arc<Resources>, from: IpAddr) -> AdmissionPermit {
        let place = locked(&resources.state).take_place(clock::now(), from.into());
        AdmissionPermit::counted(resources, place, false)
    }

    /// All of 128 KiB but what is left to newcomers, each connection a KiB.
    async fn fill(
        resources: &Arc<Resources>,
        from: impl Fn(u8) -> IpAddr,
    ) -> Vec<(AdmissionPermit, HeldMemory)> {
        let mut held = Vec::new();
        for n in 0..126 {
            let client = client(resources, from(n));
            let memory = client.hold(KIB).await.unwrap();
            held.push((client, memory));
        }
        held
    }

    /// What it gives without a wait.
    async fn at_once<T>(mut waited: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match poll_fn(|context| Poll::Ready(waited.as_mut().poll(context))).await {
            Poll::Ready(given) => Some(given),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn newcomers_wait_for_no_memory_while_one_address_holds_it() {
        let resources = resources(128 * KIB as u64);
        let held = fill(&resources, |_| LARGE).await;
        let late = client(&resources, LARGE);
        let mut waits = pin!(late.hold(KIB));
        assert!(at_once(waits.as_mut()).await.is_none(), "the rest is not for this address");
        // and nobody waits behind it
        let mut newcomers = Vec::new();
        for n in 1..=2 {
            let client = client(&resources, SMALL);
            let memory = at_once(pin!(client.hold(KIB))).await.flatten();
            newcomers.push((client, memory.unwrap_or_else(|| panic!("newcomer {n}"))));
        }
        assert_eq!(resources.memory.used(), 128 * KIB as u64);
        assert!(late.is_large_while_short() && !newcomers[0].0.is_large_while_short());
        drop(held);
        assert!(waits.await.is_some());
        assert!(!late.is_large_while_short(), "there is enough");
    }

    #[tokio::test]
    async fn nobody_is_closed_while_half_of_what_newcomers_may_take_is_left() {
        // 1,024 KiB of it for newcomers
        let resources = resources(64 * 1024 * KIB as u64);
        let large: Vec<_> = (0..3).map(|_| client(&resources, LARGE)).collect();
        let _large = large[0].hold(61 * 1024 * KIB).await.unwrap();
        assert!(!large[0].is_large_while_short(), "3 MiB are left");
        let _more = large[1].hold(2 * 1024 * KIB).await.unwrap();
        let newcomer = client(&resources, SMALL);
        let mut held = newcomer.hold(512 * KIB).await.unwrap();
        assert!(large[0].is_large_while_short() && !newcomer.is_large_while_short());
        let evicted = || large.iter().any(|client| client.place.evicted.load(SeqCst));
        assert!(!evicted());
        assert!(held.resize(513 * KIB).await);
        assert!(evicted());
    }

    #[tokio::test]
    async fn waiting_for_memory_ends_when_it_is_given_back() {
        let resources = resources(64 * KIB as u64);
        let first = client(&resources, LARGE);
        let memory = first.hold(63 * KIB).await.unwrap();
        let second = client(&resources, LARGE);
        let mut waits = pin!(second.hold(32 * KIB));
        assert!(at_once(waits.as_mut()).await.is_none());
        assert!(first.place.evicted.load(SeqCst), "it holds the most, and nothing is served");
        drop(memory);
        assert!(at_once(waits.as_mut()).await.flatten().is_some(), "no time passed");
        assert_eq!(resources.memory_refused.load(Relaxed), 0);
    }

    #[tokio::test]
    async fn newcomers_are_closed_for_nobody_larger() {
        let resources = resources(128 * KIB as u64);
        let held = fill(&resources, |_| LARGE).await;
        held.iter().for_each(|(client, _)| {
            locked(&resources.state).sources.on_busy(*client.place.id.get().unwrap())
        });
        let newcomer = client(&resources, SMALL);
        let _memory = at_once(pin!(newcomer.hold(KIB))).await.flatten().unwrap();
        // all that could give anything back is the newcomer
        assert!(client(&resources, LARGE).hold(KIB).await.is_none());
        assert!(resources.hold_apart(KIB).await.is_none(), "no newcomer either");
        let other = client(&resources, SMALL);
        let _other = at_once(pin!(other.hold(KIB))).await.flatten().unwrap();
        assert!(!newcomer.place.evicted.load(SeqCst), "there was enough");
        let third = client(&resources, SMALL);
        let mut waits = pin!(third.hold(KIB));
        assert!(at_once(waits.as_mut()).await.is_none());
        assert!(newcomer.place.evicted.load(SeqCst), "the longest silent of its like");
    }

    #[tokio::test]
    async fn served_requests_of_one_address_leave_memory_to_another() {
        let resources = resources(128 * KIB as u64);
        let large: Vec<_> = (0..3).map(|_| client(&resources, LARGE)).collect();
        let _first = large[0].hold(60 * KIB).await.unwrap();
        let _silent = large[1].hold(50 * KIB).await.unwrap();
        large[0].serve().unwrap();
        // what is silent could be had back
        large[2].serve().unwrap();
        large[1].serve().unwrap();
        let looked = Duration::from_millis(101);
        tokio::time::sleep(looked).await;
        let more = client(&resources, LARGE);
        assert_eq!(more.serve(), Err(ShareUsed::Memory));
        let newcomer = client(&resources, SMALL);
        let _memory = newcomer.hold(KIB).await.unwrap();
        newcomer.serve().unwrap();
        // nor does what is served hold more of it
        assert!(large[0].hold(KIB).await.is_none());
        assert!(more.hold(KIB).await.is_some(), "that can be had back");
        large[1].set_silent();
        tokio::time::sleep(looked).await;
        more.serve().unwrap();
        assert_eq!(locked(&resources.state).counts.share_refused, 2);
    }

    #[tokio::test]
    async fn served_requests_of_many_addresses_leave_memory_to_another() {
        let resources = resources(16 * 1024 * KIB as u64);
        let mut held = Vec::new();
        for n in 0..80 {
            let address = Ipv4Addr::new(203, 0, 113, n).into();
            loop {
                let client = client(&resources, address);
                let memory = client.hold(4 * KIB).await.unwrap();
                if client.serve().is_err() {
                    break;
                }
                held.push((client, memory));
            }
        }
        assert!(
            resources.memory.left() > 16 * 1024 * KIB as u64 / 50,
            "{}",
            resources.memory.left()
        );
        let newcomer = client(&resources, SMALL);
        let _memory = at_once(pin!(newcomer.hold(64 * KIB))).await.flatten().unwrap();
        newcomer.serve().unwrap();
    }

    #[tokio::test]
    async fn many_sources_of_one_connection_shut_out_none_of_three() {
        let resources = resources(128 * KIB as u64);
        let address = |n| Ipv4Addr::new(203, 0, 113, n).into();
        let mut held = fill(&resources, address).await;
        let browser: Vec<_> = (0..3).map(|_| client(&resources, LARGE)).collect();
        let mut waits = pin!(browser[0].hold(KIB));
        assert!(at_once(waits.as_mut()).await.is_none());
        held.retain(|(client, _)| !client.place.evicted.load(SeqCst));
        assert!(held.len() < 126, "one of them gives it back");
        assert!(at_once(waits.as_mut()).await.flatten().is_some());
    }
}
