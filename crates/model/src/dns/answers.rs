//! Answers of name servers: kept, served past their end while no server answers (RFC 8767), asked for again before
//! their end where they are popular, and evicted, the least recently used first.
//!
//! The driver calls [`Answers::on_question`] for each client's question. Where the decision says `ask`, it asks the
//! servers and reports with [`Answers::on_answer`] or [`Answers::on_failure`], exactly once, or stops where the question
//! was [`Displaced`]. Until then it calls [`Answers::on_deadline`] at the question's [`Answers::deadline`]. Every waiter is
//! handed back by one of the four.

use super::asker::Asker;
use super::questions::{GaveWay, Questions};
use crate::slab::{Handle, List, Slab};
use crate::units::{Bytes, Span, Time};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// How long clients may keep an answer that was served past its end (RFC 8767 §4).
pub const STALE_TTL: Span = Span::from_secs(30);
/// Questions for an answer that make it popular.
const POPULAR: u32 = 2;
/// An answer is asked for again in this last part of its time.
const LAST_PART: u64 = 10;
/// What an entry takes beside its key and its answer, in bytes: the table, its lists and allocations.
const ENTRY: u64 = 224;

/// Limits and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// The most that all entries take. Default 8 MiB.
    pub memory: Bytes,
    /// The least time that an answer is kept, unless its own is zero. Default 0 s.
    pub min_ttl: Span,
    /// The most. Default 1 h.
    pub max_ttl: Span,
    /// The most for "no such name" and "no such records" (RFC 2308 §5). Default 30 s.
    pub negative_ttl: Span,
    /// How long past its end an answer may be served (RFC 8767 §5). Default 1 d.
    pub stale: Span,
    /// How long a client waits before it is served an answer past its end (RFC 8767 §5). Default 1.8 s.
    pub patience: Span,
    /// After a failure, how long servers are not asked the same again (RFC 9520 §3.2). Default 5 s.
    pub retry: Span,
    /// The most questions of clients to servers at a time. Default 256.
    pub asking: usize,
    /// The most of this relay's own. Default 256.
    pub own: usize,
    /// The most clients' questions that wait. Default 4096.
    pub waiting: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            memory: Bytes::mib(8),
            min_ttl: Span::ZERO,
            max_ttl: Span::from_secs(3600),
            negative_ttl: Span::from_secs(30),
            stale: Span::from_secs(86_400),
            patience: Span::from_millis(1_800),
            retry: Span::from_secs(5),
            asking: 256,
            own: 256,
            waiting: 4096,
        }
    }
}

/// A server's answer.
#[derive(Debug, Clone)]
pub struct Found<A> {
    /// The answer, which is cheap to clone.
    pub answer: A,
    /// Its size in bytes.
    pub bytes: u64,
    /// How long it may be kept; zero: not at all.
    pub ttl: Span,
    /// Whether it says that something does not exist.
    pub negative: bool,
}

/// What a client is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<A> {
    /// An answer, and for how long it holds.
    Fresh(A, Span),
    /// An answer past its end; clients may keep it for [`STALE_TTL`].
    Stale(A),
    /// There is no answer.
    Failed,
    /// There is none, because the question gave way to others.
    GaveWay,
}

/// What becomes of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision<A> {
    /// It is answered at once; with `ask`, servers are asked all the same.
    Answer {
        /// The answer.
        outcome: Outcome<A>,
        /// Whether the driver asks the servers now.
        ask: bool,
    },
    /// It waits.
    Wait {
        /// Whether the driver asks the servers now; otherwise somebody has.
        ask: bool,
    },
}

/// Clients that waited, and what they are answered.
pub type Released<A, W> = (Outcome<A>, Vec<W>);

/// What gave way to another asker's question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Displaced<A, W, Q> {
    /// Clients that wait no longer, and what they are answered.
    pub released: Released<A, W>,
    /// A question that is not to be asked any more; `None`: others wait for it.
    pub question: Option<Q>,
}

#[derive(Debug)]
struct Entry<A> {
    key: Arc<[u8]>,
    /// None where all that is known is a failure.
    answer: Option<A>,
    until: Time,
    prefetch_at: Time,
    /// Not asked again before.
    retry_at: Time,
    hits: u32,
    bytes: u64,
}

/// What is kept and what was done, for the status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Snapshot {
    /// Entries, and the bytes that they take.
    pub entries: u64,
    /// See `entries`.
    pub bytes: u64,
    /// Questions that servers are asked now, and clients that wait.
    pub asking: u64,
    /// See `asking`.
    pub waiting: u64,
    /// Questions answered from memory.
    pub fresh: u64,
    /// Answered past their end.
    pub stale: u64,
    /// Not answered.
    pub failed: u64,
    /// Questions that servers were asked.
    pub asked: u64,
    /// Of these, before the end of an answer.
    pub prefetched: u64,
    /// Questions that joined one on its way.
    pub joined: u64,
    /// Entries that made room.
    pub evicted: u64,
}

