//! What holds of places and of the line, whoever comes.

use super::*;
use crate::dns::asker::nth as asker;
use crate::testing::*;

/// In milliseconds.
const PATIENCE: u64 = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct One {
    who: usize,
    holder: usize,
    number: u64,
    /// Since when it has a place.
    placed: Option<u64>,
}

impl One {
    fn is_old(&self, now: u64) -> bool {
        self.placed.is_some_and(|placed| placed + PATIENCE <= now)
    }
}

struct Table {
    places: Places<usize>,
    limits: [usize; 3],
    /// Those that have come and not gone, in the order of their coming.
    all: Vec<One>,
    came: usize,
}

/// Who has a place from now on, and who is gone.
type Heard = (Vec<One>, Vec<One>);

impl Table {
    const fn new(most: usize, own: usize, waiting: usize) -> Self {
        let places = Places::new(most, own, waiting);
        Self { places, limits: [most, own, waiting], all: Vec::new(), came: 0 }
    }

    fn take(&mut self, now: u64, who: usize, again: bool) -> (One, Heard) {
        let holder = self.came;
        self.came += 1;
        let (number, told) = self.places.take(at(now), &asker(who), ms(PATIENCE), again, holder);
        self.all.push(One { who, holder, number, placed: None });
        let heard = self.hear(now, told);
        (*self.all.last().unwrap(), heard)
    }

    fn give(&mut self, now: u64, one: One) -> Heard {
        self.all.retain(|other| other.holder != one.holder);
        let told = self.places.give(at(now), &asker(one.who), one.number);
        self.hear(now, told)
    }

    fn on_old(&mut self, now: u64, who: usize) -> Heard {
        let told = self.places.on_old(at(now), &asker(who));
        self.hear(now, told)
    }

    fn hear(&mut self, now: u64, told: impl IntoIterator<Item = usize>) -> Heard {
        let (mut placed, mut gone) = (Vec::new(), Vec::new());
        for holder in told {
            let nth = self.all.iter().position(|one| one.holder == holder).unwrap();
            let one = self.all[nth];
            match self.places.standing(&asker(one.who), one.number) {
                Standing::Placed => {
                    let waits = |other: &&One| other.who == one.who && other.placed.is_none();
                    assert_eq!(self.all.iter().find(waits), Some(&one), "in their order");
                    self.all[nth].placed = Some(now);
                    placed.push(self.all[nth]);
                }
                Standing::Gone => gone.push(self.all.remove(nth)),
                Standing::Waiting => panic!("{one:?} was told nothing new"),
            }
        }
        (placed, gone)
    }

    fn count(&self, who: usize, placed: bool) -> usize {
        let counts = |one: &&One| one.who == who && one.placed.is_some() == placed;
        self.all.iter().filter(counts).count()
    }

    /// Of each asker, how many have a place, or wait.
    fn counts(&self, placed: bool) -> Vec<usize> {
        (0..7).map(|who| self.count(who, placed)).collect()
    }

    fn check(&self, now: u64) {
        let [most, own, waiting] = self.limits;
        let (placed, waits) = (self.counts(true), self.counts(false));
        let sum = |of: &[usize]| of[1..].iter().sum::<usize>();
        assert!(placed[0] <= own && sum(&placed) <= most, "never more than there are");
        assert!(waits[0] <= waiting && sum(&waits) <= waiting);
        assert!(waits[0] == 0 || placed[0] == own, "nobody waits for a free place");
        assert!(sum(&waits) == 0 || sum(&placed) == most, "nobody waits for a free place");
        for who in (1..7).filter(|who| waits[*who] > 0) {
            let most = placed[1..].iter().max().unwrap();
            assert!(*most <= placed[who] + 1, "{who} waits behind a crowd: {placed:?}");
        }
        for one in &self.all {
            let standing = self.places.standing(&asker(one.who), one.number);
            let known = if one.placed.is_some() { Standing::Placed } else { Standing::Waiting };
            assert_eq!(standing, known, "all hear of what becomes of them");
            assert!(waits[one.who] == 0 || !one.is_old(now), "an old one gives way");
        }
        assert_eq!(self.places.waiting(), waits.iter().sum::<usize>());
    }
}

