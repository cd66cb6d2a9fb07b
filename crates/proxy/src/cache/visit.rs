//! A request on its way past the cache, and what becomes of what is stored when it is answered.

use super::copy::Copy;
use super::entry::{Entry, Stored, Varies};
use super::rules::{self, Forward};
use super::{CHANGED, Cache, Hit};
use crate::http::body::Body;
use crate::http::fields::values;
use crate::http::head::{Field, Request, Response};
use http::request;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// A request on its way past the cache.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(super) cache: Arc<Cache>,
    pub(super) key: String,
    pub(super) forward: Forward,
    pub(super) asked: SystemTime,
    /// As the calculations see it; `None` where nothing is to be stored.
    pub(super) request: Option<request::Parts>,
    /// What is stored and must be validated, and the key it stands under.
    pub(super) stale: Option<(String, Arc<Stored>)>,
    /// What the relay asks on its own, to validate it.
    pub(super) conditions: Vec<Field>,
}

impl Visit {
    /// What the relay asks on its own.
    pub(crate) fn conditions(&self) -> &[Field] {
        &self.conditions
    }

    /// What `Cache-Status` says of a response that passes, behind the relay's name.
    pub(crate) fn said(&self, status: u16, kept: bool) -> String {
        let mut said = format!("fwd={}", self.forward.token());
        if !self.conditions.is_empty() {
            said.push_str(&format!("; fwd-status={status}"));
        }
        if kept {
            said.push_str("; stored");
        }
        said
    }

    /// A place for the body of a response that may be stored.
    pub(crate) fn copy(&self, response: &Response, body: Body) -> Option<Copy> {
        let request = self.request.as_ref()?;
        let length = match body {
            Body::None => Some(0),
            Body::Length(n) => Some(n),
            Body::Chunked => None,
            // nobody knows whether it is all
            Body::UntilClose => return None,
        };
        if length.is_some_and(|n| n > self.cache.largest()) {
            return None;
        }
        let policy = rules::policy(request, response, self.asked, SystemTime::now())?;
        Some(Copy::new(policy, length, self.cache.largest()))
    }

    /// A response that is not kept has taken the place of what is stored.
    pub(crate) fn drop_older(&self) {
        if let Some((key, _)) = &self.stale {
            self.cache.remove(key);
        }
    }

    fn mark(&self) -> &AtomicU64 {
        let mut hasher = DefaultHasher::new();
        self.key.hash(&mut hasher);
        &self.cache.changed[hasher.finish() as usize % CHANGED]
    }

    /// Keeps a response whose body is all there.
    pub(crate) fn keep(&self, response: &Response, copy: Copy, from: Option<IpAddr>) {
        let (Some(store), Some(request)) = (self.cache.store.get(), &self.request) else { return };
        let Some((policy, body)) = copy.finish() else { return self.drop_older() };
        // asked for before something changed it: nobody knows which of the two it shows
        if self.mark().load(Relaxed) >= nanos(self.asked) {
            return;
        }
        let Some(names) = rules::varies_by(response) else { return };
        let Some(stored) = Stored::new(policy, response, from, body) else { return };
        let entry = Entry::Response(Arc::new(stored));
        if names.is_empty() {
            store.insert(self.key.clone(), entry);
        } else {
            // what was selected by the same fields stays findable
            let varies = match store.memory().get(&self.key).map(|e| e.value().clone()) {
                Some(Entry::Varies(varies)) if varies.names == names => varies,
                _ => Arc::new(Varies { names, mark: nanos(SystemTime::now()) }),
            };
            store.insert(varies.key(&self.key, request), entry);
            store.insert(self.key.clone(), Entry::Varies(varies));
        }
        self.cache.counts.stored.fetch_add(1, Relaxed);
    }

    /// The stored response, made fresh by a 304; for the client, where it was the relay that asked. Asked with
    /// one response's validators, a 304 is about that one, whatever it says or leaves out.
    pub(crate) fn on_not_modified(&self, request: &Request, response: &Response) -> Option<Hit> {
        let (key, stored) = self.stale.as_ref()?;
        let (store, parts) = (self.cache.store.get()?, self.request.as_ref()?);
        let asked_by_us = !self.conditions.is_empty();
        let tags = (stored.field("etag"), stored.field("last-modified"));
        if !asked_by_us && !rules::is_about(response, tags.0, tags.1) {
            return None;
        }
        let now = SystemTime::now();
        let mut head = stored.updated_by(response)?;
        // RFC 9110 §6.6.1: who receives a response without a date gives it one
        if values(&response.fields, "date").next().is_none() {
            head.fields.retain(|field| !field.name.eq_ignore_ascii_case("date"));
            let value = httpdate::fmt_http_date(now).into_bytes();
            head.fields.push(Field { name: "Date".to_owned(), value });
        }
        self.cache.counts.validated.fetch_add(1, Relaxed);
        let policy = rules::policy(parts, &head, self.asked, now);
        let kept = policy.is_some() && self.mark().load(Relaxed) < nanos(self.asked);
        let policy = policy.unwrap_or_else(|| stored.policy.clone());
        let fresh = Stored::new(policy, &head, stored.address, stored.body.clone())?;
        let fresh = Arc::new(fresh);
        if kept {
            store.insert(key.clone(), Entry::Response(Arc::clone(&fresh)));
        } else {
            // true for this once, and not to be kept any more
            self.cache.remove(key);
        }
        asked_by_us.then(|| self.cache.hit(fresh, request, now, Some((self.forward, kept))))
    }

    /// What a response takes away: that of a method that changes things has made what is stored for its URL
    /// untrue (RFC 9111 §4.4).
    pub(crate) fn on_response(&self, request: &Request, response: &Response) {
        let safe = matches!(request.method.as_str(), "GET" | "HEAD" | "OPTIONS" | "TRACE");
        if safe || !(200..400).contains(&response.status) {
            return;
        }
        self.mark().store(nanos(SystemTime::now()), Relaxed);
        self.cache.remove(&self.key);
    }
}

fn nanos(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}