/// The answers to questions, by keys that say all that an answer depends on. `A`: an answer; `W`: a client that
/// waits; `Q`: by which the driver stops asking.
#[derive(Debug)]
pub struct Answers<A, W, Q> {
    config: Config,
    entries: Slab<Entry<A>, 1>,
    index: BTreeMap<Arc<[u8]>, Handle>,
    /// The least recently used first.
    order: List,
    questions: Questions<W, Q>,
    counts: Snapshot,
}

impl<A: Clone, W, Q> Answers<A, W, Q> {
    /// Nothing is known yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            entries: Slab::with_capacity(0),
            index: BTreeMap::new(),
            order: List::new(0),
            questions: Questions::new(),
            counts: Snapshot::default(),
        }
    }

    /// Other limits from now on. Answers keep the times they have.
    pub fn configure(&mut self, config: Config) {
        self.config = config;
        self.make_room(0);
    }

    /// A client asks. `waiter` is made only if it waits, and `question` only if the driver asks servers. A new question
    /// always has a place: what gave way for it is handed back.
    pub fn on_question(
        &mut self,
        now: Time,
        (key, asker): (&[u8], &Asker),
        waiter: impl FnOnce() -> W,
        question: impl FnOnce() -> Q,
    ) -> (Decision<A>, Vec<Displaced<A, W, Q>>) {
        let handle = self.index.get(key).copied();
        let mut stale = None;
        let mut retry_at = Time::ZERO;
        if let Some(handle) = handle
            && let Some(entry) = self.entries.get_mut(handle)
        {
            retry_at = entry.retry_at;
            let kept = if entry.answer.is_some() { self.config.stale } else { Span::ZERO };
            if let (Some(answer), true) = (&entry.answer, now < entry.until) {
                let outcome = Outcome::Fresh(answer.clone(), entry.until.since(now));
                entry.hits = entry.hits.saturating_add(1);
                let due = now >= entry.prefetch_at && now >= retry_at && entry.hits >= POPULAR;
                self.touch(handle);
                self.counts.fresh += 1;
                // nobody waits for it, so nobody gives way to it
                let room = || self.questions.has_room(asker, self.most(asker));
                let ask = due && self.questions.stale_at(key).is_none() && room();
                if ask {
                    self.counts.prefetched += 1;
                    self.ask(now, key, asker, question());
                }
                return (Decision::Answer { outcome, ask }, Vec::new());
            }
            if now < entry.until + kept {
                stale = entry.answer.clone();
                self.touch(handle);
            } else if now >= retry_at {
                self.remove(handle);
            }
        }
        let on_way = self.questions.stale_at(key);
        let waits = match on_way {
            Some(stale_at) => stale.is_none() || now < stale_at,
            None => now >= retry_at,
        };
        if !waits {
            // it was asked a moment ago in vain, or clients have waited long enough
            return (Decision::Answer { outcome: self.without(stale, 1), ask: false }, Vec::new());
        }
        let mut gone = Vec::new();
        if on_way.is_none() {
            gone = self.questions.make_room(asker, self.most(asker));
            self.ask(now, key, asker, question());
        } else {
            self.counts.joined += 1;
        }
        gone.extend(self.questions.make_room_to_wait(asker, self.config.waiting));
        self.questions.wait(key, asker, now + self.config.patience, waiter());
        let displaced = gone.into_iter().map(|gone| self.hand_back(now, gone)).collect();
        (Decision::Wait { ask: on_way.is_none() }, displaced)
    }

    /// Whether a question would be a new one that servers are asked and somebody waits for.
    pub fn begins(&self, now: Time, key: &[u8]) -> bool {
        let entry = self.index.get(key).and_then(|handle| self.entries.get(*handle));
        let may_retry = entry.is_none_or(|entry| now >= entry.retry_at);
        may_retry && self.kept(now, key).is_none() && self.questions.stale_at(key).is_none()
    }

    /// An answer before its end, without a use of it.
    pub fn kept(&self, now: Time, key: &[u8]) -> Option<&A> {
        let entry = self.entries.get(*self.index.get(key)?)?;
        entry.answer.as_ref().filter(|_| now < entry.until)
    }

    /// An answer past its end that `serves` takes, for a client whose question servers are not to be asked.
    pub fn past_end(
        &mut self,
        now: Time,
        key: &[u8],
        serves: impl FnOnce(&A) -> bool,
    ) -> Option<A> {
        let handle = *self.index.get(key)?;
        let entry = self.entries.get(handle).filter(|entry| now >= entry.until)?;
        let answer = stale_answer(entry, now, &self.config).filter(serves)?;
        self.touch(handle);
        self.counts.stale += 1;
        Some(answer)
    }

    /// A server has answered. Returns what those that waited are answered.
    pub fn on_answer(&mut self, now: Time, key: &[u8], found: Found<A>) -> Released<A, W> {
        let Found { answer, bytes, ttl, negative } = found;
        if let Some(handle) = self.index.get(key).copied() {
            self.remove(handle);
        }
        let most = if negative { self.config.negative_ttl } else { self.config.max_ttl };
        let ttl = match ttl {
            Span::ZERO => Span::ZERO,
            ttl => ttl.max(self.config.min_ttl).min(most),
        };
        let last = Span::from_nanos(ttl.as_nanos() / LAST_PART);
        if ttl > Span::ZERO {
            let until = now + ttl;
            let prefetch_at = until - last;
            let answer = Some(answer.clone());
            self.insert(key, bytes, |key, bytes| Entry {
                key,
                answer,
                until,
                prefetch_at,
                retry_at: Time::ZERO,
                hits: 0,
                bytes,
            });
        }
        (Outcome::Fresh(answer, ttl), self.questions.end(key))
    }

    /// No server has answered. Returns what those that waited are answered.
    pub fn on_failure(&mut self, now: Time, key: &[u8]) -> Released<A, W> {
        let retry_at = now + self.config.retry;
        let mut stale = None;
        match self.index.get(key).copied().and_then(|handle| self.entries.get_mut(handle)) {
            Some(entry) => {
                entry.retry_at = retry_at;
                stale = stale_answer(entry, now, &self.config);
            }
            None => self.insert(key, 0, |key, bytes| Entry {
                key,
                answer: None,
                until: now,
                prefetch_at: Time::NEVER,
                retry_at,
                hits: 0,
                bytes,
            }),
        }
        let waiters = self.questions.end(key);
        (self.without(stale, waiters.len() as u64), waiters)
    }

    /// When [`Self::on_deadline`] has something to do for this question.
    pub fn deadline(&self, key: &[u8]) -> Time {
        self.questions.deadline(key)
    }

    /// Hands back those that waited long enough, if there is an answer past its end. Otherwise they wait on.
    pub fn on_deadline(&mut self, now: Time, key: &[u8]) -> Option<Released<A, W>> {
        let Self { entries, index, config, questions, .. } = self;
        let stale = || stale_answer(entries.get(*index.get(key)?)?, now, config);
        let (answer, waiters) = questions.on_deadline(now, key, stale)?;
        self.counts.stale += waiters.len() as u64;
        Some((Outcome::Stale(answer), waiters))
    }

    /// Figures for the status.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            entries: self.entries.len() as u64,
            asking: self.questions.len() as u64,
            waiting: self.questions.waiting() as u64,
            ..self.counts
        }
    }

    fn hand_back(&mut self, now: Time, gone: GaveWay<W, Q>) -> Displaced<A, W, Q> {
        let entry = self.index.get(&gone.key).and_then(|handle| self.entries.get(*handle));
        let stale = entry.and_then(|entry| stale_answer(entry, now, &self.config));
        let outcome = match self.without(stale, gone.waiters.len() as u64) {
            Outcome::Failed => Outcome::GaveWay,
            stale => stale,
        };
        Displaced { released: (outcome, gone.waiters), question: gone.question }
    }

    /// An answer past its end, if there is one; counted for so many clients.
    fn without(&mut self, stale: Option<A>, clients: u64) -> Outcome<A> {
        match stale {
            Some(answer) => {
                self.counts.stale += clients;
                Outcome::Stale(answer)
            }
            None => {
                self.counts.failed += clients;
                Outcome::Failed
            }
        }
    }

    /// The most questions that count for this asker.
    const fn most(&self, asker: &Asker) -> usize {
        match asker {
            Asker::Relay => self.config.own,
            _ => self.config.asking,
        }
    }

    fn ask(&mut self, now: Time, key: &[u8], asker: &Asker, question: Q) {
        self.questions.begin(key, asker, now + self.config.patience, question);
        self.counts.asked += 1;
    }

    fn touch(&mut self, handle: Handle) {
        self.order.unlink(&mut self.entries, handle);
        self.order.push_back(&mut self.entries, handle);
    }

    fn insert(&mut self, key: &[u8], bytes: u64, entry: impl FnOnce(Arc<[u8]>, u64) -> Entry<A>) {
        let bytes = ENTRY + key.len() as u64 + bytes;
        // what alone is too large would evict all others in vain
        if bytes > self.config.memory.as_u64() {
            return;
        }
        self.make_room(bytes);
        let key: Arc<[u8]> = key.into();
        let handle = self.entries.insert(entry(Arc::clone(&key), bytes));
        self.order.push_back(&mut self.entries, handle);
        self.index.insert(key, handle);
        self.counts.bytes += bytes;
    }

    /// Evicts until so many more bytes fit.
    fn make_room(&mut self, bytes: u64) {
        while self.counts.bytes + bytes > self.config.memory.as_u64()
            && let Some(oldest) = self.order.head(&self.entries)
        {
            self.remove(oldest);
            self.counts.evicted += 1;
        }
    }

    fn remove(&mut self, handle: Handle) {
        self.order.unlink(&mut self.entries, handle);
        if let Some(entry) = self.entries.remove(handle) {
            self.index.remove(&entry.key);
            self.counts.bytes -= entry.bytes;
        }
    }
}

/// An entry's answer, while it may be served past its end.
fn stale_answer<A: Clone>(entry: &Entry<A>, now: Time, config: &Config) -> Option<A> {
    entry.answer.clone().filter(|_| now < entry.until + config.stale)
}
