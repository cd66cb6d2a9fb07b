//! Lookups, in memory and on a disk that is slow, full, or behind.

use super::*;
use crate::settings::{Budgets, CopyMode};
use crate::transfer::budget::TransferBudget;
use crate::wire::http::head::{Limits, read_request, read_response};
use std::path::Path;

const LIMITS: Limits = Limits { bytes: 10_000, fields: 100 };
const YEAR: Duration = Duration::from_secs(365 * 86_400);

impl Cache {
    pub(super) async fn is_open(&self) {
        while self.store.get().is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn store(&self) -> &HybridCache<String, CacheEntry> {
        self.store.get().unwrap()
    }

    /// Puts an entry on disk, and out of memory.
    async fn put_on_disk(&self, url: &str, entry: CacheEntry) {
        visit::put(self.store(), &key(url), entry);
        self.store().storage().wait().await;
        self.leave_memory(url);
    }

    fn leave_memory(&self, url: &str) {
        self.store().memory().remove(&key(url));
    }

    async fn look(self: &Arc<Self>, url: &str, budget: &Arc<TransferBudget>) -> CacheLookup {
        let share = budget.unshared();
        self.consult("direct", url.to_owned(), &request(url), Body::None, &share, |_| true).await
    }
}

fn key(url: &str) -> String {
    format!("direct\n{url}")
}

fn budget(memory: Bytes) -> Arc<TransferBudget> {
    TransferBudget::new(&Budgets { memory, ..Budgets::default() }, CopyMode::Auto)
}

fn request(url: &str) -> Request {
    let head = format!("GET {url} HTTP/1.1\r\nHost: a\r\n\r\n");
    read_request(head.as_bytes(), LIMITS).unwrap().unwrap().0
}

/// A response that is fresh for a minute and arrived at a time.
fn response(url: &str, arrived: SystemTime, body: &[u8]) -> CacheEntry {
    with_fields("Cache-Control: max-age=60\r\n", url, arrived, body)
}

fn with_fields(fields: &str, url: &str, arrived: SystemTime, body: &[u8]) -> CacheEntry {
    let head = format!("HTTP/1.1 200 OK\r\n{fields}ETag: \"a\"\r\n\r\n");
    let response = read_response(head.as_bytes(), LIMITS).unwrap().unwrap().0;
    let parts = rules::request_parts(url, &request(url)).unwrap();
    let policy = rules::policy(&parts, &response, arrived, arrived).unwrap();
    let body = body.to_vec().into();
    CacheEntry::Response(Arc::new(StoredResponse::new(policy, &response, None, body).unwrap()))
}

fn fresh(url: &str, body: &[u8]) -> CacheEntry {
    response(url, SystemTime::now(), body)
}

/// With a disk, for bodies up to 1 MiB. The disk's buffers take 12 MiB of `memory`.
fn of_disk(folder: &Path, memory: Bytes) -> settings::Cache {
    settings::Cache {
        memory: Some(memory),
        disk: Some(Bytes::mib(64)),
        directory: Some(folder.to_owned()),
        largest: Bytes::mib(1),
    }
}

/// The same, open, and patient with a slow disk.
pub(super) async fn with_disk(folder: &Path, memory: Bytes, budget: Bytes) -> Arc<Cache> {
    let settings = of_disk(folder, memory);
    let reads = DiskReads::new(&settings, budget).with_patience(Duration::from_secs(3_600));
    let cache = Cache::open_with(&settings, reads).unwrap().unwrap();
    cache.is_open().await;
    assert_eq!(cache.status().disk_limit, Some(64 << 20));
    cache
}

fn forwarded(lookup: &CacheLookup) -> Option<ForwardReason> {
    match lookup {
        CacheLookup::Pass(visit) => Some(visit.forward),
        _ => None,
    }
}

const A: &str = "http://a/";
const PLENTY: Bytes = Bytes::mib(64);

#[tokio::test]
async fn a_response_is_validated_after_the_clock_was_set_back() {
    let now = SystemTime::now();
    for (arrived, is_fresh) in [
        (now - Duration::from_secs(30), true),
        (now - YEAR, false),
        // clocks are corrected by little
        (now + Duration::from_secs(5), true),
        (now + Duration::from_secs(15), false),
        (now + YEAR, false),
    ] {
        let settings =
            settings::Cache { memory: Some(Bytes::mib(1)), ..settings::Cache::default() };
        let cache = Cache::open(&settings, PLENTY).unwrap().unwrap();
        cache.is_open().await;
        cache.store().insert(key(A), response(A, arrived, b"body"));
        let found = cache.look(A, &budget(PLENTY)).await;
        if is_fresh {
            assert!(matches!(found, CacheLookup::Hit(_)), "{arrived:?}");
            continue;
        }
        let CacheLookup::Pass(visit) = found else { panic!("{arrived:?}") };
        assert_eq!(visit.forward, ForwardReason::Stale);
        let asked: Vec<_> = visit.conditions().iter().map(|field| &field.value[..]).collect();
        assert_eq!(asked, [b"\"a\""]);
    }
}

#[tokio::test]
async fn a_guess_of_freshness_ends_after_a_day_also_on_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let cache = with_disk(folder.path(), PLENTY, PLENTY).await;
    let (now, hour) = (SystemTime::now(), Duration::from_secs(3_600));
    let arrivals = [("http://a/1", now - 20 * hour), ("http://a/2", now - 25 * hour)];
    for (url, arrived) in arrivals {
        let changed = httpdate::fmt_http_date(arrived - 3 * YEAR);
        let fields = format!("Last-Modified: {changed}\r\n");
        cache.put_on_disk(url, with_fields(&fields, url, arrived, b"body")).await;
    }
    cache.close().await;
    drop(cache);
    let cache = with_disk(folder.path(), PLENTY, PLENTY).await;
    let [recent, older] = arrivals.map(|(url, _)| url);
    let budget = budget(PLENTY);
    let CacheLookup::Hit(hit) = cache.look(recent, &budget).await else { panic!("no hit") };
    // the limit is not sent
    assert!(hit.stored.field("cache-control").is_none());
    assert_eq!(forwarded(&cache.look(older, &budget).await), Some(ForwardReason::Stale));
    cache.close().await;
}

