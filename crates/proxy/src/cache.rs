//! The HTTP cache (RFC 9111), shared by all clients; off unless it is given memory.
//!
//! ```text
//! consult   a request comes: the answer, or a visit that goes with it to the origin
//! Visit     what the answer of the origin is kept under, or makes fresh, or takes away
//! ```
//! Requests with credentials pass it by. What came by one route is not given to a client of another; and who
//! may not go to the address that a response came from is not given it either.

mod copy;
mod disk;
mod entry;
mod lost;
mod rules;
mod store;
mod visit;

pub(crate) use copy::Copy;
pub(crate) use entry::Stored;
pub(crate) use rules::{Forward, only_if_cached};
pub(crate) use visit::Visit;

use crate::http::body::Body;
use crate::http::fields::values;
use crate::http::head::{Field, Request};
use crate::settings;
use crate::status::CacheStatus;
use disk::Folder;
use entry::{Entry, Varies};
use foyer::{Event, EventListener, HybridCache};
use http::request;
use http_cache_semantics::BeforeRequest;
use lost::Lost;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use store::disk_of;

/// The cache of one relay.
#[derive(Debug)]
pub(crate) struct Cache {
    settings: settings::Cache,
    /// Empty until it is open: what is on disk is looked through first, and meanwhile requests pass by.
    store: OnceLock<HybridCache<String, Entry>>,
    /// When something last changed what a URL stands for, by a part of its hash.
    changed: Vec<AtomicU64>,
    /// Kept to this process as long as the cache is there.
    folder: Option<Arc<Folder>>,
    counts: Arc<Counts>,
    lost: Lost,
}

#[derive(Debug, Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    bypassed: AtomicU64,
    validated: AtomicU64,
    stored: AtomicU64,
    removed: AtomicU64,
    pushed_out: AtomicU64,
    bytes: AtomicU64,
}

/// Counts those that others pushed out of memory.
impl EventListener for Counts {
    type Key = String;
    type Value = Entry;

    fn on_leave(&self, reason: Event, _: &String, _: &Entry) {
        if reason == Event::Evict {
            self.pushed_out.fetch_add(1, Relaxed);
        }
    }
}

/// How long the end waits for what is on its way to the disk.
const CLOSING: Duration = Duration::from_secs(10);

/// Marks of changes. Two URLs with the same one cost a response that is not kept, and nothing else.
const CHANGED: usize = 1024;

/// What a look came to.
pub(crate) enum Found {
    /// A fresh response.
    Hit(Hit),
    /// The request goes on, and what becomes of it is told to this.
    Pass(Box<Visit>),
    /// The client wants what is stored or nothing, and nothing is.
    Nothing,
}

/// A response that may be used.
pub(crate) struct Hit {
    pub(crate) stored: Arc<Stored>,
    /// Seconds; for `Age`.
    pub(crate) age: u64,
    /// `Cache-Status`, behind the relay's name.
    pub(crate) said: String,
    /// The client has it already: a 304 will do.
    pub(crate) client_has_it: bool,
    cache: Arc<Cache>,
}

impl Hit {
    /// It was the answer to a request that did not go on.
    pub(crate) fn on_used(&self) {
        self.cache.counts.hits.fetch_add(1, Relaxed);
    }

    /// There was no memory to send it from, and the request goes on.
    pub(crate) fn on_not_used(&self) {
        self.cache.counts.misses.fetch_add(1, Relaxed);
    }

    /// So much of its body was sent.
    pub(crate) fn on_sent(&self, bytes: usize) {
        self.cache.counts.bytes.fetch_add(bytes as u64, Relaxed);
    }
}

impl Cache {
    /// The cache that the settings want, if they want one. It opens in the background.
    ///
    /// # Errors
    /// In words, where its folder cannot be used.
    pub(crate) fn open(settings: &settings::Cache) -> Result<Option<Arc<Self>>, String> {
        let Some(memory) = settings.memory else { return Ok(None) };
        let folder = disk_of(settings).map(|(folder, _)| Folder::open(folder)).transpose()?;
        let cache = Arc::new(Self {
            settings: settings.clone(),
            store: OnceLock::new(),
            changed: (0..CHANGED).map(|_| AtomicU64::new(0)).collect(),
            folder: folder.map(Arc::new),
            counts: Arc::default(),
            lost: Lost::default(),
        });
        let opening = Arc::clone(&cache);
        tokio::spawn(async move {
            match opening.build(memory.as_usize()).await {
                // set once, here
                Ok(store) => drop(opening.store.set(store)),
                Err(error) => {
                    tracing::error!(%error, "the cache does not open; requests pass it by")
                }
            }
        });
        Ok(Some(cache))
    }

    /// Writes what is not on disk yet.
    pub(crate) async fn close(&self) {
        let Some(store) = self.store.get() else { return };
        match tokio::time::timeout(CLOSING, store.close()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the cache is not all on disk"),
            Err(_) => {
                tracing::warn!("the disk does not take what the cache has for it; the rest is lost")
            }
        }
    }

    /// The largest body that is kept.
    pub(crate) const fn largest(&self) -> u64 {
        self.settings.largest.as_u64()
    }

