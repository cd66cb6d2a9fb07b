//! Reads of the disk: few at once, each in counted memory, each within a time limit. A disk that does not answer is
//! left alone for a while.

use super::Cache;
use super::entry::CacheEntry;
use crate::settings;
use crate::transfer::budget::{ReservedMemory, TransferShare};
use ekiden_linux::host::sync::locked;
use ekiden_model::units::Bytes;
use foyer::{HybridCache, Load};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// How long a lookup waits for the disk.
const PATIENCE: Duration = Duration::from_secs(1);
/// So many lookups in a row without an answer of the disk, and it is left alone.
const ROW: u32 = 4;
/// For how long.
const PAUSE: Duration = Duration::from_secs(60);
/// The most reads at once.
const PLACES: u64 = 8;

/// An entry, and the memory that counts for its body.
pub(super) struct Counted {
    pub(super) entry: CacheEntry,
    pub(super) memory: ReservedMemory,
}

/// The disk or the memory for the entry cannot be had now.
#[derive(Debug)]
pub(super) struct NotNow;

#[derive(Debug)]
pub(super) struct DiskReads {
    places: Arc<Semaphore>,
    /// Bytes that one read takes.
    size: usize,
    patience: Duration,
    silence: Mutex<Silence>,
    late: AtomicU64,
}

/// Lookups in a row that the disk did not answer in time.
#[derive(Debug, Default)]
struct Silence {
    row: u32,
    /// The disk is left alone until then.
    until: Option<Instant>,
}

impl Silence {
    /// Returns whether the disk was silent before.
    const fn on_answer(&mut self) -> bool {
        self.row = 0;
        self.until.take().is_some()
    }

    /// A lookup gave up; returns whether the disk is to be left alone from now on.
    fn on_late(&mut self, now: Instant) -> bool {
        self.row += 1;
        let begins = self.row >= ROW && !self.is_paused(now);
        if begins {
            (self.row, self.until) = (0, Some(now + PAUSE));
        }
        begins
    }

    fn is_paused(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

impl DiskReads {
    /// Half of `budget`, which is `budgets.memory`, is for these reads; one may always be made.
    pub(super) fn new(settings: &settings::Cache, budget: Bytes) -> Self {
        let size = settings.read_size();
        let places = (budget.as_u64() / 2 / size.as_u64()).clamp(1, PLACES);
        Self {
            places: Arc::new(Semaphore::new(places as usize)),
            size: size.as_usize(),
            patience: PATIENCE,
            silence: Mutex::default(),
            late: AtomicU64::new(0),
        }
    }

    /// Lookups that the disk did not answer in time.
    pub(super) fn late(&self) -> u64 {
        self.late.load(Relaxed)
    }

    pub(super) fn is_paused(&self) -> bool {
        locked(&self.silence).is_paused(Instant::now())
    }

    #[cfg(test)]
    pub(super) fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// As reads that the disk does not answer.
    #[cfg(test)]
    pub(super) async fn take_all_places(&self) -> tokio::sync::OwnedSemaphorePermit {
        let all = self.places.available_permits() as u32;
        Arc::clone(&self.places).acquire_many_owned(all).await.unwrap()
    }

    fn on_answer(&self) {
        if locked(&self.silence).on_answer() {
            tracing::info!("the cache's disk answers again");
        }
    }

    fn on_late(&self) {
        self.late.fetch_add(1, Relaxed);
        if locked(&self.silence).on_late(Instant::now()) {
            tracing::warn!(
                "the cache's disk did not answer {ROW} lookups in a row within {:?} each; \
                 lookups leave it alone for {PAUSE:?}",
                self.patience
            );
        }
    }
}

impl Cache {
    /// The entry of this key, in memory or on disk.
    pub(super) async fn get(
        &self,
        key: &str,
        budget: &TransferShare,
    ) -> Result<Option<Counted>, NotNow> {
        let Some(store) = self.store.get() else { return Ok(None) };
        if let Some(entry) = in_memory(store, key) {
            return counted(entry, budget).map(Some);
        }
        if !store.storage().may_contains(key) {
            return Ok(None);
        }
        if self.reads.is_paused() {
            return Err(NotNow);
        }
        match timeout(self.reads.patience, self.read(store, key, budget)).await {
            Ok(read) => read,
            Err(_) => {
                self.reads.on_late();
                Err(NotNow)
            }
        }
    }

    async fn read(
        &self,
        store: &HybridCache<String, CacheEntry>,
        key: &str,
        budget: &TransferShare,
    ) -> Result<Option<Counted>, NotNow> {
        let place = Arc::clone(&self.reads.places).acquire_owned().await;
        let place = place.map_err(|_| NotNow)?;
        // another lookup may have read it meanwhile
        if let Some(entry) = in_memory(store, key) {
            return counted(entry, budget).map(Some);
        }
        // given back once the body is there, which counts by itself
        let memory = budget.unshared().reserve(self.reads.size).ok_or(NotNow)?;
        let (store, key, budget) = (store.clone(), key.to_owned(), budget.clone());
        let watch = self.changes.watch(&key);
        // the read keeps its place and memory until the disk answers, however long the lookup waits
        let reading = tokio::spawn(async move {
            let loaded = store.storage().load(&key).await;
            let entry = match loaded {
                Ok(Load::Entry { value, .. }) => {
                    watch.unless_changed(|| take_in(&store, &key, value))
                }
                // one that waits to be written may have been removed since: its key does not tell
                Ok(Load::Piece { .. } | Load::Throttled | Load::Miss) => None,
                Err(error) => {
                    tracing::debug!(%error, "cannot read a cache entry");
                    None
                }
            };
            drop(memory);
            let counted = entry.map(|entry| counted(entry, &budget)).transpose();
            drop(place);
            counted
        });
        let read = reading.await.map_err(|_| NotNow)??;
        self.reads.on_answer();
        Ok(read)
    }
}

fn in_memory(store: &HybridCache<String, CacheEntry>, key: &str) -> Option<CacheEntry> {
    store.memory().get(key).map(|entry| entry.value().clone())
}

/// Puts an entry from disk into memory, unless a newer one is there already; returns the newest.
fn take_in(store: &HybridCache<String, CacheEntry>, key: &str, entry: CacheEntry) -> CacheEntry {
    in_memory(store, key).unwrap_or_else(|| {
        store.memory().insert(key.to_owned(), entry.clone());
        entry
    })
}

/// The body stays in memory while it is used, whatever the cache does meanwhile.
fn counted(entry: CacheEntry, budget: &TransferShare) -> Result<Counted, NotNow> {
    let memory = budget.reserve(entry.body_size()).ok_or(NotNow)?;
    Ok(Counted { entry, memory })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_disk_is_left_alone_for_a_minute_after_four_lookups_in_a_row() {
        let (mut silence, now) = (Silence::default(), Instant::now());
        for _ in 0..3 {
            assert!(!silence.on_late(now));
        }
        // it was slow
        assert!(!silence.on_answer());
        for _ in 0..3 {
            assert!(!silence.on_late(now) && !silence.is_paused(now));
        }
        assert!(silence.on_late(now));
        let later = now + PAUSE;
        assert!(silence.is_paused(now) && !silence.is_paused(later));
        assert!(silence.on_answer() && !silence.is_paused(now));
    }
}