#[tokio::test]
async fn a_change_before_the_disk_was_scanned_holds() {
    const B: &str = "http://b/";
    let folder = tempfile::tempdir().unwrap();
    let cache = with_disk(folder.path(), PLENTY, PLENTY).await;
    for url in [A, B] {
        cache.put_on_disk(url, fresh(url, b"body")).await;
    }
    cache.close().await;
    drop(cache);
    let settings = of_disk(folder.path(), PLENTY);
    let reads = DiskReads::new(&settings, PLENTY).with_patience(Duration::from_secs(3_600));
    let cache = Cache::open_with(&settings, reads).unwrap().unwrap();
    // it opens once this task waits
    cache.remove(&key(A));
    cache.is_open().await;
    let budget = budget(PLENTY);
    assert_eq!(forwarded(&cache.look(A, &budget).await), Some(ForwardReason::UriMiss));
    assert!(matches!(cache.look(B, &budget).await, CacheLookup::Hit(_)));
    cache.close().await;
}

#[tokio::test]
async fn a_disk_that_does_not_answer_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let settings = of_disk(folder.path(), PLENTY);
    let reads = DiskReads::new(&settings, PLENTY).with_patience(Duration::from_millis(1));
    let cache = Cache::open_with(&settings, reads).unwrap().unwrap();
    cache.is_open().await;
    let budget = budget(PLENTY);
    cache.put_on_disk(A, fresh(A, b"body")).await;
    let _places = cache.reads.take_all_places().await;
    for nth in 1..=4 {
        assert!(!cache.status().disk_paused);
        let lookup = cache.look(A, &budget).await;
        assert_eq!(forwarded(&lookup), Some(ForwardReason::Bypass));
        assert_eq!(cache.status().disk_late, nth);
    }
    // further lookups do not wait for it
    assert!(cache.status().disk_paused);
    assert_eq!(forwarded(&cache.look(A, &budget).await), Some(ForwardReason::Bypass));
    assert_eq!(forwarded(&cache.look("http://b/", &budget).await), Some(ForwardReason::UriMiss));
    assert_eq!(cache.status().disk_late, 4);
    cache.close().await;
}

