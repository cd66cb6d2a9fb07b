//! A forwarded request, and its response's effect on the cache.

use super::changes::Watch;
use super::copy::BodyCopy;
use super::entry::{CacheEntry, StoredResponse, VaryRule};
use super::rules::{self, ForwardReason};
use super::{Cache, CacheHit, Found};
use crate::transfer::budget::{CountedMemory, TransferShare};
use crate::wire::http::body::Body;
use crate::wire::http::fields::values;
use crate::wire::http::head::{Field, Request, Response};
use foyer::HybridCache;
use http::request;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

/// A forwarded request that the cache follows.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(super) cache: Arc<Cache>,
    pub(super) key: String,
    pub(super) watch: Watch,
    pub(super) forward: ForwardReason,
    pub(super) asked: SystemTime,
    /// The client wants the answer not to be kept.
    pub(super) no_store: bool,
    /// For `http-cache-semantics`; `None` where the response is not to be cached.
    pub(super) request: Option<request::Parts>,
    /// The cached response to validate.
    pub(super) stale: Option<Found>,
    /// What counts its head, which the cache may drop meanwhile.
    pub(super) counted: Option<Box<dyn CountedMemory>>,
    /// The relay's own preconditions for the validation.
    pub(super) conditions: Vec<Field>,
}

impl Visit {
    /// The cached response to validate.
    pub(crate) fn stale(&self) -> Option<&StoredResponse> {
        self.stale.as_ref().map(|found| &*found.stored)
    }

    /// What counts its head; without it, the request goes as if nothing were stored.
    pub(crate) fn count_stale(&mut self, counted: Option<Box<dyn CountedMemory>>) {
        if counted.is_none() {
            self.stale = None;
            self.conditions.clear();
        }
        self.counted = counted;
    }

    pub(crate) fn conditions(&self) -> &[Field] {
        &self.conditions
    }

    /// The text of `Cache-Status` for a forwarded response, after the relay's name.
    pub(crate) fn status_text(&self, status: u16, kept: bool) -> String {
        let mut status_text = format!("fwd={}", self.forward.token());
        if !self.conditions.is_empty() {
            status_text.push_str(&format!("; fwd-status={status}"));
        }
        if kept {
            status_text.push_str("; stored");
        }
        status_text
    }

