//! What holds of the places of questions, by asker.

use super::answers::*;
use super::asker::{Asker, nth as asker};
use super::questions::{GaveWay, Questions};
use crate::testing::*;
use core::cmp::Reverse;

/// A question: whose, and which.
type Asked = (usize, u32);

struct Table {
    answers: Answers<u32, Asked, Asked>,
    /// Questions on their way, the oldest first.
    asked: Vec<Asked>,
    next: u32,
}

impl Table {
    fn new(asking: usize, own: usize) -> Self {
        let config = Config { asking, own, ..Config::default() };
        Self { answers: Answers::new(config), asked: Vec::new(), next: 0 }
    }

    /// A question about a name of its own: what gave way.
    fn ask(&mut self, now: Time, who: usize) -> (Asked, Vec<Asked>) {
        self.next += 1;
        let one = (who, self.next);
        let key = self.next.to_be_bytes();
        let asker = asker(who);
        let (decision, displaced) = self.answers.on_question(now, (&key, &asker), || one, || one);
        assert_eq!(decision, Decision::Wait { ask: true }, "a new question is always asked");
        let gone = displaced.into_iter().map(|gone| {
            let (outcome, waiters) = gone.released;
            assert_eq!((outcome, waiters), (Outcome::GaveWay, vec![gone.question.unwrap()]));
            gone.question.unwrap()
        });
        let gone: Vec<_> = gone.collect();
        self.asked.retain(|asked| !gone.contains(asked));
        self.asked.push(one);
        (one, gone)
    }

    fn held(&self, who: usize) -> usize {
        self.asked.iter().filter(|(whose, _)| *whose == who).count()
    }

    /// A server answers, or after `None` does not.
    fn end(&mut self, now: Time, (who, number): Asked, answer: Option<u32>) {
        let key = number.to_be_bytes();
        let found = |answer| Found { answer, bytes: 9, ttl: ms(60_000), negative: false };
        let (_, waiters) = match answer {
            Some(answer) => self.answers.on_answer(now, &key, found(answer)),
            None => self.answers.on_failure(now, &key),
        };
        assert_eq!(waiters, [(who, number)]);
        self.asked.retain(|asked| *asked != (who, number));
    }
}

/// Of these owners' places, the oldest first, the one that gives way to one of `asker`.
fn gives_way(owners: &[usize], asker: usize) -> Option<usize> {
    let count = |of: usize| owners.iter().filter(|owner| **owner == of).count();
    let own = count(asker);
    let is_other = |of: usize| asker != 0 && of != 0 && of != asker;
    let others = owners.iter().enumerate().filter(|(_, of)| is_other(**of));
    match others.map(|(nth, of)| (count(*of), Reverse(nth))).max() {
        Some((most, Reverse(nth))) if own == 0 || most > own + 1 => Some(nth),
        _ => owners.iter().position(|owner| *owner == asker),
    }
}

/// What gave way: of which question, who waited, and whether it goes on.
type Gone = (u8, Vec<u32>, bool);

fn gone(gave_way: GaveWay<u32, u8>) -> Gone {
    (gave_way.key[0], gave_way.waiters, gave_way.question.is_none())
}

/// Questions and waiters in plain lists, the oldest first.
#[derive(Default)]
struct Lists {
    /// Whose, and which.
    questions: Vec<(usize, u8)>,
    /// Whose, for which, and its number.
    waits: Vec<(usize, u8, u32)>,
}

impl Lists {
    /// Takes those out that leave.
    fn leave(&mut self, leaves: impl Fn(&(usize, u8, u32)) -> bool) -> Vec<u32> {
        let (gone, stay): (Vec<_>, Vec<_>) = self.waits.iter().copied().partition(leaves);
        self.waits = stay;
        gone.into_iter().map(|(.., number)| number).collect()
    }

    fn make_room(&mut self, asker: usize, most: usize) -> Vec<Gone> {
        let mut all = Vec::new();
        loop {
            let owners: Vec<usize> = self.questions.iter().map(|(owner, _)| *owner).collect();
            let counts = |owner: &&usize| (**owner == 0) == (asker == 0);
            if owners.iter().filter(counts).count() < most {
                return all;
            }
            let nth = gives_way(&owners, asker).expect("some are taken");
            let (owner, key) = self.questions[nth];
            let waiters = self.leave(|wait| (wait.0, wait.1) == (owner, key));
            let heir = self.waits.iter().find(|wait| wait.1 == key).map(|wait| wait.0);
            if let Some(heir) = heir {
                self.questions[nth].0 = heir;
            } else {
                self.questions.remove(nth);
            }
            all.push((key, waiters, heir.is_some()));
        }
    }

