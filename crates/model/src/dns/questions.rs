//! Questions on their way to servers, and who waits for them. Askers share both kinds of places by the rule of [`Shares`].
//! So a new question always has a place.

use super::asker::Asker;
use super::shares::Shares;
use crate::units::Time;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

#[derive(Debug)]
struct Question<W, Q> {
    key: Arc<[u8]>,
    owner: Asker,
    number: u64,
    /// By their numbers, so the oldest is first.
    waiters: BTreeMap<u64, Waiter<W>>,
    /// When they are served an answer past its end, if there is one.
    stale_at: Time,
    handle: Q,
}

#[derive(Debug)]
struct Waiter<W> {
    asker: Asker,
    waiter: W,
}

/// What gave way: waiters, and the question itself unless others wait for it.
#[derive(Debug)]
pub(super) struct GaveWay<W, Q> {
    pub(super) key: Arc<[u8]>,
    pub(super) waiters: Vec<W>,
    pub(super) question: Option<Q>,
}

#[derive(Debug)]
pub(super) struct Questions<W, Q> {
    by_key: BTreeMap<Arc<[u8]>, Question<W, Q>>,
    /// Keys of questions, by owner.
    owned: Shares<Arc<[u8]>>,
    /// Of each that waits, its question's key.
    waits: Shares<Arc<[u8]>>,
}

impl<W, Q> Questions<W, Q> {
    pub(super) const fn new() -> Self {
        Self { by_key: BTreeMap::new(), owned: Shares::new(), waits: Shares::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) const fn waiting(&self) -> usize {
        self.waits.len()
    }

    /// When those that wait for this question are served an answer past its end; `None`: it is not on its way.
    pub(super) fn stale_at(&self, key: &[u8]) -> Option<Time> {
        self.by_key.get(key).map(|question| question.stale_at)
    }

    /// Whether none of `most` has to give way to one more question.
    pub(super) fn has_room(&self, asker: &Asker, most: usize) -> bool {
        self.owned.counted(asker) < most
    }

    /// Makes a place of `most` for a question.
    pub(super) fn make_room(&mut self, asker: &Asker, most: usize) -> Vec<GaveWay<W, Q>> {
        let mut all = Vec::new();
        while !self.has_room(asker, most)
            && let Some(gone) = self.displace(asker)
        {
            all.push(gone);
        }
        all
    }

    /// Makes a place of `most` for one that waits. This relay's own have no limit here: its connections have one.
    pub(super) fn make_room_to_wait(
        &mut self,
        asker: &Asker,
        most: usize,
    ) -> Option<GaveWay<W, Q>> {
        if *asker == Asker::Relay || self.waits.counted(asker) < most {
            return None;
        }
        let (_, number, key) = self.waits.give_way(asker)?;
        let waiter = self.by_key.get_mut(&key)?.waiters.remove(&number)?;
        Some(GaveWay { key, waiters: Vec::from([waiter.waiter]), question: None })
    }

    /// A question is on its way from now on.
    pub(super) fn begin(&mut self, key: &[u8], asker: &Asker, stale_at: Time, handle: Q) {
        let key: Arc<[u8]> = key.into();
        let number = self.owned.add(asker, Arc::clone(&key));
        let (owner, waiters) = (asker.clone(), BTreeMap::new());
        let question = Question { key: Arc::clone(&key), owner, number, waiters, stale_at, handle };
        self.by_key.insert(key, question);
    }

    /// Somebody waits for a question on its way. `stale_at`: its time, where nobody waited.
    pub(super) fn wait(&mut self, key: &[u8], asker: &Asker, stale_at: Time, waiter: W) {
        let Some(question) = self.by_key.get_mut(key) else { return };
        if question.waiters.is_empty() {
            question.stale_at = stale_at;
        }
        let number = self.waits.add(asker, Arc::clone(&question.key));
        question.waiters.insert(number, Waiter { asker: asker.clone(), waiter });
    }

    /// A question has its answer, or none.
    pub(super) fn end(&mut self, key: &[u8]) -> Vec<W> {
        let Some(question) = self.by_key.remove(key) else { return Vec::new() };
        self.owned.remove(&question.owner, question.number);
        self.leave(question.waiters)
    }

    /// When those that wait for this question are served.
    pub(super) fn deadline(&self, key: &[u8]) -> Time {
        let waited_for = self.by_key.get(key).filter(|question| !question.waiters.is_empty());
        waited_for.map_or(Time::NEVER, |question| question.stale_at)
    }

    /// Those that have waited long enough, if `stale` has an answer for them; otherwise they are not looked for again.
    pub(super) fn on_deadline<A>(
        &mut self,
        now: Time,
        key: &[u8],
        stale: impl FnOnce() -> Option<A>,
    ) -> Option<(A, Vec<W>)> {
        if now < self.deadline(key) {
            return None;
        }
        let question = self.by_key.get_mut(key)?;
        let Some(answer) = stale() else {
            question.stale_at = Time::NEVER;
            return None;
        };
        let waiters = core::mem::take(&mut question.waiters);
        Some((answer, self.leave(waiters)))
    }

    /// Takes the question that gives way to one of this asker. It goes on for others that wait, as theirs.
    fn displace(&mut self, asker: &Asker) -> Option<GaveWay<W, Q>> {
        let (owner, number, key) = self.owned.give_way(asker)?;
        let question = self.by_key.get_mut(&key)?;
        // by whichever are fewer: the question may pass from each that waits to the next, and one may wait for many
        let waits: Vec<u64> = if question.waiters.len() < self.waits.count(&owner) {
            let all = question.waiters.iter();
            all.filter(|(_, waiter)| waiter.asker == owner).map(|(wait, _)| *wait).collect()
        } else {
            let all = self.waits.of(&owner);
            all.filter(|(_, of)| **of == key).map(|(wait, _)| wait).collect()
        };
        let mut waiters = Vec::new();
        for wait in waits {
            self.waits.remove(&owner, wait);
            waiters.extend(question.waiters.remove(&wait).map(|waiter| waiter.waiter));
        }
        let heir = question.waiters.first_key_value().map(|(_, waiter)| waiter.asker.clone());
        let question = match heir {
            Some(heir) => {
                self.owned.insert(&heir, number, Arc::clone(&key));
                question.owner = heir;
                None
            }
            None => self.by_key.remove(&key).map(|question| question.handle),
        };
        Some(GaveWay { key, waiters, question })
    }

    fn leave(&mut self, waiters: BTreeMap<u64, Waiter<W>>) -> Vec<W> {
        let gone = |(number, Waiter { asker, waiter })| {
            self.waits.remove(&asker, number);
            waiter
        };
        waiters.into_iter().map(gone).collect()
    }
}

#[cfg(test)]
impl<W, Q> Questions<W, Q> {
    /// The shares are what a look at all questions says.
    pub(super) fn check(&self) {
        let owned = self.by_key.iter().map(|(key, question)| {
            assert_eq!(*key, question.key);
            (question.owner.clone(), question.number, Arc::clone(key))
        });
        self.owned.check(owned);
        let waits = self.by_key.iter().flat_map(|(key, question)| {
            let waiters = question.waiters.iter();
            waiters.map(move |(number, waiter)| (waiter.asker.clone(), *number, Arc::clone(key)))
        });
        self.waits.check(waits);
    }
}
