//! Changes of resources while answers about them are on their way.

use ekiden_linux::host::sync::locked;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// By key: how many answers are on their way, and how often the resource has changed meanwhile.
#[derive(Debug, Default)]
pub(super) struct Changes(Mutex<HashMap<String, (usize, u64)>>);

/// An answer on its way.
#[derive(Debug)]
pub(super) struct Watch {
    all: Arc<Changes>,
    key: String,
    /// Changes before it was asked for.
    before: u64,
}

impl Changes {
    pub(super) fn watch(self: &Arc<Self>, key: &str) -> Watch {
        let mut all = locked(&self.0);
        let (watches, changes) = all.entry(key.to_owned()).or_default();
        *watches += 1;
        Watch { all: Arc::clone(self), key: key.to_owned(), before: *changes }
    }

    /// A resource has changed. Nothing is kept where no answer about it is on its way.
    pub(super) fn on_change(&self, key: &str) {
        if let Some((_, changes)) = locked(&self.0).get_mut(key) {
            *changes += 1;
        }
    }
}

impl Watch {
    /// Whether the resource has changed since this answer was asked for.
    pub(super) fn is_changed(&self) -> bool {
        self.unless_changed(|| ()).is_none()
    }

    /// Does what is to be done with the answer, unless the resource has changed since it was asked for. A change that
    /// comes meanwhile waits: so what it removes is there already. `act` must not wait, nor use these changes.
    pub(super) fn unless_changed<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        let all = locked(&self.all.0);
        let changed = all.get(&self.key).is_some_and(|(_, changes)| *changes != self.before);
        (!changed).then(act)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut all = locked(&self.all.0);
        if let Some((watches, _)) = all.get_mut(&self.key) {
            *watches -= 1;
            if *watches == 0 {
                all.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_for_answers_on_their_way_and_leaves_nothing() {
        let all = Arc::new(Changes::default());
        all.on_change("a");
        let (first, other) = (all.watch("a"), all.watch("b"));
        assert!(!first.is_changed());
        all.on_change("a");
        let later = all.watch("a");
        assert!(first.is_changed() && !other.is_changed() && !later.is_changed());
        let mut done = Vec::new();
        first.unless_changed(|| done.push("first"));
        other.unless_changed(|| done.push("other"));
        assert_eq!(done, ["other"]);
        drop((first, other));
        all.on_change("a");
        assert!(later.is_changed());
        drop(later);
        assert!(locked(&all.0).is_empty());
    }
}
