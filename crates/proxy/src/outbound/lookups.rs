//! Names that are being looked up, and the last one that took long.

use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::units::{Span, Time};
use std::collections::HashMap;
use std::sync::Mutex;

/// A lookup that takes as long is felt.
const SLOW: Span = Span::from_secs(1);
/// How long the last slow one is remembered.
const KEPT: Span = Span::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Lookups(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// By name: when the oldest one began, and how many there are.
    waiting: HashMap<String, (Time, usize)>,
    slow: Option<(String, Span, Time)>,
}

/// A lookup under way; its drop ends it.
#[derive(Debug)]
pub(crate) struct Lookup<'a> {
    lookups: &'a Lookups,
    name: &'a str,
    begun: Time,
}

impl Lookups {
    pub(crate) fn begin<'a>(&'a self, name: &'a str) -> Lookup<'a> {
        self.begin_at(clock::now(), name)
    }

    fn begin_at<'a>(&'a self, now: Time, name: &'a str) -> Lookup<'a> {
        let mut state = locked(&self.0);
        state.waiting.entry(name.to_owned()).or_insert((now, 0)).1 += 1;
        Lookup { lookups: self, name, begun: now }
    }

    fn end_at(&self, now: Time, name: &str, begun: Time) {
        let mut state = locked(&self.0);
        if let Some(waiting) = state.waiting.get_mut(name) {
            waiting.1 -= 1;
            if waiting.1 == 0 {
                state.waiting.remove(name);
            }
        }
        let took = now.since(begun);
        if took >= SLOW {
            state.slow = Some((name.to_owned(), took, now));
        }
    }

    /// How long a name has been looked up, if it is.
    pub(crate) fn waits(&self, name: &str) -> Option<Span> {
        locked(&self.0).waiting.get(name).map(|(begun, _)| clock::now().since(*begun))
    }

    /// The last one of the last minute that took a second or more: its name and how long it took.
    pub(crate) fn slow(&self) -> Option<(String, Span)> {
        self.slow_at(clock::now())
    }

    fn slow_at(&self, now: Time) -> Option<(String, Span)> {
        let state = locked(&self.0);
        let (name, took, at) = state.slow.as_ref()?;
        (now.since(*at) < KEPT).then(|| (name.clone(), *took))
    }
}

impl Drop for Lookup<'_> {
    fn drop(&mut self) {
        self.lookups.end_at(clock::now(), self.name, self.begun);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_lookups_under_way_and_the_last_slow_one() {
        let lookups = Lookups::default();
        let (one, other) = (lookups.begin("a.example"), lookups.begin("a.example"));
        drop(one);
        assert!(lookups.waits("a.example").is_some() && lookups.waits("b.example").is_none());
        drop(other);
        assert_eq!((lookups.waits("a.example"), lookups.slow()), (None, None));
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        lookups.end_at(at(14), "slow.example", at(10));
        lookups.end_at(at(15), "quick.example", at(15));
        assert_eq!(lookups.slow_at(at(20)), Some(("slow.example".to_owned(), Span::from_secs(4))));
        assert_eq!(lookups.slow_at(at(74)), None);
    }
}
