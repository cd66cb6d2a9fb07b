//! Things worth a line in the log and not worth a thousand: what strangers or a full disk can make
//! happen as often as they like.

use crate::registry::locked;
use ekiden_linux::clock;
use ekiden_model::units::{Span, Time};
use std::sync::Mutex;

/// Between two lines about the same thing.
const APART: Span = Span::from_secs(10);

/// When a thing was last said.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<Option<Time>>);

impl Seldom {
    /// Nothing was said yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Whether it is to be said now: at most every ten seconds. If so, it counts as said.
    pub fn is_due(&self) -> bool {
        self.is_due_at(clock::now())
    }

    fn is_due_at(&self, now: Time) -> bool {
        let mut last = locked(&self.0);
        let due = last.is_none_or(|last| now.since(last) >= APART);
        if due {
            *last = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_said_every_ten_seconds() {
        let seldom = Seldom::new();
        let said = (0..25).filter(|s| seldom.is_due_at(Time::ZERO + Span::from_secs(*s)));
        assert_eq!(said.collect::<Vec<_>>(), [0, 10, 20]);
    }
}
