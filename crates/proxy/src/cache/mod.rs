//! The HTTP cache (RFC 9111), shared by all clients; off unless the settings give it memory.
//!
//! ```text
//! consult   a request: a cached response, or a Visit that accompanies the request to the origin
//! Visit     stores, validates or removes responses when the origin answers
//! ```
//! Requests with credentials bypass it. A response is shared among clients of one route that may
//! reach the address it came from.

mod changes;
mod copy;
mod directives;
mod disk;
mod early;
mod entry;
mod freshness;
mod lost;
mod reading;
mod rules;
mod store;
#[cfg(test)]
mod tests;
mod visit;

pub(crate) use entry::StoredResponse;
pub(crate) use rules::{ForwardReason, only_if_cached};
pub(crate) use visit::{PassingResponse, Visit};

use crate::observe::status::CacheStatus;
use crate::settings;
use crate::transfer::budget::{ReservedMemory, TransferShare};
use crate::wire::http::body::Body;
use crate::wire::http::fields::values;
use crate::wire::http::head::{Field, Request};
use changes::Changes;
use disk::CacheFolder;
use early::EarlyRemovals;
use ekiden_model::units::Bytes;
use entry::{CacheEntry, VaryRule};
use foyer::{Event, EventListener, HybridCache};
use http::request;
use http_cache_semantics::BeforeRequest;
use lost::DroppedWrites;
use reading::{Counted, DiskReads, NotNow};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use store::disk_of;

#[derive(Debug)]
pub(crate) struct Cache {
    settings: settings::Cache,
    /// Empty until the disk was scanned; requests bypass the cache meanwhile.
    store: OnceLock<HybridCache<String, CacheEntry>>,
    /// What was removed meanwhile.
    early: EarlyRemovals,
    changes: Arc<Changes>,
    /// The lock on the folder.
    folder: Option<Arc<CacheFolder>>,
    counts: Arc<CacheCounts>,
    lost: DroppedWrites,
    reads: DiskReads,
}

#[derive(Debug, Default)]
struct CacheCounts {
    hits: AtomicU64,
    misses: AtomicU64,
    bypassed: AtomicU64,
    validated: AtomicU64,
    stored: AtomicU64,
    removed: AtomicU64,
    pushed_out: AtomicU64,
    bytes: AtomicU64,
}

impl EventListener for CacheCounts {
    type Key = String;
    type Value = CacheEntry;

    fn on_leave(&self, reason: Event, _: &String, _: &CacheEntry) {
        if reason == Event::Evict {
            self.pushed_out.fetch_add(1, Relaxed);
        }
    }
}

/// Time limit for writes to disk at the end.
const CLOSING: Duration = Duration::from_secs(10);

pub(crate) enum CacheLookup {
    Hit(CacheHit),
    /// Forward the request; the visit handles the response.
    Pass(Box<Visit>),
    Nothing,
}

/// A cached response.
#[derive(Debug)]
struct Found {
    key: String,
    stored: Arc<StoredResponse>,
    /// What counts for its body until it is dropped.
    memory: ReservedMemory,
}

pub(crate) struct CacheHit {
    pub(crate) stored: Arc<StoredResponse>,
    /// Age in seconds.
    pub(crate) age: u64,
    /// The text of `Cache-Status` after the relay's name.
    pub(crate) status_text: String,
    /// The client's copy is current: answer 304.
    pub(crate) client_has_it: bool,
    cache: Arc<Cache>,
    /// What counts for its body; after a validation, the visit has it.
    _memory: Option<ReservedMemory>,
}

impl CacheHit {
    pub(crate) fn on_used(&self) {
        self.cache.counts.hits.fetch_add(1, Relaxed);
    }

    pub(crate) fn on_sent(&self, bytes: usize) {
        self.cache.counts.bytes.fetch_add(bytes as u64, Relaxed);
    }
}

impl Cache {
    /// Opens the cache in the background, if the settings ask for one; fails in words on a bad
    /// folder and on too little memory. `budget` is `budgets.memory`.
    pub(crate) fn open(
        settings: &settings::Cache,
        budget: Bytes,
    ) -> Result<Option<Arc<Self>>, String> {
        Self::open_with(settings, DiskReads::new(settings, budget))
    }

