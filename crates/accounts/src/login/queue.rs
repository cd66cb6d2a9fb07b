//! A queue that addresses share fairly. A pure value.
//!
//! Each address has a line of its own, and lines take turns (Nagle, RFC 970). Addresses that guessed wrong get
//! at most every second turn while another waits. When the queue is full, the longest line loses its newest item to a
//! newcomer whose line is shorter by two or more (longest queue drop; Suter et al., INFOCOM 1998). Otherwise an address that
//! guessed wrong loses one to a newcomer that did not, and that waits with fewer. So with room for
//! `most` items and `n` addresses, none that holds fewer than `most / n` is refused.

use std::collections::{BTreeMap, VecDeque};

/// Finds an item again, to remove it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// What became of an item that was pushed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pushed<T> {
    /// It waits; the second value was dropped for it.
    Queued(Ticket, Option<T>),
    /// There is no room for it.
    Full,
}

/// Items of type `T` in lines of addresses `A`.
#[derive(Debug)]
pub(crate) struct FairQueue<A, T> {
    most: usize,
    held: usize,
    /// Numbers tickets and turns.
    count: u64,
    lines: BTreeMap<A, Line<T>>,
    /// The last turn was of an address without wrong guesses, while another waited.
    owed: bool,
}

#[derive(Debug)]
struct Line<T> {
    /// Never empty.
    items: VecDeque<(Ticket, T)>,
    /// When it began or had its last turn: the smallest is next.
    since: u64,
    guessed: bool,
}

impl<A: Ord + Clone, T> FairQueue<A, T> {
    /// An empty queue with room for `most` items.
    pub(crate) const fn new(most: usize) -> Self {
        Self { most, held: 0, count: 0, lines: BTreeMap::new(), owed: false }
    }

    /// Appends `item` to the line of `address`, which has `guessed` wrong or not.
    pub(crate) fn push(&mut self, address: A, guessed: bool, item: T) -> Pushed<T> {
        let mut dropped = None;
        if self.held >= self.most {
            let own = self.length(&address);
            let longest = self.lines.iter().max_by_key(|(_, line)| line.items.len());
            let longest = longest.filter(|(_, line)| line.items.len() > own + 1);
            // else one that guessed wrong gives way to one that did not, if it waits with as many or more
            let guesser = || {
                let lines = self.lines.iter().filter(|(_, line)| line.guessed);
                let most = lines.max_by_key(|(_, line)| line.items.len())?;
                (!guessed && most.1.items.len() > own).then_some(most)
            };
            let longest = longest.or_else(guesser);
            let Some(longest) = longest.map(|(address, _)| address.clone()) else {
                return Pushed::Full;
            };
            dropped = self.take(&longest, VecDeque::pop_back);
        }
        self.count += 1;
        let ticket = Ticket(self.count);
        let line = Line { items: VecDeque::new(), since: self.count, guessed };
        let line = self.lines.entry(address).or_insert(line);
        line.items.push_back((ticket, item));
        self.held += 1;
        Pushed::Queued(ticket, dropped)
    }

