//! Newcomers while resources are low: in, in after an idle one was closed, or in turn.

use super::Pressure;
use crate::slab::{Handle, List, Slab};
use crate::units::{Span, Time};
use alloc::collections::{BTreeMap, BTreeSet};

/// Whether idle connections make room, and how many clients may wait for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionConfig {
    /// Whether idle connections are closed for new clients (the study's schemes 3 and 4); without
    /// it they wait for a release (1 and 2). Default true.
    pub evict: bool,
    /// Most clients that wait at a time; default 1,024. With 0 all are refused.
    pub most_waiting: usize,
    /// How long one waits before it is refused; default 10 s, below the patience of common clients.
    pub patience: Span,
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self { evict: true, most_waiting: 1_024, patience: Span::from_secs(10) }
    }
}

/// The decision on a new client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmissionVerdict {
    /// Open it.
    Proceed,
    /// Close so many idle connections first, the longest idle first; several only after a lowered
    /// limit.
    Evict(u64),
    /// All are busy: [`Admission::next`] or `on_deadline` will name it; [`Admission::leave`] if it
    /// goes.
    Wait(Ticket),
    /// Too many wait already: refuse it, with a time to try again (`Retry-After`).
    Refuse {
        /// When the one that has waited longest is in or refused: the next place.
        retry_after: Span,
    },
}

/// The ticket of a waiting client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(Handle);

/// A snapshot of the waiting clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct AdmissionSnapshot {
    /// Waiting now.
    pub waiting: usize,
    /// Since when the first of them has waited.
    pub since: Option<Time>,
    /// Let in at once.
    pub proceeded: u64,
    /// Let in at once after idle connections were closed.
    pub evicted_for: u64,
    /// Had to wait.
    pub waited: u64,
    /// Of those, let in.
    pub served: u64,
    /// Of those, refused because their patience was over.
    pub timed_out: u64,
    /// Of those, gone by themselves.
    pub left: u64,
    /// Of those, refused for a newcomer whose source waits with fewer.
    pub displaced: u64,
    /// Refused since too many waited.
    pub refused: u64,
}

#[derive(Debug, Clone)]
struct Waiting<W> {
    who: W,
    since: Time,
}

/// Decides on new clients, in a time that grows with the logarithm of the sources that wait. After every event that could make room (a
/// connection closed or became idle, a level fell) call `next` until `None`: then nobody waits
/// while a connection is idle. Waiting clients precede new ones. Report levels in between
/// ([`Pressure::on_level`]), because each admitted client uses some.
#[derive(Debug, Clone)]
pub struct Admission<W, S = ()> {
    config: AdmissionConfig,
    waiting: Slab<Waiting<W>, 1>,
    turns: List,
    source: fn(&W) -> S,
    /// How many of a source wait, and the same by number.
    by_source: BTreeMap<S, usize>,
    by_number: BTreeSet<(usize, S)>,
    counts: AdmissionSnapshot,
}

impl<W> Admission<W> {
    /// Nobody waits; all are of one source.
    pub fn new(config: AdmissionConfig) -> Self {
        Self::by_source(config, |_| ())
    }
}

impl<W, S: Ord + Clone> Admission<W, S> {
    /// Nobody waits; `source` says of whom one is, and never anything else.
    pub fn by_source(config: AdmissionConfig, source: fn(&W) -> S) -> Self {
        Self {
            config,
            waiting: Slab::with_capacity(0),
            turns: List::new(0),
            source,
            by_source: BTreeMap::new(),
            by_number: BTreeSet::new(),
            counts: AdmissionSnapshot::default(),
        }
    }

    /// Sets other limits, also the patience of waiting clients; a smaller number refuses none of
    /// them.
    pub const fn set_config(&mut self, config: AdmissionConfig) {
        self.config = config;
    }

    /// Somebody wants a new connection, with `idle` connections in the register.
    pub fn ask(&mut self, now: Time, who: W, pressure: &Pressure, idle: usize) -> AdmissionVerdict {
        let ahead = self.waiting.len();
        // those ahead have the first idle ones
        let verdict = if ahead == 0 || idle > ahead {
            self.room(pressure, idle.saturating_sub(ahead))
        } else {
            None
        };
        if let Some(verdict) = verdict {
            match verdict {
                AdmissionVerdict::Proceed => self.counts.proceeded += 1,
                _ => self.counts.evicted_for += 1,
            }
            return verdict;
        }
        self.wait(now, who)
    }

    /// Somebody has to wait, or to be refused, whatever room there is.
    pub fn wait(&mut self, now: Time, who: W) -> AdmissionVerdict {
        if self.waiting.len() >= self.config.most_waiting {
            self.counts.refused += 1;
            let next = self.deadline();
            let soonest = if next == Time::NEVER { self.config.patience } else { next.since(now) };
            return AdmissionVerdict::Refuse { retry_after: soonest.max(SHORTEST_RETRY) };
        }
        self.counts.waited += 1;
        let source = (self.source)(&who);
        let others = self.by_source.get(&source).copied().unwrap_or(0);
        self.recount(source, others, others + 1);
        let handle = self.waiting.insert(Waiting { who, since: now });
        self.turns.push_back(&mut self.waiting, handle);
        AdmissionVerdict::Wait(Ticket(handle))
    }

