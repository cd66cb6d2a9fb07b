//! Questions on their way to servers, and who waits for them. Askers share the places: where all are taken, the oldest
//! question of whoever has the most gives way. So a new question always has a place, and who has fewer than others
//! loses none. The relay's own questions have places apart.

use super::asker::Asker;
use crate::units::Time;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

#[derive(Debug)]
struct Question<W, Q> {
    owner: Asker,
    number: u64,
    waiters: Vec<Waiter<W>>,
    /// When they are served an answer past its end, if there is one.
    stale_at: Time,
    handle: Q,
}

#[derive(Debug)]
struct Waiter<W> {
    asker: Asker,
    number: u64,
    waiter: W,
}

/// What one asker has.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    questions: usize,
    waiters: usize,
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
    /// Of each asker, by age.
    ages: BTreeMap<(Asker, u64), Arc<[u8]>>,
    shares: BTreeMap<Asker, Share>,
    /// All that wait.
    waiting: usize,
    next: u64,
}

impl<W, Q> Questions<W, Q> {
    pub(super) const fn new() -> Self {
        Self {
            by_key: BTreeMap::new(),
            ages: BTreeMap::new(),
            shares: BTreeMap::new(),
            waiting: 0,
            next: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// When those that wait for this question are served an answer past its end; `None`: it is not on its way.
    pub(super) fn stale_at(&self, key: &[u8]) -> Option<Time> {
        self.by_key.get(key).map(|question| question.stale_at)
    }

    /// Whether none of `most` has to give way to one more question.
    pub(super) fn has_room(&self, asker: &Asker, most: usize) -> bool {
        self.taken(asker) < most
    }

    /// Makes a place of `most` for a question.
    pub(super) fn make_room(&mut self, asker: &Asker, most: usize) -> Vec<GaveWay<W, Q>> {
        let mut all = Vec::new();
        while !self.has_room(asker, most) {
            let questions = |share: &Share| share.questions;
            let Some(holder) = self.gives_way(asker, questions) else { break };
            let Some(gone) = self.displace(&holder) else { break };
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
        let others = self.waiting - self.share(&Asker::Relay).waiters;
        if *asker == Asker::Relay || others < most {
            return None;
        }
        let holder = self.gives_way(asker, |share| share.waiters)?;
        let all = self.by_key.iter().flat_map(|(key, question)| {
            let waiters = question.waiters.iter().enumerate();
            waiters.map(move |(nth, waiter)| (waiter, nth, key))
        });
        let of_holder = all.filter(|(waiter, ..)| waiter.asker == holder);
        let (_, nth, key) = of_holder.min_by_key(|(waiter, ..)| waiter.number)?;
        let key = Arc::clone(key);
        let waiter = self.by_key.get_mut(&key)?.waiters.remove(nth);
        self.on_gone(&holder, 0, 1);
        Some(GaveWay { key, waiters: Vec::from([waiter.waiter]), question: None })
    }

    /// A question is on its way from now on.
    pub(super) fn begin(&mut self, key: &[u8], asker: &Asker, stale_at: Time, handle: Q) {
        let (key, number): (Arc<[u8]>, _) = (key.into(), self.number());
        self.ages.insert((asker.clone(), number), Arc::clone(&key));
        self.shares.entry(asker.clone()).or_default().questions += 1;
        let question =
            Question { owner: asker.clone(), number, waiters: Vec::new(), stale_at, handle };
        self.by_key.insert(key, question);
    }

    /// Somebody waits for a question on its way. `stale_at`: its time, where nobody waited.
    pub(super) fn wait(&mut self, key: &[u8], asker: &Asker, stale_at: Time, waiter: W) {
        let number = self.number();
        let Some(question) = self.by_key.get_mut(key) else { return };
        if question.waiters.is_empty() {
            question.stale_at = stale_at;
        }
        question.waiters.push(Waiter { asker: asker.clone(), number, waiter });
        self.shares.entry(asker.clone()).or_default().waiters += 1;
        self.waiting += 1;
    }

    /// A question has its answer, or none.
    pub(super) fn end(&mut self, key: &[u8]) -> Vec<W> {
        let Some(question) = self.by_key.remove(key) else { return Vec::new() };
        self.ages.remove(&(question.owner.clone(), question.number));
        self.on_gone(&question.owner, 1, 0);
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

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn share(&self, asker: &Asker) -> Share {
        self.shares.get(asker).copied().unwrap_or_default()
    }

    /// Places that count for this asker.
    fn taken(&self, asker: &Asker) -> usize {
        let own = self.share(&Asker::Relay).questions;
        if *asker == Asker::Relay { own } else { self.len() - own }
    }

    /// Who loses one for one more of this asker: another with more than it will have, or the asker itself.
    fn gives_way(&self, asker: &Asker, of: impl Fn(&Share) -> usize) -> Option<Asker> {
        let own = of(&self.share(asker));
        let others = self.shares.iter().filter(|(other, share)| {
            ![asker, &Asker::Relay].contains(other) && *asker != Asker::Relay && of(share) > 0
        });
        // of equals the one whose question is the oldest
        let most = others.max_by_key(|(other, share)| (of(share), Reverse(self.oldest(other))));
        match most {
            Some((other, share)) if own == 0 || of(share) > own + 1 => Some(other.clone()),
            _ => (own > 0).then(|| asker.clone()),
        }
    }

    fn oldest(&self, asker: &Asker) -> Option<u64> {
        let (owner, number) = self.ages.range((asker.clone(), 0)..).next()?.0;
        (owner == asker).then_some(*number)
    }

    /// Takes a holder's oldest question from it. It goes on for others that wait, as theirs.
    fn displace(&mut self, holder: &Asker) -> Option<GaveWay<W, Q>> {
        let number = self.oldest(holder)?;
        let key = self.ages.remove(&(holder.clone(), number))?;
        let question = self.by_key.get_mut(&key)?;
        let waiters = core::mem::take(&mut question.waiters).into_iter();
        let (gone, others): (Vec<_>, Vec<_>) = waiters.partition(|waiter| waiter.asker == *holder);
        let heir = others.first().map(|waiter| waiter.asker.clone());
        question.waiters = others;
        let question = match heir {
            Some(heir) => {
                question.owner = heir.clone();
                self.ages.insert((heir.clone(), number), Arc::clone(&key));
                self.shares.entry(heir).or_default().questions += 1;
                None
            }
            None => self.by_key.remove(&key).map(|question| question.handle),
        };
        self.on_gone(holder, 1, 0);
        Some(GaveWay { key, waiters: self.leave(gone), question })
    }

    fn leave(&mut self, waiters: Vec<Waiter<W>>) -> Vec<W> {
        let gone = |Waiter { asker, waiter, .. }| {
            self.on_gone(&asker, 0, 1);
            waiter
        };
        waiters.into_iter().map(gone).collect()
    }

    fn on_gone(&mut self, asker: &Asker, questions: usize, waiters: usize) {
        self.waiting -= waiters;
        let Some(share) = self.shares.get_mut(asker) else { return };
        share.questions -= questions;
        share.waiters -= waiters;
        if share.questions == 0 && share.waiters == 0 {
            self.shares.remove(asker);
        }
    }
}
