//! What was removed before the disk was scanned, which would bring it back.

use ekiden_linux::host::sync::locked;
use std::collections::BTreeSet;
use std::sync::Mutex;

/// Bytes of keys that are kept; beyond, all that is on the disk goes.
const MOST: usize = 4 << 20;
/// What a key takes beside its bytes.
const BESIDE: usize = 64;

/// Until the store is open.
#[derive(Debug, Default)]
pub(super) struct EarlyRemovals(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    keys: BTreeSet<String>,
    bytes: usize,
    /// There were more than are kept.
    all: bool,
    /// The store is open, or will not be.
    over: bool,
}

impl EarlyRemovals {
    /// Whether it will be removed as the store opens; `false` once that is over.
    pub(super) fn add(&self, key: &str) -> bool {
        let state = &mut *locked(&self.0);
        if state.over {
            return false;
        }
        if state.bytes + key.len() + BESIDE > MOST {
            state.all = true;
        } else if state.keys.insert(key.to_owned()) {
            state.bytes += key.len() + BESIDE;
        }
        true
    }

    /// Removes each, and opens the store before another can come; `false` where all that is stored has to go first.
    pub(super) fn apply(&self, remove: impl Fn(&str), open: impl FnOnce()) -> bool {
        let state = &mut *locked(&self.0);
        let before = std::mem::take(state);
        if before.all {
            return false;
        }
        before.keys.iter().for_each(|key| remove(key));
        open();
        state.over = true;
        true
    }

    /// The store will not open.
    pub(super) fn give_up(&self) {
        *locked(&self.0) = State { over: true, ..State::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    #[test]
    fn each_key_is_removed_once_and_none_after_the_opening() {
        let (early, removed) = (EarlyRemovals::default(), RefCell::new(Vec::new()));
        assert!(early.add("a") && early.add("b") && early.add("a"));
        let open = Cell::new(false);
        assert!(early.apply(|key| removed.borrow_mut().push(key.to_owned()), || open.set(true)));
        let mut removed = removed.into_inner();
        removed.sort();
        assert_eq!(
            (removed, open.get(), early.add("c")),
            (vec!["a".into(), "b".into()], true, false)
        );
    }

    #[test]
    fn beyond_what_is_kept_all_goes_once() {
        let early = EarlyRemovals::default();
        let long = "x".repeat(MOST / 8);
        assert!((0..10).all(|nth| early.add(&format!("{nth}{long}"))));
        assert!(!early.apply(|_| panic!("all goes"), || panic!("not yet")));
        assert!(early.add("late"));
        let removed = Cell::new(0);
        assert!(early.apply(|_| removed.set(removed.get() + 1), || {}));
        assert_eq!(removed.get(), 1);
    }
}