    fn make_room_to_wait(&mut self, asker: usize, most: usize) -> Option<Gone> {
        let waiting: Vec<usize> = self.waits.iter().map(|(of, ..)| *of).collect();
        if asker == 0 || waiting.iter().filter(|of| **of != 0).count() < most {
            return None;
        }
        let (_, key, number) = self.waits.remove(gives_way(&waiting, asker)?);
        Some((key, vec![number], true))
    }
}

proptest! {
    #[test]
    fn orders_say_the_same_as_a_look_at_all_questions(
        most in 1_usize..6,
        waiting in 1_usize..12,
        steps in proptest::collection::vec((0_u8..10, 0_usize..7, 0_u8..12), 1..300),
    ) {
        let (mut questions, mut lists) = (Questions::<u32, u8>::new(), Lists::default());
        for (number, (step, who, key)) in (0_u32..).zip(steps) {
            let asker = asker(who);
            let on_way = lists.questions.iter().any(|(_, asked)| *asked == key);
            prop_assert_eq!(questions.stale_at(&[key]).is_some(), on_way);
            match step {
                0 => {
                    lists.questions.retain(|(_, asked)| *asked != key);
                    prop_assert_eq!(questions.end(&[key]), lists.leave(|wait| wait.1 == key));
                }
                1 => {
                    let served = questions.on_deadline(at(0), &[key], || Some(()));
                    let waiters = served.map(|(_, waiters)| waiters).unwrap_or_default();
                    prop_assert_eq!(waiters, lists.leave(|wait| wait.1 == key));
                }
                // an answer is renewed before its end
                2 => {
                    if !on_way && questions.has_room(&asker, most) {
                        prop_assert!(lists.make_room(who, most).is_empty());
                        questions.begin(&[key], &asker, at(0), key);
                        lists.questions.push((who, key));
                    }
                }
                _ => {
                    if !on_way {
                        let all = questions.make_room(&asker, most).into_iter().map(gone);
                        prop_assert_eq!(all.collect::<Vec<_>>(), lists.make_room(who, most));
                        questions.begin(&[key], &asker, at(0), key);
                        lists.questions.push((who, key));
                    }
                    let one = questions.make_room_to_wait(&asker, waiting).map(gone);
                    prop_assert_eq!(one, lists.make_room_to_wait(who, waiting));
                    questions.wait(&[key], &asker, at(0), number);
                    lists.waits.push((who, key, number));
                }
            }
            questions.check();
            prop_assert_eq!(questions.len(), lists.questions.len());
            prop_assert_eq!(questions.waiting(), lists.waits.len());
        }
    }

    #[test]
    fn the_oldest_question_of_whoever_has_the_most_gives_way(
        asking in 1_usize..12,
        own in 1_usize..5,
        steps in proptest::collection::vec((0_usize..7, any::<bool>(), any::<usize>()), 1..200),
    ) {
        let mut table = Table::new(asking, own);
        for (who, asks, which) in steps {
            if !asks {
                let ended = table.asked.get(which % table.asked.len().max(1)).copied();
                ended.into_iter().for_each(|ended| table.end(at(0), ended, Some(1)));
                continue;
            }
            let before = table.asked.clone();
            let held: Vec<usize> = (0..7).map(|nth| table.held(nth)).collect();
            let full = if who == 0 { held[0] == own } else { before.len() - held[0] == asking };
            let (_, gone) = table.ask(at(0), who);
            prop_assert_eq!(gone.len(), usize::from(full));
            for (victim, number) in gone {
                let oldest = before.iter().find(|(whose, _)| *whose == victim);
                prop_assert_eq!(oldest, Some(&(victim, number)));
                prop_assert_eq!(victim == 0, who == 0, "the relay's own are apart");
                let most = held[1..].iter().max().copied().unwrap_or_default();
                let fair = victim == who && held[who] + 1 >= most
                    || victim != who && held[victim] == most
                        && (held[who] == 0 || most > held[who] + 1);
                prop_assert!(victim == 0 || fair, "{victim} of {held:?} for {who}");
            }
            prop_assert!(table.held(0) <= own && table.asked.len() - table.held(0) <= asking);
            prop_assert_eq!(table.answers.snapshot().asking, table.asked.len() as u64);
        }
    }

    #[test]
    fn slow_zones_of_some_delay_nobody_else(
        attackers in 1_usize..6, each in 20_u64..200, takes in 1_u64..900, pace in 20_u64..400,
    ) {
        // each attacker has its own slow zone, whose servers never answer: a question ends after 5 s
        let mut table = Table::new(64, 16);
        let mut ends: BTreeMap<(u64, usize), Asked> = BTreeMap::new();
        for now in 0..6_000_u64 {
            while let Some(entry) = ends.first_entry() {
                if entry.key().0 > now {
                    break;
                }
                let one = entry.remove();
                // attackers' may have given way
                if one.0 > 3 && !table.asked.contains(&one) {
                    continue;
                }
                let answer = (one.0 <= 3).then_some(1);
                prop_assert!(table.asked.contains(&one), "{one:?} lost its place at {now} ms");
                table.end(at(now), one, answer);
            }
            for who in 4..4 + attackers {
                if now.is_multiple_of(1_000 / each) {
                    let (one, _) = table.ask(at(now), who);
                    ends.insert((now + 5_000, one.1 as usize), one);
                }
            }
            // the relay, an account, a joined relay and a client have seven at most: 64 places are eight for each of eight
            if now.is_multiple_of(pace.max(takes / 6 + 1)) {
                for who in 0..4 {
                    let (one, _) = table.ask(at(now), who);
                    ends.insert((now + takes, one.1 as usize), one);
                }
            }
        }
    }
}

