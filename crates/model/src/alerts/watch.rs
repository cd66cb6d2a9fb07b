//! Which alerts stand.

use super::{Key, Notice, State};
use crate::units::{Span, Time};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// The waits of [`Alerts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// An alert fires when something was wrong for so long without a pause, and resolves when it was well for as long.
    pub after: Span,
    /// How often an alert that stands is told again; never where there is none.
    pub repeat: Option<Span>,
    /// An alert that fires again within this time after it resolved comes and goes. It must then be well for twice as
    /// long as the time before to resolve. Default 1 h.
    pub calm: Span,
    /// But never for longer than this, unless `after` is longer. Default 30 min.
    pub longest_hold: Span,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            after: Span::from_secs(60),
            repeat: Some(Span::from_secs(86_400)),
            calm: Span::from_secs(3600),
            longest_hold: Span::from_secs(1800),
        }
    }
}

/// How a subject looks. One that is not mentioned is well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Wrong.
    Bad,
    /// Neither: beyond the limit at which an alert resolves, and not at the one at which it fires. What stands, stands.
    Between,
}

/// What was seen of a subject that is not well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact<A> {
    /// Of what.
    pub key: Key<A>,
    /// How it looks.
    pub seen: Seen,
    /// In words.
    pub text: String,
}

/// An alert that stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firing<A> {
    /// What it is about.
    pub key: Key<A>,
    /// Since when it was wrong, seconds since 1970.
    pub since: u64,
    /// In words, as it was seen last.
    pub text: String,
}

#[derive(Debug, Clone, Default)]
struct Watched {
    text: String,
    /// When it was first seen wrong, seconds since 1970.
    since: u64,
    bad: Option<Time>,
    good: Option<Time>,
    /// When it fired, or was told again.
    told: Option<Time>,
    resolved: Option<Time>,
    /// How often it fired soon after it had resolved.
    returns: u32,
}

/// Decides which alerts stand. Looks may come at any time; none is needed between two deadlines.
#[derive(Debug, Clone)]
pub struct Alerts<A> {
    config: Config,
    watched: BTreeMap<Key<A>, Watched>,
}

impl<A: Ord + Clone> Alerts<A> {
    /// Nothing stands.
    pub const fn new(config: Config) -> Self {
        Self { config, watched: BTreeMap::new() }
    }

    /// Other waits from now on.
    pub fn set_config(&mut self, config: Config) {
        self.config = config;
    }

    /// An alert stood when the program ended: it has been told, and stands until it is well.
    pub fn on_restored(&mut self, now: Time, firing: Firing<A>) {
        let Firing { key, since, text } = firing;
        let watched =
            Watched { text, since, told: Some(now), bad: Some(now), ..Watched::default() };
        self.watched.insert(key, watched);
    }

    /// Everything that is not well now; `wall` is the time of day, seconds since 1970. Returns what is to be told.
    pub fn on_look(&mut self, now: Time, wall: u64, facts: Vec<Fact<A>>) -> Vec<Notice<A>> {
        let mut seen: BTreeMap<Key<A>, (Seen, String)> = BTreeMap::new();
        for Fact { key, seen: how, text } in facts {
            seen.insert(key, (how, text));
        }
        for (key, watched) in &mut self.watched {
            match seen.remove(key) {
                Some((Seen::Bad, text)) => watched.on_bad(now, wall, text),
                Some((Seen::Between, text)) => watched.on_between(text),
                None => {
                    watched.bad = None;
                    watched.good.get_or_insert(now);
                }
            }
        }
        for (key, (how, text)) in seen {
            if how == Seen::Bad {
                let mut watched = Watched::default();
                watched.on_bad(now, wall, text);
                self.watched.insert(key, watched);
            }
        }
        self.on_deadline(now, wall)
    }

    /// What fires, resolves or is told again by now, as it was seen last.
    pub fn on_deadline(&mut self, now: Time, wall: u64) -> Vec<Notice<A>> {
        let (config, mut notices) = (self.config, Vec::new());
        for (key, watched) in &mut self.watched {
            let (state, again) = match watched.due(&config) {
                Some((at, state, again)) if at <= now => (state, again),
                _ => continue,
            };
            let until = (state == State::Resolved).then_some(wall);
            match state {
                State::Firing => watched.fire(now, again, &config),
                State::Resolved => (watched.told, watched.resolved) = (None, Some(now)),
            }
            let (since, text) = (watched.since, watched.text.clone());
            notices.push(Notice { key: key.clone(), state, since, until, text });
        }
        self.watched.retain(|_, watched| !watched.is_over(now, &config));
        notices
    }

    /// When the next alert fires, resolves or is told again if nothing changes.
    pub fn deadline(&self) -> Time {
        let due = self.watched.values().filter_map(|watched| watched.due(&self.config));
        due.map(|(at, ..)| at).min().unwrap_or(Time::NEVER)
    }

    /// The alerts that stand, by subject.
    pub fn snapshot(&self) -> Vec<Firing<A>> {
        let standing = self.watched.iter().filter(|(_, watched)| watched.told.is_some());
        let firing = |(key, watched): (&Key<A>, &Watched)| Firing {
            key: key.clone(),
            since: watched.since,
            text: watched.text.clone(),
        };
        standing.map(firing).collect()
    }
}

impl Watched {
    fn on_bad(&mut self, now: Time, wall: u64, text: String) {
        if self.bad.is_none() {
            self.bad = Some(now);
            if self.told.is_none() {
                self.since = wall;
            }
        }
        (self.good, self.text) = (None, text);
    }

    fn on_between(&mut self, text: String) {
        self.good = None;
        match self.told {
            Some(_) => self.text = text,
            None => self.bad = None,
        }
    }

    /// What is due next, and whether it was told before.
    fn due(&self, config: &Config) -> Option<(Time, State, bool)> {
        let Some(told) = self.told else {
            return self.bad.map(|bad| (bad + config.after, State::Firing, false));
        };
        match (self.good, config.repeat) {
            (Some(good), _) => Some((good + self.hold(config), State::Resolved, false)),
            (None, Some(repeat)) => Some((told + repeat, State::Firing, true)),
            (None, None) => None,
        }
    }

    fn fire(&mut self, now: Time, again: bool, config: &Config) {
        if !again {
            let soon = self.resolved.is_some_and(|then| now.since(then) < config.calm);
            self.returns = if soon { self.returns.saturating_add(1) } else { 0 };
        }
        self.told = Some(now);
    }

    /// How long it must be well to resolve.
    fn hold(&self, config: &Config) -> Span {
        let factor = 2_u64.saturating_pow(self.returns.min(16));
        let longest = config.longest_hold.max(config.after);
        config.after.saturating_mul(factor).min(longest)
    }

    /// Whether nothing of it needs to be known any more.
    fn is_over(&self, now: Time, config: &Config) -> bool {
        let calm = self.resolved.is_none_or(|then| now.since(then) >= config.calm);
        self.told.is_none() && self.bad.is_none() && calm
    }
}
