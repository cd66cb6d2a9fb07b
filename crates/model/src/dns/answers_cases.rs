//! Single cases of the answers; `answers_laws` has what holds of all.

use super::answers::*;
use super::asker::Asker;
use crate::testing::*;

fn found(answer: u32, seconds: u64) -> Found<u32> {
    Found { answer, bytes: 100, ttl: Span::from_secs(seconds), negative: false }
}

fn asked(answers: &mut Answers<u32, u32, ()>, at: Time, waiter: u32) -> Decision<u32> {
    let (decision, displaced) = answers.on_question(at, (b"a", &Asker::Relay), || waiter, || ());
    assert!(displaced.is_empty());
    decision
}

const fn answer(outcome: Outcome<u32>) -> Decision<u32> {
    Decision::Answer { outcome, ask: false }
}

#[test]
fn many_that_ask_the_same_are_one_question() {
    let mut answers = Answers::new(Config::default());
    assert_eq!(asked(&mut answers, at(0), 1), Decision::Wait { ask: true });
    assert_eq!(asked(&mut answers, at(5), 2), Decision::Wait { ask: false });
    let (outcome, waiters) = answers.on_answer(at(9), b"a", found(7, 60));
    assert_eq!((outcome, waiters), (Outcome::Fresh(7, Span::from_secs(60)), vec![1, 2]));
    assert_eq!(asked(&mut answers, at(10_009), 3), answer(Outcome::Fresh(7, ms(50_000))));
    let seen = answers.snapshot();
    assert_eq!((seen.asked, seen.joined, seen.fresh, seen.waiting), (1, 1, 1, 0));
}

#[test]
fn a_popular_answer_is_asked_for_before_its_end() {
    let mut answers = Answers::new(Config::default());
    asked(&mut answers, at(0), 1);
    answers.on_answer(at(0), b"a", found(7, 100));
    // once in its last tenth: nobody knows yet whether anybody comes again
    assert_eq!(asked(&mut answers, at(95_000), 2), answer(Outcome::Fresh(7, ms(5_000))));
    let again = Decision::Answer { outcome: Outcome::Fresh(7, ms(4_000)), ask: true };
    assert_eq!(asked(&mut answers, at(96_000), 3), again);
    assert_eq!(asked(&mut answers, at(97_000), 4), answer(Outcome::Fresh(7, ms(3_000))));
    answers.on_answer(at(98_000), b"a", found(8, 100));
    assert_eq!(asked(&mut answers, at(99_000), 5), answer(Outcome::Fresh(8, ms(99_000))));
}

#[test]
fn an_answer_past_its_end_is_had_without_a_question_for_as_long_as_it_may_be_served() {
    let mut answers = Answers::new(Config::default());
    asked(&mut answers, at(0), 1);
    answers.on_answer(at(0), b"a", found(7, 1));
    assert_eq!(answers.past_end(at(999), b"a", |_| true), None, "it has not ended");
    assert_eq!(answers.past_end(at(1_000), b"a", |answer| *answer == 8), None);
    assert_eq!(answers.past_end(at(1_000), b"b", |_| true), None);
    let seen = answers.snapshot();
    assert_eq!(answers.past_end(at(1_000), b"a", |answer| *answer == 7), Some(7));
    assert_eq!(answers.snapshot(), Snapshot { stale: seen.stale + 1, ..seen });
    let end = at(1_000) + Config::default().stale;
    assert_eq!(answers.past_end(end, b"a", |_| true), None);
}

#[test]
fn an_answer_past_its_end_is_served_while_no_server_answers() {
    let mut answers = Answers::new(Config::default());
    asked(&mut answers, at(0), 1);
    answers.on_answer(at(0), b"a", found(7, 1));
    assert_eq!(asked(&mut answers, at(2_000), 2), Decision::Wait { ask: true });
    assert_eq!(answers.deadline(b"a"), at(3_800));
    assert_eq!(answers.on_deadline(at(3_800), b"a"), Some((Outcome::Stale(7), vec![2])));
    // the next one does not wait
    assert_eq!(asked(&mut answers, at(4_000), 3), answer(Outcome::Stale(7)));
    assert_eq!(answers.on_failure(at(7_000), b"a"), (Outcome::Stale(7), vec![]));
    assert_eq!(asked(&mut answers, at(8_000), 4), answer(Outcome::Stale(7)));
    assert_eq!(asked(&mut answers, at(12_000), 5), Decision::Wait { ask: true });
    answers.on_failure(at(12_001), b"a");
    assert_eq!(asked(&mut answers, at(86_402_000), 6), Decision::Wait { ask: true });
}

#[test]
fn each_question_has_a_time_of_its_own() {
    let mut answers: Answers<u32, u32, ()> = Answers::new(Config::default());
    for (key, came) in [(b"a", 2_000), (b"b", 2_500), (b"c", 3_000)] {
        if key != b"b" {
            answers.on_answer(at(0), key, found(7, 1));
        }
        answers.on_question(at(came), (key, &Asker::Relay), || 1, || ());
    }
    let deadlines =
        |answers: &Answers<u32, u32, ()>| [b"a", b"b", b"c", b"d"].map(|key| answers.deadline(key));
    assert_eq!(deadlines(&answers), [at(3_800), at(4_300), at(4_800), Time::NEVER]);
    // one that comes too early, and one without an answer past its end
    assert_eq!(answers.on_deadline(at(4_500), b"c"), None);
    assert_eq!(answers.on_deadline(at(4_500), b"b"), None);
    assert_eq!(deadlines(&answers), [at(3_800), Time::NEVER, at(4_800), Time::NEVER]);
    assert_eq!(answers.on_deadline(at(4_500), b"a"), Some((Outcome::Stale(7), vec![1])));
    assert_eq!(answers.on_deadline(at(4_500), b"d"), None);
    assert_eq!(deadlines(&answers), [Time::NEVER, Time::NEVER, at(4_800), Time::NEVER]);
}

#[test]
fn a_failure_is_not_repeated_at_once() {
    let mut answers = Answers::new(Config::default());
    asked(&mut answers, at(0), 1);
    assert_eq!(answers.on_failure(at(10), b"a"), (Outcome::Failed, vec![1]));
    assert_eq!(asked(&mut answers, at(5_000), 2), answer(Outcome::Failed));
    assert_eq!(asked(&mut answers, at(5_010), 3), Decision::Wait { ask: true });
}

#[test]
fn an_answer_that_may_not_be_kept_is_not() {
    let config = Config { min_ttl: ms(5_000), ..Config::default() };
    let mut answers = Answers::new(config);
    asked(&mut answers, at(0), 1);
    answers.on_answer(at(0), b"a", found(7, 0));
    assert_eq!(asked(&mut answers, at(1), 2), Decision::Wait { ask: true });
    let negative = Found { negative: true, ..found(8, 600) };
    let (outcome, _) = answers.on_answer(at(1), b"a", negative);
    assert_eq!(outcome, Outcome::Fresh(8, config.negative_ttl));
}