#[test]
fn a_question_that_others_wait_for_goes_on_as_theirs() {
    let mut answers = Answers::new(Config { asking: 3, ..Config::default() });
    let [slow, other, third] = [4, 5, 6].map(asker);
    let mut ask = |key: &'static str, asker: &Asker, waiter: u32| {
        answers.on_question(at(0), (key.as_bytes(), asker), || waiter, || key)
    };
    let asked = |ask| (Decision::Wait { ask }, vec![]);
    assert_eq!([ask("a", &slow, 1), ask("b", &slow, 2)], [asked(true), asked(true)]);
    assert_eq!([ask("d", &slow, 3), ask("a", &other, 4)], [asked(true), asked(false)]);
    // the oldest becomes the other's, which makes no place yet
    let gone = |waiter, question| {
        let released = (Outcome::GaveWay, vec![waiter]);
        Displaced { released, question }
    };
    let both = vec![gone(1, None), gone(2, Some("b"))];
    assert_eq!(ask("c", &third, 5), (Decision::Wait { ask: true }, both));
    let found = || Found { answer: 7, bytes: 9, ttl: ms(60_000), negative: false };
    let mut waited = |key: &str| answers.on_answer(at(1), key.as_bytes(), found()).1;
    assert_eq!(["a", "c", "d"].map(&mut waited), [[4], [5], [3]]);
    // one that comes although it gave way is kept, and nobody waits for it
    assert!(waited("b").is_empty());
}

#[test]
fn the_longest_wait_of_who_waits_the_most_gives_way() {
    let config = Config { waiting: 3, ..Config::default() };
    let mut answers: Answers<u32, u32, ()> = Answers::new(config);
    let mut ask = |who: usize, waiter: u32| {
        let (decision, displaced) =
            answers.on_question(at(0), (b"a", &asker(who)), || waiter, || ());
        assert!(matches!(decision, Decision::Wait { .. }));
        let gone = displaced.into_iter().flat_map(|gone| {
            assert!(gone.question.is_none());
            gone.released.1
        });
        gone.collect::<Vec<_>>()
    };
    assert_eq!([ask(4, 1), ask(4, 2), ask(4, 3)], [vec![], vec![], vec![]]);
    // another's, then its own
    assert_eq!([ask(5, 4), ask(5, 5), ask(4, 6)], [vec![1], vec![4], vec![2]]);
    // the relay's own connections have a limit of their own
    assert_eq!([ask(0, 7), ask(0, 8)], [vec![], vec![]]);
}

#[test]
fn of_those_that_wait_equally_much_the_longest_wait_gives_way() {
    let mut questions: Questions<u32, ()> = Questions::new();
    questions.begin(b"a", &asker(3), at(0), ());
    // the owner's is the longest; 6 has one already, and gives that
    let waiters = [3, 6, 5, 4, 6, 3].map(|who| {
        let gone = questions.make_room_to_wait(&asker(who), 3);
        questions.wait(b"a", &asker(who), at(0), who as u32);
        gone.map(|gone| gone.waiters)
    });
    let gave_way = |who| Some(vec![who]);
    assert_eq!(waiters, [None, None, None, gave_way(3), gave_way(6), gave_way(5)]);
}