    fn open_with(
        settings: &settings::Cache,
        reads: DiskReads,
    ) -> Result<Option<Arc<Self>>, String> {
        let Some(memory) = settings.memory else { return Ok(None) };
        if settings.disk.is_some() && memory < settings.least_memory() {
            return Err(format!(
                "cache.memory, {memory}, is too little beside the disk's buffers; {} is the least",
                settings.least_memory()
            ));
        }
        let folder = disk_of(settings).map(|(folder, _)| CacheFolder::open(folder)).transpose()?;
        let cache = Arc::new(Self {
            settings: settings.clone(),
            store: OnceLock::new(),
            early: EarlyRemovals::default(),
            changes: Arc::default(),
            folder: folder.map(Arc::new),
            counts: Arc::default(),
            lost: DroppedWrites::default(),
            reads,
        });
        let opening = Arc::clone(&cache);
        tokio::spawn(async move {
            match opening.build(memory.as_usize()).await {
                Ok(store) => opening.opened(&store).await,
                Err(error) => {
                    opening.early.give_up();
                    tracing::error!(%error, "cannot open the cache; requests bypass it");
                }
            }
        });
        Ok(Some(cache))
    }

    /// What was removed since the start must not come back from the disk.
    async fn opened(&self, store: &HybridCache<String, CacheEntry>) {
        // set once, here
        let open = || drop(self.store.set(store.clone()));
        while !self.early.apply(|key| self.remove_from(store, key), open) {
            if let Err(error) = store.clear().await {
                self.early.give_up();
                tracing::error!(%error, "cannot empty the cache's disk of what was changed; requests bypass it");
                return;
            }
        }
    }

    pub(crate) async fn close(&self) {
        let Some(store) = self.store.get() else { return };
        match tokio::time::timeout(CLOSING, store.close()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot write all of the cache to disk"),
            Err(_) => {
                tracing::warn!("timed out writing the cache to disk; the rest is lost")
            }
        }
    }

    pub(crate) const fn largest(&self) -> u64 {
        self.settings.largest.as_u64()
    }

    /// Looks up the response for `url` by a route of this `scope`; `permitted` tells whether this
    /// client may have it. What the lookup takes of memory counts in `budget`.
    pub(crate) async fn consult(
        self: &Arc<Self>,
        scope: &str,
        url: String,
        request: &Request,
        body: Body,
        budget: &TransferShare,
        permitted: impl Fn(&StoredResponse) -> bool,
    ) -> CacheLookup {
        let key = format!("{scope}\n{url}");
        let asked = SystemTime::now();
        let mut visit = Box::new(Visit {
            cache: Arc::clone(self),
            watch: self.changes.watch(&key),
            key,
            forward: ForwardReason::Bypass,
            asked,
            no_store: rules::asks_no_store(request),
            request: None,
            stale: None,
            counted: None,
            conditions: Vec::new(),
        });
        let parts = match rules::concerns(request, body) {
            Ok(()) if self.store.get().is_some() => rules::request_parts(&url, request),
            Ok(()) => None,
            Err(forward) => {
                visit.forward = forward;
                None
            }
        };
        let Some(parts) = parts else {
            // such a request must never be forwarded (RFC 9111 §5.2.1.7)
            if only_if_cached(request) {
                return CacheLookup::Nothing;
            }
            self.counts.bypassed.fetch_add(1, Relaxed);
            return CacheLookup::Pass(visit);
        };
        let found = match self.find(&visit.key, &parts, budget).await {
            Ok(found) if !permitted(&found.stored) => Err(ForwardReason::Bypass),
            // parts of it may be from before and after the change
            Ok(_) if visit.watch.is_changed() => Err(ForwardReason::UriMiss),
            other => other,
        };
        match found {
            Ok(found) => {
                let policy = &found.stored.policy;
                let judged = rules::judged_at(policy, asked);
                match policy.before_request(&parts, judged) {
                    BeforeRequest::Fresh(_) => {
                        let Found { stored, memory, .. } = found;
                        let hit = self.hit(stored, request, asked, None);
                        return CacheLookup::Hit(CacheHit { _memory: Some(memory), ..hit });
                    }
                    BeforeRequest::Stale { request: asking, .. } => {
                        let stale = policy.is_stale(judged);
                        visit.forward =
                            if stale { ForwardReason::Stale } else { ForwardReason::Request };
                        // HEAD has no body to cache, and a client with a copy compares its own validators
                        if request.method == "GET" && !rules::is_conditional(request) {
                            visit.conditions = conditions(&asking);
                        }
                        visit.stale = Some(found);
                    }
                }
            }
            Err(forward) => visit.forward = forward,
        }
        if only_if_cached(request) {
            return CacheLookup::Nothing;
        }
        self.counts.misses.fetch_add(1, Relaxed);
        visit.request = (request.method == "GET").then_some(parts);
        CacheLookup::Pass(visit)
    }