    /// The next waiting client that may enter, with `Proceed` or `Evict`.
    pub fn next(&mut self, pressure: &Pressure, idle: usize) -> Option<(W, AdmissionVerdict)> {
        self.next_of(pressure, idle, |_| true)
    }

    /// The same, of the sources that `may` enter.
    pub fn next_of(
        &mut self,
        pressure: &Pressure,
        idle: usize,
        may: impl Fn(&S) -> bool,
    ) -> Option<(W, AdmissionVerdict)> {
        let (ticket, verdict) = self.find(pressure, idle, may)?;
        Some((self.admit(ticket)?, verdict))
    }

    /// The same, who waits on until it is admitted. Where nothing could be evicted for it, it is not.
    pub fn find(
        &self,
        pressure: &Pressure,
        idle: usize,
        may: impl Fn(&S) -> bool,
    ) -> Option<(Ticket, AdmissionVerdict)> {
        let verdict = self.room(pressure, idle)?;
        let may: BTreeSet<_> = self.by_source.keys().filter(|source| may(source)).collect();
        if may.is_empty() {
            return None;
        }
        let mut first = self.turns.head(&self.waiting)?;
        while !self.get(Ticket(first)).is_some_and(|who| may.contains(&(self.source)(who))) {
            first = self.waiting.after(0, first)?;
        }
        Some((Ticket(first), verdict))
    }

    /// One who waits; `None` when it was named or refused before.
    pub fn get(&self, ticket: Ticket) -> Option<&W> {
        self.waiting.get(ticket.0).map(|waiting| &waiting.who)
    }

    /// Lets in one who waits; `None` when it was named or refused before.
    pub fn admit(&mut self, ticket: Ticket) -> Option<W> {
        let who = self.take(ticket.0);
        self.counts.served += u64::from(who.is_some());
        who
    }

    /// The client that leaves a full queue to a newcomer: the last of the source that waits with the
    /// most, where that has two more than the newcomer's.
    pub fn displace(&mut self, newcomer: &S) -> Option<W> {
        if self.waiting.len() < self.config.most_waiting {
            return None;
        }
        let own = self.by_source.get(newcomer).copied().unwrap_or(0);
        let (_, source) = self.by_number.last().filter(|(most, _)| *most >= own + 2)?;
        let mut last = self.turns.tail(&self.waiting)?;
        while self.get(Ticket(last)).is_some_and(|who| (self.source)(who) != *source) {
            last = self.waiting.before(0, last)?;
        }
        let who = self.take(last);
        self.counts.displaced += u64::from(who.is_some());
        who
    }

    /// The client that has waited longest.
    pub fn first(&self) -> Option<&W> {
        self.get(Ticket(self.turns.head(&self.waiting)?))
    }

    /// Lets that client in, for which another gave its place.
    pub fn admit_first(&mut self) -> Option<W> {
        self.turns.head(&self.waiting).and_then(|first| self.admit(Ticket(first)))
    }

    /// One who waited has gone by itself; `None` when it was named or refused before.
    pub fn leave(&mut self, ticket: Ticket) -> Option<W> {
        let who = self.take(ticket.0);
        self.counts.left += u64::from(who.is_some());
        who
    }

    /// When the first one's patience is over.
    pub fn deadline(&self) -> Time {
        let first = self.turns.head(&self.waiting).and_then(|first| self.waiting.get(first));
        first.map_or(Time::NEVER, |first| first.since + self.config.patience)
    }

    /// A client whose patience is over: refuse it. Call until `None`.
    pub fn on_deadline(&mut self, now: Time) -> Option<W> {
        if now < self.deadline() {
            return None;
        }
        let first = self.turns.head(&self.waiting)?;
        let who = self.take(first)?;
        self.counts.timed_out += 1;
        Some(who)
    }

    /// How many wait.
    pub const fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// One look.
    pub fn snapshot(&self) -> AdmissionSnapshot {
        let first = self.turns.head(&self.waiting).and_then(|first| self.waiting.get(first));
        AdmissionSnapshot {
            waiting: self.waiting(),
            since: first.map(|first| first.since),
            ..self.counts
        }
    }

    fn room(&self, pressure: &Pressure, idle: usize) -> Option<AdmissionVerdict> {
        if !pressure.low() {
            return Some(AdmissionVerdict::Proceed);
        }
        let idle = idle as u64;
        (self.config.evict && idle > 0)
            .then(|| AdmissionVerdict::Evict((1 + pressure.over_limit()).min(idle)))
    }

    fn take(&mut self, handle: Handle) -> Option<W> {
        let source = self.get(Ticket(handle)).map(self.source)?;
        self.turns.unlink(&mut self.waiting, handle);
        let before = self.by_source.get(&source).copied().unwrap_or(0);
        self.recount(source, before, before.saturating_sub(1));
        self.waiting.remove(handle).map(|waiting| waiting.who)
    }

    fn recount(&mut self, source: S, before: usize, now: usize) {
        self.by_number.remove(&(before, source.clone()));
        if now == 0 {
            self.by_source.remove(&source);
            return;
        }
        self.by_number.insert((now, source.clone()));
        self.by_source.insert(source, now);
    }
}

/// `Retry-After` counts whole seconds (RFC 9110 §10.2.3), and 0 would be an invitation to hammer.
const SHORTEST_RETRY: Span = Span::from_secs(1);

#[cfg(test)]
mod tests;
