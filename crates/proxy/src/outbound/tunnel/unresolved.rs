//! Names that a peer could not resolve a moment ago. A client that asks for one again waits for the peer's answer,
//! because the first one was answered too early, and got a broken connection in place of a reason.

use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::units::{Span, Time};
use std::collections::HashMap;
use std::sync::Mutex;

/// People try again within some seconds. The peer is asked each time, so a name that resolves again is served at once.
const KEPT: Span = Span::from_secs(10);
/// Names are clients' own choice, so their number is limited.
const MOST: usize = 1_024;

/// Peer and name, with the time of the report.
#[derive(Debug, Default)]
pub(super) struct Unresolved(Mutex<HashMap<(String, String), Time>>);

impl Unresolved {
    pub(super) fn insert(&self, peer: &str, name: &str) {
        self.insert_at(clock::now(), peer, name);
    }

    fn insert_at(&self, now: Time, peer: &str, name: &str) {
        let mut names = locked(&self.0);
        if names.len() >= MOST {
            names.retain(|_, since| now.since(*since) < KEPT);
        }
        if names.len() >= MOST {
            // a client that asks for many names does not end this for others
            let oldest = names.iter().min_by_key(|(_, since)| **since);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                names.remove(&oldest);
            }
        }
        names.insert((peer.to_owned(), name.to_owned()), now);
    }

    /// Whether the peer reported within the last 10 s that it cannot resolve `name`.
    pub(super) fn contains(&self, peer: &str, name: &str) -> bool {
        self.contains_at(clock::now(), peer, name)
    }

    fn contains_at(&self, now: Time, peer: &str, name: &str) -> bool {
        let names = locked(&self.0);
        names.get(&(peer.to_owned(), name.to_owned())).is_some_and(|since| now.since(*since) < KEPT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_names_after_ten_seconds() {
        let (names, begin) = (Unresolved::default(), Time::ZERO);
        names.insert_at(begin, "far", "nowhere.example");
        let at = |seconds| begin + Span::from_secs(seconds);
        assert!(names.contains_at(at(9), "far", "nowhere.example"));
        assert!(!names.contains_at(at(9), "other", "nowhere.example"));
        assert!(!names.contains_at(at(10), "far", "nowhere.example"));
    }

    #[test]
    fn a_flood_of_names_takes_bounded_memory_and_ends() {
        let (names, begin) = (Unresolved::default(), Time::ZERO);
        for n in 0..2 * MOST {
            names.insert_at(begin, "far", &n.to_string());
        }
        assert_eq!(locked(&names.0).len(), MOST);
        let later = begin + KEPT;
        names.insert_at(later, "far", "new");
        assert_eq!(locked(&names.0).len(), 1);
    }
}