    async fn find(
        &self,
        key: &str,
        request: &request::Parts,
        budget: &TransferShare,
    ) -> Result<Found, ForwardReason> {
        let first = self.get(key, budget).await.map_err(|NotNow| ForwardReason::Bypass)?;
        let Counted { entry, memory } = first.ok_or(ForwardReason::UriMiss)?;
        let varies = match entry {
            CacheEntry::Response(stored) => {
                return Ok(Found { key: key.to_owned(), stored, memory });
            }
            CacheEntry::Varies(varies) => varies,
        };
        let key = varies.key(key, request);
        match self.get(&key, budget).await {
            Ok(Some(Counted { entry: CacheEntry::Response(stored), memory })) => {
                Ok(Found { key, stored, memory })
            }
            Ok(_) => Err(ForwardReason::VaryMiss),
            Err(NotNow) => Err(ForwardReason::Bypass),
        }
    }

    /// Answers about it that are on their way, from an origin or the disk, are not put there afterwards.
    fn remove(&self, key: &str) {
        self.changes.on_change(key);
        if self.early.add(key) {
            return;
        }
        if let Some(store) = self.store.get() {
            self.remove_from(store, key);
        }
    }

    fn remove_from(&self, store: &HybridCache<String, CacheEntry>, key: &str) {
        // a removal costs a write
        if store.contains(key) {
            store.remove(key);
            self.counts.removed.fetch_add(1, Relaxed);
        }
    }

    fn hit(
        self: &Arc<Self>,
        stored: Arc<StoredResponse>,
        request: &Request,
        now: SystemTime,
        validated: Option<(ForwardReason, bool)>,
    ) -> CacheHit {
        let ttl = stored.policy.time_to_live(now).as_secs();
        let status_text = match validated {
            None => format!("hit; ttl={ttl}"),
            Some((forward, kept)) => {
                let kept = if kept { format!("; stored; ttl={ttl}") } else { String::new() };
                format!("fwd={}; fwd-status=304{kept}", forward.token())
            }
        };
        let tags = (stored.field("etag"), stored.field("last-modified"));
        let client_has_it = stored.status == 200 && rules::client_has_it(request, tags.0, tags.1);
        let age = stored.policy.age(now).as_secs();
        let cache = Arc::clone(self);
        CacheHit { age, status_text, client_has_it, stored, cache, _memory: None }
    }

    pub(crate) fn status(&self) -> CacheStatus {
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let store = self.store.get();
        let memory = store.map(HybridCache::memory);
        // without room on disk the cache uses memory only
        let on_disk = store.is_none_or(|store| store.storage().is_enabled());
        let buffers = if on_disk { self.settings.buffers().as_u64() } else { 0 };
        CacheStatus {
            open: memory.is_some(),
            memory: memory.map_or(0, |memory| memory.usage() as u64 + buffers),
            memory_limit: self.settings.memory.unwrap_or_default().as_u64(),
            disk_limit: disk_of(&self.settings).filter(|_| on_disk).map(|(_, size)| size as u64),
            entries: memory.map_or(0, |memory| memory.entries() as u64),
            hits: count(&self.counts.hits),
            misses: count(&self.counts.misses),
            bypassed: count(&self.counts.bypassed),
            validated: count(&self.counts.validated),
            stored: count(&self.counts.stored),
            removed: count(&self.counts.removed),
            pushed_out: count(&self.counts.pushed_out),
            not_written: self.lost.count(),
            disk_late: self.reads.late(),
            disk_paused: self.reads.is_paused(),
            bytes: count(&self.counts.bytes),
        }
    }
}

/// The preconditions that validate a cached response.
fn conditions(asking: &request::Parts) -> Vec<Field> {
    let names = [("if-none-match", "If-None-Match"), ("if-modified-since", "If-Modified-Since")];
    let field = |(name, written): (&str, &str)| {
        let value = asking.headers.get(name)?.as_bytes().to_vec();
        Some(Field { name: written.to_owned(), value })
    };
    names.into_iter().filter_map(field).collect()
}

impl VaryRule {
    /// The key of the response that the request's fields select.
    fn key(&self, url: &str, request: &request::Parts) -> String {
        let mut key = format!("{url}\n{:x}", self.mark);
        for name in &self.names {
            let value = request.headers.get(name).map_or(&b""[..], |value| value.as_bytes());
            key.push_str(&format!("\n{name}: {}", value.escape_ascii()));
        }
        key
    }
}

pub(crate) fn cache_status(name: &str, status_text: &str, fields: &mut Vec<Field>) {
    let mut value = values(fields, "cache-status").collect::<Vec<_>>().join(&b", "[..]);
    fields.retain(|field| !field.name.eq_ignore_ascii_case("cache-status"));
    if !value.is_empty() {
        value.extend(b", ");
    }
    value.extend(format!("\"{name}\"; {status_text}").as_bytes());
    fields.push(Field { name: "Cache-Status".to_owned(), value });
}