    /// Looks for a response to a request for `url`, asked by a route of this `scope`. `permitted` says of a
    /// stored response whether this client may have it.
    pub(crate) async fn consult(
        self: &Arc<Self>,
        scope: &str,
        url: String,
        request: &Request,
        body: Body,
        permitted: impl Fn(&Stored) -> bool,
    ) -> Found {
        let key = format!("{scope}\n{url}");
        let asked = SystemTime::now();
        let mut visit = Box::new(Visit {
            cache: Arc::clone(self),
            key,
            forward: Forward::Bypass,
            asked,
            request: None,
            stale: None,
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
            // whatever the reason, it is not to be sent on (RFC 9111 §5.2.1.7)
            if only_if_cached(request) {
                return Found::Nothing;
            }
            self.counts.bypassed.fetch_add(1, Relaxed);
            return Found::Pass(visit);
        };
        let found = match self.find(&visit.key, &parts).await {
            Ok((_, stored)) if !permitted(&stored) => Err(Forward::Bypass),
            other => other,
        };
        match found {
            Ok((key, stored)) => match stored.policy.before_request(&parts, asked) {
                BeforeRequest::Fresh(_) => {
                    return Found::Hit(self.hit(stored, request, asked, None));
                }
                BeforeRequest::Stale { request: asking, .. } => {
                    let stale = stored.policy.is_stale(asked);
                    visit.forward = if stale { Forward::Stale } else { Forward::Request };
                    // a HEAD brings no body to keep, and who has a copy compares with that one
                    if request.method == "GET" && !rules::is_conditional(request) {
                        visit.conditions = conditions(&asking);
                    }
                    visit.stale = Some((key, stored));
                }
            },
            Err(forward) => visit.forward = forward,
        }
        if only_if_cached(request) {
            return Found::Nothing;
        }
        self.counts.misses.fetch_add(1, Relaxed);
        visit.request = (request.method == "GET").then_some(parts);
        Found::Pass(visit)
    }

    /// The stored response that a request selects, with its key.
    async fn find(
        &self,
        key: &str,
        request: &request::Parts,
    ) -> Result<(String, Arc<Stored>), Forward> {
        let first = self.get(key).await.ok_or(Forward::UriMiss)?;
        let varies = match first {
            Entry::Response(stored) => return Ok((key.to_owned(), stored)),
            Entry::Varies(varies) => varies,
        };
        let key = varies.key(key, request);
        match self.get(&key).await {
            Some(Entry::Response(stored)) => Ok((key, stored)),
            _ => Err(Forward::VaryMiss),
        }
    }

    async fn get(&self, key: &str) -> Option<Entry> {
        match self.store.get()?.get(key).await {
            Ok(entry) => entry.map(|entry| entry.value().clone()),
            Err(error) => {
                tracing::debug!(%error, "an entry of the cache cannot be read");
                None
            }
        }
    }

    /// Takes an entry away; whether there was one.
    fn remove(&self, key: &str) -> bool {
        let Some(store) = self.store.get() else { return false };
        let there = store.contains(key);
        store.remove(key);
        self.counts.removed.fetch_add(u64::from(there), Relaxed);
        there
    }

    fn hit(
        self: &Arc<Self>,
        stored: Arc<Stored>,
        request: &Request,
        now: SystemTime,
        validated: Option<(Forward, bool)>,
    ) -> Hit {
        let ttl = stored.policy.time_to_live(now).as_secs();
        let said = match validated {
            None => format!("hit; ttl={ttl}"),
            Some((forward, kept)) => {
                let kept = if kept { format!("; stored; ttl={ttl}") } else { String::new() };
                format!("fwd={}; fwd-status=304{kept}", forward.token())
            }
        };
        let tags = (stored.field("etag"), stored.field("last-modified"));
        let client_has_it = stored.status == 200 && rules::client_has_it(request, tags.0, tags.1);
        let age = stored.policy.age(now).as_secs();
        Hit { age, said, client_has_it, stored, cache: Arc::clone(self) }
    }

    /// One look.
    pub(crate) fn status(&self) -> CacheStatus {
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let store = self.store.get();
        let memory = store.map(HybridCache::memory);
        // without room there it was not used
        let on_disk = store.is_none_or(|store| store.storage().is_enabled());
        CacheStatus {
            open: memory.is_some(),
            memory: memory.map_or(0, |memory| memory.usage() as u64),
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
            bytes: count(&self.counts.bytes),
        }
    }
}

/// The preconditions by which what is stored is validated.
fn conditions(asking: &request::Parts) -> Vec<Field> {
    let names = [("if-none-match", "If-None-Match"), ("if-modified-since", "If-Modified-Since")];
    let field = |(name, written): (&str, &str)| {
        let value = asking.headers.get(name)?.as_bytes().to_vec();
        Some(Field { name: written.to_owned(), value })
    };
    names.into_iter().filter_map(field).collect()
}

impl Varies {
    /// Of what a request of these fields selects.
    fn key(&self, url: &str, request: &request::Parts) -> String {
        let mut key = format!("{url}\n{:x}", self.mark);
        for name in &self.names {
            let value = request.headers.get(name).map_or(&b""[..], |value| value.as_bytes());
            key.push_str(&format!("\n{name}: {}", value.escape_ascii()));
        }
        key
    }
}

/// `Cache-Status` of a response (RFC 9211), behind what others have said.
pub(crate) fn cache_status(name: &str, said: &str, fields: &mut Vec<Field>) {
    let mut value = values(fields, "cache-status").collect::<Vec<_>>().join(&b", "[..]);
    fields.retain(|field| !field.name.eq_ignore_ascii_case("cache-status"));
    if !value.is_empty() {
        value.extend(b", ");
    }
    value.extend(format!("\"{name}\"; {said}").as_bytes());
    fields.push(Field { name: "Cache-Status".to_owned(), value });
}