    /// Copies the body of a cacheable response while it passes.
    pub(crate) fn copy<'a>(
        &'a self,
        response: &'a Response,
        body: Body,
        from: Option<IpAddr>,
        memory: TransferShare,
    ) -> Option<PassingResponse<'a>> {
        let request = self.request.as_ref()?;
        let length = match body {
            Body::None => Some(0),
            Body::Length(n) => Some(n),
            Body::Chunked => None,
            // the end of such a body may be a cut
            Body::UntilClose => return None,
        };
        if length.is_some_and(|n| n > self.cache.largest()) {
            return None;
        }
        let policy = rules::policy(request, response, self.asked, SystemTime::now())?;
        let copy = Some(BodyCopy::new(policy, memory, (length, self.cache.largest())));
        Some(PassingResponse { visit: self, response, from, copy })
    }

    /// Removes the cached response that a newer response replaces, which its server does not let be cached. An error of
    /// the server replaces nothing, and what a client asks takes nothing from others: an answer without a body, or one
    /// that is not to be kept.
    pub(crate) fn drop_older(&self, response: &Response) {
        if let (Some(stale), Some(_)) = (&self.stale, &self.request)
            && response.status < 500
            && !self.no_store
        {
            self.cache.remove(&stale.key);
        }
    }

    fn keep(&self, response: &Response, copy: BodyCopy, from: Option<IpAddr>) {
        let (Some(store), Some(request)) = (self.cache.store.get(), &self.request) else { return };
        let Some((policy, body)) = copy.finish() else { return self.drop_older(response) };
        let Some(names) = rules::varies_by(response) else { return };
        let Some(stored) = StoredResponse::new(policy, response, from, body) else { return };
        let entry = CacheEntry::Response(Arc::new(stored));
        // a change since the request makes the response ambiguous
        let stored = self.watch.unless_changed(|| {
            if names.is_empty() {
                return put(store, &self.key, entry);
            }
            // other responses with the same varying fields stay reachable
            let varies = match store.memory().get(&self.key).map(|e| e.value().clone()) {
                Some(CacheEntry::Varies(varies)) if varies.names == names => varies,
                _ => Arc::new(VaryRule { names, mark: nanos(SystemTime::now()) }),
            };
            put(store, &varies.key(&self.key, request), entry);
            put(store, &self.key, CacheEntry::Varies(varies));
        });
        if stored.is_some() {
            self.cache.counts.stored.fetch_add(1, Relaxed);
        }
    }

    /// Freshens the cached response with a 304; returns it for the client where the relay asked:
    /// with its own preconditions, the 304 is always about that response. One that is not for all clients (`shared`)
    /// removes the cached response.
    pub(crate) fn on_not_modified(
        &self,
        request: &Request,
        response: &Response,
        shared: bool,
    ) -> Option<CacheHit> {
        let Found { key, stored, .. } = self.stale.as_ref()?;
        let (store, parts) = (self.cache.store.get()?, self.request.as_ref()?);
        let asked_by_us = !self.conditions.is_empty();
        let tags = (stored.field("etag"), stored.field("last-modified"));
        if !asked_by_us && !rules::is_about(response, tags.0, tags.1) {
            return None;
        }
        let now = SystemTime::now();
        let mut head = stored.updated_by(response)?;
        // RFC 9110 §6.6.1: a recipient adds a missing date
        if values(&response.fields, "date").next().is_none() {
            head.fields.retain(|field| !field.name.eq_ignore_ascii_case("date"));
            let value = httpdate::fmt_http_date(now).into_bytes();
            head.fields.push(Field { name: "Date".to_owned(), value });
        }
        self.cache.counts.validated.fetch_add(1, Relaxed);
        let policy = rules::policy(parts, &head, self.asked, now);
        let keep = policy.is_some() && shared;
        let policy = policy.unwrap_or_else(|| stored.same_policy());
        let fresh = StoredResponse::new(policy, &head, stored.address, stored.body.clone())?;
        let fresh = Arc::new(fresh);
        let entry = CacheEntry::Response(Arc::clone(&fresh));
        let kept = keep && self.watch.unless_changed(|| put(store, key, entry)).is_some();
        if !kept && !self.no_store {
            // valid for this request, but not cacheable any more
            self.cache.remove(key);
        }
        asked_by_us.then(|| self.cache.hit(fresh, request, now, Some((self.forward, kept))))
    }

    /// Removes the cached response when an unsafe method has changed the resource, and those of the resources that
    /// the answer names (RFC 9111 §4.4).
    pub(crate) fn on_response(&self, request: &Request, response: &Response) {
        let safe = matches!(request.method.as_str(), "GET" | "HEAD" | "OPTIONS" | "TRACE");
        if safe || !(200..400).contains(&response.status) {
            return;
        }
        let named = ["location", "content-location"].into_iter();
        // each has one value (RFC 9110 §8.7, §10.2.2); more would let an answer take away any number of others
        let named = named.filter_map(|name| values(&response.fields, name).next());
        let named: Vec<String> = named.filter_map(|value| self.key_of(value)).collect();
        for key in named.iter().chain([&self.key]) {
            self.cache.remove(key);
        }
    }

    /// The key of a resource of the same origin, from an absolute path or a whole URL without fragment.
    fn key_of(&self, reference: &[u8]) -> Option<String> {
        let reference = std::str::from_utf8(reference).ok()?;
        let (scope, url) = self.key.split_once('\n')?;
        let origin = origin_of(url)?;
        let path = match reference.strip_prefix(origin) {
            Some("") => "/",
            Some(path) => path,
            None => reference,
        };
        let is_path = path.starts_with('/') && !path.starts_with("//");
        let path = path.split('#').next().unwrap_or_default();
        is_path.then(|| format!("{scope}\n{origin}{path}"))
    }
}

/// A response that goes to its client, and into the cache once its last byte is here: before that is sent, so that a
/// client that has it all finds it stored.
#[derive(Debug)]
pub(crate) struct PassingResponse<'a> {
    visit: &'a Visit,
    response: &'a Response,
    from: Option<IpAddr>,
    /// `None` once it is stored.
    copy: Option<BodyCopy>,
}

impl PassingResponse<'_> {
    /// The next bytes of its body.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if let Some(copy) = &mut self.copy {
            copy.push(bytes);
        }
    }

    /// Its body is whole.
    pub(crate) fn store(&mut self) {
        if let Some(copy) = self.copy.take() {
            self.visit.keep(self.response, copy, self.from);
        }
    }
}

/// Stores an entry instead of an older one. The disk may not take it; then the older one must not return from there.
pub(super) fn put(store: &HybridCache<String, CacheEntry>, key: &str, entry: CacheEntry) {
    if store.storage().may_contains(key) {
        store.remove(key);
    }
    store.insert(key.to_owned(), entry);
}

/// A URL up to its path.
fn origin_of(url: &str) -> Option<&str> {
    let authority = url.find("://")? + 3;
    let path = url[authority..].find('/')?;
    Some(&url[..authority + path])
}

fn nanos(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}
