//! Values by key, of which the least recently used gives way where there are too many. No step but [`Recent::retain`] takes
//! longer than O(log n).

use std::borrow::Borrow;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Recent<K, V> {
    most: usize,
    /// With the number of their last use.
    values: BTreeMap<K, (u64, V)>,
    /// Keys by that number.
    uses: BTreeMap<u64, K>,
    next: u64,
}

impl<K: Ord + Clone, V> Recent<K, V> {
    /// At most `most` values, at least one.
    pub(super) const fn new(most: usize) -> Self {
        Self { most, values: BTreeMap::new(), uses: BTreeMap::new(), next: 0 }
    }

    /// A value, which is used now.
    pub(super) fn used<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let (last, value) = self.values.get_mut(key)?;
        let key = self.uses.remove(last)?;
        *last = self.next;
        self.uses.insert(self.next, key);
        self.next += 1;
        Some(value)
    }

    /// A value, without a use of it.
    pub(super) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.values.get(key).map(|(_, value)| value)
    }

    /// The same, to change it.
    pub(super) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.values.get_mut(key).map(|(_, value)| value)
    }

    /// Puts a value in, which is used now. Returns the least recently used one where it was one too many.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<(K, V)> {
        self.remove(&key);
        self.uses.insert(self.next, key.clone());
        self.values.insert(key, (self.next, value));
        self.next += 1;
        if self.values.len() <= self.most {
            return None;
        }
        let (_, oldest) = self.uses.pop_first()?;
        let (_, value) = self.values.remove(&oldest)?;
        Some((oldest, value))
    }

    /// Takes a value out.
    pub(super) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let (last, value) = self.values.remove(key)?;
        self.uses.remove(&last);
        Some(value)
    }

    /// Keeps those values alone; O(n).
    pub(super) fn retain(&mut self, keeps: impl Fn(&V) -> bool) {
        let (values, uses) = (&mut self.values, &mut self.uses);
        values.retain(|_, (last, value)| {
            let kept = keeps(value);
            if !kept {
                uses.remove(last);
            }
            kept
        });
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// As a list in the order of use would.
        #[test]
        fn the_least_recently_used_gives_way(
            most in 1_usize..6,
            steps in proptest::collection::vec((0_u8..4, 0_u8..9), 0..80),
        ) {
            let (mut recent, mut list) = (Recent::new(most), Vec::new());
            for (value, (what, key)) in steps.into_iter().enumerate() {
                let at = list.iter().position(|(known, _)| *known == key);
                let found = at.map(|at| list[at]);
                match what {
                    0 => {
                        at.map(|at| list.remove(at));
                        list.push((key, value));
                        let gone = (list.len() > most).then(|| list.remove(0));
                        prop_assert_eq!(recent.insert(key, value), gone);
                    }
                    1 => {
                        prop_assert_eq!(recent.used(&key).copied(), found.map(|(_, value)| value));
                        if let Some(at) = at {
                            let used = list.remove(at);
                            list.push(used);
                        }
                    }
                    2 => {
                        prop_assert_eq!(recent.remove(&key), found.map(|(_, value)| value));
                        at.map(|at| list.remove(at));
                    }
                    _ => {
                        recent.retain(|known| known % 9 != usize::from(key));
                        list.retain(|(_, known)| known % 9 != usize::from(key));
                    }
                }
                prop_assert_eq!((recent.len(), recent.uses.len()), (list.len(), list.len()));
                prop_assert_eq!(recent.get(&key), list.iter().find(|(k, _)| *k == key).map(|(_, v)| v));
            }
        }
    }
}
