//! What holds of the answers after every event, against a plain account of what was asked and answered.

use super::answers::*;
use super::asker::Asker;
use crate::testing::*;

#[derive(Debug, Clone)]
enum Step {
    Ask(u8, u8),
    Answer { which: usize, seconds: u64, bytes: u64, negative: bool },
    Fail(usize),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let answer = (any::<usize>(), 0_u64..300, 0_u64..2_000, any::<bool>()).prop_map(
        |(which, seconds, bytes, negative)| Step::Answer { which, seconds, bytes, negative },
    );
    let step = prop_oneof![
        6 => (0_u8..12, 0_u8..5).prop_map(|(key, asker)| Step::Ask(key, asker)),
        3 => answer,
        2 => any::<usize>().prop_map(Step::Fail),
        3 => (0_u64..40_000).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 0..300)
}

fn config() -> Config {
    Config {
        memory: Bytes::kib(4),
        min_ttl: ms(2_000),
        max_ttl: ms(120_000),
        negative_ttl: ms(20_000),
        stale: ms(600_000),
        asking: 5,
        own: 3,
        waiting: 9,
        ..Config::default()
    }
}

/// An answer: its number, and the time at which it ended.
type Known = (u32, Time);

#[derive(Default)]
struct Plain {
    /// Keys that a server is being asked for.
    asked: Vec<u8>,
    waiting: BTreeMap<u32, (u8, Time)>,
    /// The last answer to each key.
    known: BTreeMap<u8, Known>,
    failed: BTreeMap<u8, Time>,
}

impl Plain {
    /// What one client is answered must be true.
    fn check(&self, now: Time, key: u8, outcome: &Outcome<u32>) {
        match outcome {
            Outcome::Fresh(answer, left) => {
                let (last, until) = self.known[&key];
                assert_eq!(*answer, last, "never an older answer than the last");
                assert!(now + *left <= until.max(now), "never beyond its end");
            }
            Outcome::Stale(answer) => {
                let (last, until) = self.known[&key];
                assert_eq!(*answer, last);
                assert!(now >= until && now < until + config().stale);
            }
            Outcome::Failed | Outcome::GaveWay => {}
        }
    }

    fn release(&mut self, now: Time, (outcome, waiters): (Outcome<u32>, Vec<u32>)) {
        for waiter in waiters {
            let (key, _) = self.waiting.remove(&waiter).expect("each is released once");
            self.check(now, key, &outcome);
        }
    }
}

/// This relay itself, a client, and others.
fn asker_of(nth: u8) -> Asker {
    match nth {
        0 => Asker::Relay,
        1 => Asker::Account(1),
        2 => Asker::Peer("ship".into()),
        _ => Asker::at([192, 0, 2, nth].into()),
    }
}

/// The earliest deadline of these questions, and whose it is.
fn first_deadline(answers: &Answers<u32, u32, u8>, asked: &[u8]) -> Option<(Time, u8)> {
    asked.iter().map(|key| (answers.deadline(&[*key]), *key)).min()
}

