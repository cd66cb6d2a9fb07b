//! Names that a peer could not resolve. A client that was answered before the peer reported that gets its failure at
//! once when it tries again.

use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::units::{Span, Time};
use std::collections::HashMap;
use std::sync::Mutex;

/// Shorter than a negative answer's TTL (RFC 2308 §5), because the peer reports a name server's failure in the same
/// way.
const KEPT: Span = Span::from_secs(10);
/// Names are clients' own choice, so their number is limited.
const MOST: usize = 1_024;

/// Peer and name, with the time and the words of the report.
#[derive(Debug, Default)]
pub(super) struct Unresolved(Mutex<HashMap<(String, String), (Time, String)>>);

impl Unresolved {
    pub(super) fn insert(&self, peer: &str, name: &str, words: &str) {
        self.insert_at(clock::now(), peer, name, words);
    }

    fn insert_at(&self, now: Time, peer: &str, name: &str, words: &str) {
        let mut names = locked(&self.0);
        if names.len() >= MOST {
            names.retain(|_, (since, _)| now.since(*since) < KEPT);
        }
        if names.len() >= MOST {
            // a client that asks for many names does not end this for others
            let oldest = names.iter().min_by_key(|(_, (since, _))| *since);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                names.remove(&oldest);
            }
        }
        names.insert((peer.to_owned(), name.to_owned()), (now, words.to_owned()));
    }

    /// The peer's words about `name`, if it reported the name within the last 10 s.
    pub(super) fn get(&self, peer: &str, name: &str) -> Option<String> {
        self.get_at(clock::now(), peer, name)
    }

    fn get_at(&self, now: Time, peer: &str, name: &str) -> Option<String> {
        let names = locked(&self.0);
        let (since, words) = names.get(&(peer.to_owned(), name.to_owned()))?;
        (now.since(*since) < KEPT).then(|| words.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_names_after_ten_seconds() {
        let (names, begin) = (Unresolved::default(), Time::ZERO);
        names.insert_at(begin, "far", "nowhere.example", "no such name");
        let at = |seconds| begin + Span::from_secs(seconds);
        assert_eq!(names.get_at(at(9), "far", "nowhere.example").unwrap(), "no such name");
        assert_eq!(names.get_at(at(9), "other", "nowhere.example"), None);
        assert_eq!(names.get_at(at(10), "far", "nowhere.example"), None);
    }

    #[test]
    fn a_flood_of_names_takes_bounded_memory_and_ends() {
        let (names, begin) = (Unresolved::default(), Time::ZERO);
        for n in 0..2 * MOST {
            names.insert_at(begin, "far", &n.to_string(), "");
        }
        assert_eq!(locked(&names.0).len(), MOST);
        let later = begin + KEPT;
        names.insert_at(later, "far", "new", "words");
        assert_eq!(locked(&names.0).len(), 1);
    }
}