    /// The next item.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let next = |guessed: bool| {
            let lines = self.lines.iter().filter(|(_, line)| line.guessed == guessed);
            lines.min_by_key(|(_, line)| line.since).map(|(address, _)| address.clone())
        };
        let (address, owed) = match (next(false), next(true)) {
            (Some(clean), Some(_)) if !self.owed => (clean, true),
            (Some(clean), None) => (clean, false),
            (_, guessed) => (guessed?, false),
        };
        self.owed = owed;
        self.count += 1;
        let turn = self.count;
        if let Some(line) = self.lines.get_mut(&address) {
            line.since = turn;
        }
        self.take(&address, VecDeque::pop_front)
    }

    /// Takes an item out, unless it is gone.
    pub(crate) fn remove(&mut self, address: &A, ticket: Ticket) -> Option<T> {
        self.take(address, |items| {
            let place = items.iter().position(|(other, _)| *other == ticket)?;
            items.remove(place)
        })
    }

    /// `address` guessed wrong.
    pub(crate) fn on_guess(&mut self, address: &A) {
        if let Some(line) = self.lines.get_mut(address) {
            line.guessed = true;
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.lines.clear();
        self.held = 0;
    }

    fn length(&self, address: &A) -> usize {
        self.lines.get(address).map_or(0, |line| line.items.len())
    }

    fn take(
        &mut self,
        address: &A,
        take: impl FnOnce(&mut VecDeque<(Ticket, T)>) -> Option<(Ticket, T)>,
    ) -> Option<T> {
        let line = self.lines.get_mut(address)?;
        let (_, item) = take(&mut line.items)?;
        if line.items.is_empty() {
            self.lines.remove(address);
        }
        self.held -= 1;
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Push(u8, bool),
        Pop,
        Remove(prop::sample::Index),
        Guess(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let address = 0_u8..6;
        let step = prop_oneof![
            6 => (address.clone(), any::<bool>()).prop_map(|(from, guessed)| Step::Push(from, guessed)),
            3 => Just(Step::Pop),
            1 => any::<prop::sample::Index>().prop_map(Step::Remove),
            1 => address.prop_map(Step::Guess),
        ];
        prop::collection::vec(step, 1..300)
    }

    #[test]
    fn addresses_take_turns() {
        let mut queue = FairQueue::new(64);
        for item in ["a1", "a2", "a3", "b1", "c1", "c2"] {
            queue.push(&item[..1], false, item);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, ["a1", "b1", "c1", "a2", "c2", "a3"]);
    }

    #[test]
    fn an_address_that_guessed_gives_way_in_a_full_queue() {
        let mut queue = FairQueue::new(2);
        assert!(matches!(queue.push('a', true, 1), Pushed::Queued(_, None)));
        assert!(matches!(queue.push('b', false, 2), Pushed::Queued(_, None)));
        assert_eq!(queue.push('c', true, 3), Pushed::Full);
        assert!(matches!(queue.push('d', false, 4), Pushed::Queued(_, Some(1))));
        assert_eq!(queue.push('e', false, 5), Pushed::Full);
    }

    #[test]
    fn addresses_that_guessed_get_every_second_turn() {
        let mut queue = FairQueue::new(64);
        for item in ["a1", "a2", "a3", "b1", "b2", "b3", "c1", "c2", "c3"] {
            queue.push(&item[..1], &item[..1] == "b", item);
        }
        queue.on_guess(&"a");
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, ["c1", "a1", "c2", "b1", "c3", "a2", "b2", "a3", "b3"]);
    }

    proptest! {
        /// Room is bounded, and refused only to an address that holds its share.
        #[test]
        fn no_address_below_its_share_is_refused(steps in steps(), most in 1_usize..20) {
            let mut queue = FairQueue::new(most);
            let mut held: Vec<(u8, Ticket)> = Vec::new();
            for step in steps {
                match step {
                    Step::Push(from, guessed) => {
                        let own = held.iter().filter(|(whose, _)| *whose == from).count();
                        let mut addresses: Vec<u8> = held.iter().map(|(whose, _)| *whose).collect();
                        addresses.push(from);
                        addresses.sort_unstable();
                        addresses.dedup();
                        let full = held.len() >= most;
                        let lines = queue.lines.iter().filter(|(_, line)| line.guessed);
                        let guessers: Vec<u8> = lines.map(|(whose, _)| *whose).collect();
                        match queue.push(from, guessed, (from, queue.count)) {
                            Pushed::Full => prop_assert!(full && own >= most / addresses.len()),
                            Pushed::Queued(ticket, dropped) => {
                                prop_assert_eq!(dropped.is_some(), full);
                                if let Some((whose, _)) = dropped {
                                    let theirs = held.iter().filter(|(it, _)| *it == whose).count();
                                    let gives_way = !guessed && guessers.contains(&whose);
                                    let fewer = own + usize::from(!gives_way);
                                    prop_assert!(theirs > fewer, "the longest line loses, or a guesser's");
                                    // its newest
                                    let newest = held.iter().rposition(|(it, _)| *it == whose);
                                    held.remove(newest.unwrap());
                                }
                                held.push((from, ticket));
                            }
                        }
                    }
                    Step::Pop => match queue.pop() {
                        Some((from, _)) => {
                            let oldest = held.iter().position(|(whose, _)| *whose == from);
                            held.remove(oldest.unwrap());
                        }
                        None => prop_assert!(held.is_empty()),
                    },
                    Step::Remove(which) if !held.is_empty() => {
                        let (from, ticket) = held.remove(which.index(held.len()));
                        prop_assert!(queue.remove(&from, ticket).is_some());
                        prop_assert!(queue.remove(&from, ticket).is_none());
                    }
                    Step::Remove(_) => {}
                    Step::Guess(from) => queue.on_guess(&from),
                }
                prop_assert_eq!(queue.held, held.len());
                prop_assert!(held.len() <= most && queue.lines.len() <= held.len());
            }
        }

        /// Whatever the others do, the first of a line is served within two turns for each line that was there, and one.
        #[test]
        fn each_line_is_served_within_two_rounds(before in steps(), after in steps(), guessed: bool) {
            let mut queue = FairQueue::new(32);
            let run = |queue: &mut FairQueue<u8, bool>, step: &Step| match step {
                Step::Push(from, guessed) => {
                    queue.push(*from, *guessed, false);
                    None
                }
                Step::Guess(from) => {
                    queue.on_guess(from);
                    None
                }
                Step::Pop => queue.pop(),
                Step::Remove(_) => None,
            };
            for step in &before {
                run(&mut queue, step);
            }
            let lines = queue.lines.len();
            if queue.push(9, guessed, true) == Pushed::Full {
                return Ok(());
            }
            let mut turns = 0;
            for step in after.iter().chain(&vec![Step::Pop; 2 * lines + 2]) {
                match run(&mut queue, step) {
                    Some(true) => return Ok(()),
                    Some(false) => turns += 1,
                    None => {}
                }
                prop_assert!(turns <= 2 * lines + 1, "{} turns, {} lines", turns, lines);
            }
            prop_assert!(false, "never served");
        }
    }
}
