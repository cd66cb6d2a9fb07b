//! Messages to one receiver: when they are sent, what is in them, and what becomes of those that fail.

use super::{Key, Notice};
use crate::units::{Span, Time};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// The waits and bounds of an [`Outbox`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboxConfig {
    /// Between two messages. Default 5 s.
    pub gap: Span,
    /// Between two messages in which there is something of one subject. Default 1 min.
    pub subject_gap: Span,
    /// After a first failure; twice as long with each further one. Default 10 s.
    pub first_wait: Span,
    /// But never longer than this. Default 15 min.
    pub longest_wait: Span,
    /// What has not been delivered for so long is dropped. Default 1 day.
    pub give_up: Span,
    /// The most notices of a message. Default 100.
    pub most: usize,
}

impl Default for OutboxConfig {
    fn default() -> Self {
        Self {
            gap: Span::from_secs(5),
            subject_gap: Span::from_secs(60),
            first_wait: Span::from_secs(10),
            longest_wait: Span::from_secs(900),
            give_up: Span::from_secs(86_400),
            most: 100,
        }
    }
}

/// How deliveries stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutboxSnapshot {
    /// Notices that wait, or are under way.
    pub waiting: usize,
    /// Messages delivered.
    pub delivered: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Failures in a row.
    pub failures: u32,
    /// Notices that were given up.
    pub dropped: u64,
}

/// Notices for one receiver. At most one is kept of each alert, the newest, so a receiver that is away costs
/// no more memory than there are alerts.
#[derive(Debug, Clone)]
pub struct Outbox<A> {
    config: OutboxConfig,
    waiting: BTreeMap<Key<A>, (Time, Notice<A>)>,
    under_way: Vec<(Time, Notice<A>)>,
    /// When a subject was in a message last.
    sent: BTreeMap<String, Time>,
    not_before: Time,
    counts: OutboxSnapshot,
}

impl<A: Ord + Clone> Outbox<A> {
    /// Nothing waits.
    pub const fn new(config: OutboxConfig) -> Self {
        let counts =
            OutboxSnapshot { waiting: 0, delivered: 0, failed: 0, failures: 0, dropped: 0 };
        Self {
            config,
            waiting: BTreeMap::new(),
            under_way: Vec::new(),
            sent: BTreeMap::new(),
            not_before: Time::ZERO,
            counts,
        }
    }

    /// Something is to be told. It replaces what waits about the same alert: the beginning is told with the end.
    pub fn on_notice(&mut self, now: Time, notice: Notice<A>) {
        self.waiting.insert(notice.key.clone(), (now, notice));
    }

    /// When a message is due, or something is given up; never while one is under way.
    pub fn deadline(&self) -> Time {
        if !self.under_way.is_empty() {
            return Time::NEVER;
        }
        let due = |(key, (since, _)): (&Key<A>, &(Time, Notice<A>))| {
            let ready = self.ready(&key.subject).max(self.not_before);
            ready.min(*since + self.config.give_up)
        };
        self.waiting.iter().map(due).min().unwrap_or(Time::NEVER)
    }

    fn ready(&self, subject: &str) -> Time {
        self.sent.get(subject).map_or(Time::ZERO, |sent| *sent + self.config.subject_gap)
    }

    /// The message that is to be sent now; empty where none is. The caller says what became of it before it asks for another.
    pub fn on_deadline(&mut self, now: Time) -> Vec<Notice<A>> {
        if !self.under_way.is_empty() {
            return Vec::new();
        }
        let (before, give_up) = (self.waiting.len(), self.config.give_up);
        self.waiting.retain(|_, (since, _)| now.since(*since) < give_up);
        self.counts.dropped += (before - self.waiting.len()) as u64;
        self.sent.retain(|_, sent| now.since(*sent) < self.config.subject_gap);
        if now < self.not_before {
            return Vec::new();
        }
        // what has waited longest goes first where not all has room
        let mut ready: Vec<(Time, Key<A>)> = self
            .waiting
            .iter()
            .filter(|(key, _)| self.ready(&key.subject) <= now)
            .map(|(key, (since, _))| (*since, key.clone()))
            .collect();
        ready.sort();
        ready.truncate(self.config.most);
        let taken = ready.iter().filter_map(|(_, key)| self.waiting.remove(key));
        self.under_way = taken.collect();
        self.under_way.iter().map(|(_, notice)| notice.clone()).collect()
    }

    /// The message has arrived.
    pub fn on_delivered(&mut self, now: Time) {
        for (_, notice) in core::mem::take(&mut self.under_way) {
            self.sent.insert(notice.key.subject, now);
        }
        self.not_before = now + self.config.gap;
        (self.counts.failures, self.counts.delivered) = (0, self.counts.delivered + 1);
    }

    /// It has not. What it held waits again, unless something newer does.
    pub fn on_failed(&mut self, now: Time) {
        for (since, notice) in core::mem::take(&mut self.under_way) {
            self.waiting.entry(notice.key.clone()).or_insert((since, notice));
        }
        let factor = 2_u64.saturating_pow(self.counts.failures.min(32));
        let wait = self.config.first_wait.saturating_mul(factor).min(self.config.longest_wait);
        self.not_before = now + wait.max(self.config.gap);
        self.counts.failures = self.counts.failures.saturating_add(1);
        self.counts.failed += 1;
    }

    /// How it stands.
    pub fn snapshot(&self) -> OutboxSnapshot {
        OutboxSnapshot { waiting: self.waiting.len() + self.under_way.len(), ..self.counts }
    }
}