proptest! {
    #[test]
    fn every_question_is_answered_once_and_truly_within_memory(steps in steps()) {
        let (mut answers, mut plain) = (Answers::new(config()), Plain::default());
        let (mut now, mut next) = (Time::ZERO, 0_u32);
        for step in steps {
            match step {
                Step::Ask(key, asker) => {
                    next += 1;
                    let asker = asker_of(asker);
                    let known = answers.snapshot();
                    let begins = answers.begins(now, &[key]);
                    let kept = answers.kept(now, &[key]).copied();
                    let (decision, displaced) =
                        answers.on_question(now, (&[key], &asker), || next, || key);
                    for Displaced { released, question } in displaced {
                        assert!(known.asking >= 3, "not without need");
                        assert!(!matches!(released.0, Outcome::Fresh(..)));
                        plain.release(now, released);
                        // a question that others wait for goes on
                        plain.asked.retain(|asked| Some(*asked) != question);
                        let waits = |of: &u8| plain.waiting.values().any(|(key, _)| key == of);
                        assert!(!question.as_ref().is_some_and(waits));
                    }
                    let asked = matches!(decision, Decision::Wait { ask: true });
                    assert_eq!(asked, begins, "it is known before");
                    let fresh = match &decision {
                        Decision::Answer { outcome: Outcome::Fresh(answer, _), .. } => Some(*answer),
                        _ => None,
                    };
                    assert_eq!(fresh, kept);
                    match decision {
                        Decision::Answer { outcome, ask } => {
                            plain.check(now, key, &outcome);
                            if ask {
                                assert!(matches!(outcome, Outcome::Fresh(..)), "before its end");
                                plain.asked.push(key);
                            }
                            let failed = plain.failed.get(&key);
                            if matches!(outcome, Outcome::Failed) {
                                let failed = failed.expect("there is always room");
                                assert!(now < *failed + config().retry);
                            }
                        }
                        Decision::Wait { ask } => {
                            plain.waiting.insert(next, (key, now));
                            if ask {
                                let failed = plain.failed.get(&key);
                                assert!(!plain.asked.contains(&key), "one question at a time");
                                // an entry that was evicted forgets its failure
                                if answers.snapshot().evicted == 0 && let Some(failed) = failed {
                                    assert!(now >= *failed + config().retry);
                                }
                                plain.asked.push(key);
                            }
                            assert!(plain.asked.contains(&key), "somebody asks");
                        }
                    }
                }
                Step::Answer { which, seconds, bytes, negative } if !plain.asked.is_empty() => {
                    let key = plain.asked.remove(which % plain.asked.len());
                    next += 1;
                    let found = Found { answer: next, bytes, ttl: Span::from_secs(seconds), negative };
                    let released = answers.on_answer(now, &[key], found);
                    let Outcome::Fresh(answer, ttl) = released.0 else { panic!("an answer") };
                    let most = if negative { config().negative_ttl } else { config().max_ttl };
                    assert!(answer == next && ttl <= most);
                    plain.known.insert(key, (answer, now + ttl));
                    plain.failed.remove(&key);
                    plain.release(now, released);
                }
                Step::Fail(which) if !plain.asked.is_empty() => {
                    let key = plain.asked.remove(which % plain.asked.len());
                    plain.failed.insert(key, now);
                    let released = answers.on_failure(now, &[key]);
                    plain.release(now, released);
                }
                Step::Answer { .. } | Step::Fail(_) => {}
                Step::Pass(millis) => {
                    let end = now + ms(millis);
                    while let Some((deadline, key)) = first_deadline(&answers, &plain.asked)
                        && deadline <= end
                    {
                        now = now.max(deadline);
                        if let Some((outcome, waiters)) = answers.on_deadline(now, &[key]) {
                            assert!(matches!(outcome, Outcome::Stale(_)));
                            for waiter in &waiters {
                                assert!(now.since(plain.waiting[waiter].1) <= config().patience);
                            }
                            plain.release(now, (outcome, waiters));
                        }
                        assert!(answers.deadline(&[key]) > now, "a deadline does something");
                    }
                    now = end;
                }
            }
            let seen = answers.snapshot();
            assert!(seen.bytes <= config().memory.as_u64());
            assert!((seen.entries == 0) == (seen.bytes == 0));
            assert_eq!(seen.asking, plain.asked.len() as u64);
            assert_eq!(seen.waiting, plain.waiting.len() as u64);
            // the relay may wait for questions that clients began
            let own = plain.waiting.len().max(config().own);
            assert!(plain.asked.len() <= config().asking + own);
        }
        while let Some(key) = plain.asked.pop() {
            let released = answers.on_failure(now, &[key]);
            plain.release(now, released);
        }
        assert!(plain.waiting.is_empty(), "nobody is forgotten");
    }
}