#[tokio::test]
async fn reads_of_the_disk_are_few_at_once_and_count_in_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let limit = Bytes::mib(16);
    let cache = with_disk(folder.path(), PLENTY, limit).await;
    let url = |n| format!("http://a/{n}");
    for n in 0..12 {
        cache.put_on_disk(&url(n), fresh(&url(n), &[7; 1 << 19])).await;
    }
    let budget = budget(limit);
    let mut lookups = tokio::task::JoinSet::new();
    for n in 0..12 {
        let (cache, budget) = (Arc::clone(&cache), Arc::clone(&budget));
        lookups.spawn(async move { cache.look(&url(n), &budget).await });
    }
    while let Some(lookup) = lookups.join_next().await {
        assert!(matches!(lookup.unwrap(), CacheLookup::Hit(_)));
    }
    let memory = &budget.status()[1];
    let read = cache.settings.read_size().as_u64();
    // three at once, and what the others found
    assert!(memory.peak >= 3 * read && memory.peak <= 3 * read + (12 << 19), "{memory:?}");
    assert_eq!(memory.used, 0);
    // without memory nothing is read
    cache.leave_memory(&url(0));
    let none = self::budget(Bytes::new(read - 1));
    assert_eq!(forwarded(&cache.look(&url(0), &none).await), Some(ForwardReason::Bypass));
    assert!(!cache.store().memory().contains(&key(&url(0))));
    cache.close().await;
}

#[tokio::test]
async fn a_read_of_the_disk_does_not_bring_back_what_was_removed_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let cache = with_disk(folder.path(), PLENTY, PLENTY).await;
    let budget = budget(PLENTY);
    for _ in 0..10 {
        cache.put_on_disk(A, fresh(A, &[7; 1 << 20])).await;
        let lookup = {
            let (cache, budget) = (Arc::clone(&cache), Arc::clone(&budget));
            tokio::spawn(async move { forwarded(&cache.look(A, &budget).await) })
        };
        while budget.status()[1].used == 0 && !lookup.is_finished() {
            tokio::task::yield_now().await;
        }
        // the read begins
        tokio::task::yield_now().await;
        let was_read = lookup.is_finished();
        cache.remove(&key(A));
        // a read that has ended found it
        assert!(lookup.await.unwrap().is_none() || !was_read);
        assert!(!cache.store().memory().contains(&key(A)));
        assert_eq!(forwarded(&cache.look(A, &budget).await), Some(ForwardReason::UriMiss));
    }
    cache.close().await;
}

/// On one thread, nothing is written before the test waits.
#[tokio::test]
async fn entries_that_wait_for_the_disk_are_not_found_after_their_removal() {
    let folder = tempfile::tempdir().unwrap();
    let cache = with_disk(folder.path(), PLENTY, PLENTY).await;
    cache.store().insert(key(A), fresh(A, b"old"));
    cache.remove(&key(A));
    assert!(forwarded(&cache.look(A, &budget(PLENTY)).await).is_some());
    cache.close().await;
}

#[tokio::test]
async fn an_older_response_does_not_return_from_a_disk_that_did_not_take_the_newer() {
    let folder = tempfile::tempdir().unwrap();
    let cache = with_disk(folder.path(), PLENTY, PLENTY).await;
    cache.put_on_disk(A, fresh(A, b"old")).await;
    for n in 0..20 {
        let url = format!("http://a/{n}");
        cache.store().insert(key(&url), fresh(&url, &[7; 1 << 20]));
    }
    let lost = cache.status().not_written;
    visit::put(cache.store(), &key(A), fresh(A, b"new"));
    assert_eq!(cache.status().not_written, lost + 1);
    cache.leave_memory(A);
    cache.store().storage().wait().await;
    let lookup = cache.look(A, &budget(PLENTY)).await;
    assert_eq!(forwarded(&lookup), Some(ForwardReason::UriMiss));
    cache.close().await;
}

#[tokio::test]
async fn a_removal_of_nothing_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cache = with_disk(folder.path(), PLENTY, PLENTY).await;
    cache.put_on_disk(A, fresh(A, b"body")).await;
    let writes = || cache.store().statistics().disk_write_ios();
    let before = writes();
    cache.remove(&key("http://b/"));
    // a write would come now
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!((writes(), cache.status().removed), (before, 0));
    cache.remove(&key(A));
    cache.store().storage().wait().await;
    assert_eq!(cache.status().removed, 1);
    cache.close().await;
}

#[tokio::test]
async fn a_cache_whose_disk_leaves_too_little_memory_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings::Cache {
        memory: Some(Bytes::mib(18)),
        disk: Some(Bytes::mib(64)),
        directory: Some(folder.path().to_owned()),
        largest: Bytes::mib(4),
    };
    let why = Cache::open(&settings, PLENTY).unwrap_err();
    assert!(why.contains("cache.memory, 18 MiB") && why.contains("19 MiB is the least"), "{why}");
}