proptest! {
    #[test]
    fn nobody_waits_for_a_free_place_or_behind_another_s_crowd_and_all_end(
        most in 1_usize..12,
        own in 1_usize..5,
        waiting in 1_usize..9,
        steps in proptest::collection::vec((0_u8..8, 0_usize..7, any::<usize>()), 1..200),
    ) {
        let (mut table, mut now) = (Table::new(most, own, waiting), 0);
        for (step, who, which) in steps {
            match step {
                0 | 1 if !table.all.is_empty() => {
                    let one = table.all[which % table.all.len()];
                    let (placed, gone) = table.give(now, one);
                    prop_assert!(gone.is_empty() && placed.len() <= 1);
                }
                0 | 1 => {}
                2 => {
                    let before = now;
                    now += which as u64 % (2 * PATIENCE);
                    let is_new = |one: &&One| one.is_old(now) && !one.is_old(before);
                    let old: Vec<One> = table.all.iter().filter(is_new).copied().collect();
                    for one in old {
                        for gone in table.on_old(now, one.who).1 {
                            prop_assert!(gone.who == one.who && gone.is_old(now));
                        }
                    }
                }
                _ => {
                    let again = step == 3;
                    let (held, waits) = (table.counts(true), table.counts(false));
                    let sum = |of: &[usize]| of[1..].iter().sum::<usize>();
                    let full = if who == 0 { held[0] == own } else { sum(&held) == most };
                    let (_, (placed, gone)) = table.take(now, who, again);
                    prop_assert!(placed.iter().all(|one| one.who == who), "not for others");
                    prop_assert!(full || placed.len() == 1 && gone.is_empty());
                    prop_assert!(gone.len() <= 1);
                    for one in gone {
                        prop_assert_eq!(one.who == 0, who == 0, "the relay's own are apart");
                        let largest = held[1..].iter().max().copied().unwrap_or_default();
                        if one.placed.is_none() {
                            let line = if who == 0 { waits[0] } else { sum(&waits) };
                            prop_assert!(line == waiting && placed.is_empty());
                        } else if one.who == who {
                            prop_assert!(one.is_old(now), "its own gives way only when old");
                        } else {
                            let may = held[who] == 0 || largest > held[who] + 1;
                            prop_assert!(held[one.who] == largest && may);
                        }
                    }
                    // who has none waits for no others, unless it just had one
                    prop_assert!(held[who] > 0 || again || placed.len() == 1);
                }
            }
            table.check(now);
        }
        while let Some(one) = table.all.first().copied() {
            table.give(now, one);
            table.check(now);
        }
        table.places.taken.check([]);
        table.places.line.check([]);
        prop_assert!(table.places.turns.is_empty());
    }

    #[test]
    fn quick_ones_beyond_the_places_are_all_served(
        most in 1_usize..20,
        many in 1_usize..200,
        others in 0_usize..20,
        takes in 1_u64..PATIENCE,
    ) {
        // each that comes while another has more places makes that one's go back into the line
        let mut table = Table::new(most, 1, 300);
        let mut ends: BTreeSet<(u64, usize)> = BTreeSet::new();
        let (mut now, mut done) = (0, 0);
        let mut comes: VecDeque<(usize, bool)> = VecDeque::new();
        comes.extend(vec![(3, false); many]);
        comes.extend(vec![(4, false); others]);
        loop {
            let mut heard = Vec::new();
            if let Some((who, again)) = comes.pop_front() {
                heard.push(table.take(now, who, again).1);
            } else if let Some((end, holder)) = ends.pop_first() {
                now = end;
                // it may have given way
                if let Some(one) = table.all.iter().find(|one| one.holder == holder).copied() {
                    heard.push(table.give(now, one));
                    done += 1;
                }
            } else {
                break;
            }
            for (placed, gone) in heard {
                ends.extend(placed.iter().map(|one| (now + takes, one.holder)));
                for one in gone {
                    prop_assert!(one.placed.is_some(), "no wait ends without a place");
                    comes.push_back((one.who, true));
                }
            }
            table.check(now);
        }
        prop_assert!(table.all.is_empty() && done == many + others);
        let waves = (many + others).div_ceil(most) as u64;
        prop_assert!(now <= waves * takes, "no place is idle meanwhile");
    }

    #[test]
    fn slow_ones_of_some_delay_nobody_else(
        attackers in 1_usize..6,
        each in 20_u64..100,
        takes in 1_u64..900,
        pace in 20_u64..400,
    ) {
        let mut table = Table::new(64, 16, 64);
        // ends of lookups, and places that get old
        let mut events: BTreeSet<(u64, bool, usize, usize)> = BTreeSet::new();
        for now in 0..4_000_u64 {
            let mut heard: Vec<Heard> = Vec::new();
            while let Some((_, ends, who, holder)) =
                events.first().copied().filter(|(time, ..)| *time <= now)
            {
                events.pop_first();
                let one = table.all.iter().find(|one| one.holder == holder).copied();
                match one {
                    Some(one) if ends => heard.push(table.give(now, one)),
                    _ if ends => {
                        prop_assert!(who > 3, "{who} lost its place at {now} ms");
                    }
                    _ => heard.push(table.on_old(now, who)),
                }
            }
            for who in 4..4 + attackers {
                if now.is_multiple_of(1_000 / each) {
                    heard.push(table.take(now, who, false).1);
                }
            }
            // seven of each at most: 64 places are eight for each of eight
            if now.is_multiple_of(pace.max(takes / 6 + 1)) {
                for who in 0..4 {
                    let (one, more) = table.take(now, who, false);
                    prop_assert!(one.placed.is_some(), "{who} waits at {now} ms");
                    heard.push(more);
                }
            }
            while let Some((placed, gone)) = heard.pop() {
                for one in placed {
                    let time = if one.who > 3 { 5_000 } else { takes };
                    events.insert((now + time, true, one.who, one.holder));
                    events.insert((now + PATIENCE, false, one.who, one.holder));
                }
                for one in gone {
                    prop_assert!(one.who > 3, "{} lost its place at {now} ms", one.who);
                    if one.placed.is_some() && !one.is_old(now) {
                        heard.push(table.take(now, one.who, true).1);
                    }
                }
            }
        }
    }
}
