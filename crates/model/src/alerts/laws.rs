//! Faults that come and go at random, and receivers that fail at random.

use super::{Alerts, Config, Fact, Firing, Key, Notice, Outbox, OutboxConfig, Seen, State};
use crate::testing::*;

type Fault = (u8, u8);

fn key((subject, alert): Fault) -> Key<u8> {
    Key { subject: format!("s{subject}"), alert }
}

fn fact(fault: Fault, seen: Seen) -> Fact<u8> {
    Fact { key: key(fault), seen, text: "text".to_string() }
}

fn secs(n: u64) -> Time {
    at(n * 1_000)
}

/// What is seen at a look, each of some seconds after the one before.
#[derive(Debug, Clone)]
struct Look {
    after: u64,
    bad: Vec<Fault>,
    between: Vec<Fault>,
    /// Whether a message that is due now arrives.
    arrives: bool,
}

fn looks() -> impl Strategy<Value = Vec<Look>> {
    let faults = || prop::collection::vec((0..3_u8, 0..2_u8), 0..4);
    let look = (1..200_u64, faults(), faults(), any::<bool>());
    let look = look.prop_map(|(after, bad, between, arrives)| {
        let between = between.into_iter().filter(|fault| !bad.contains(fault)).collect();
        Look { after, bad, between, arrives }
    });
    prop::collection::vec(look, 1..150)
}

/// The alerts and one receiver, and everything that was told and delivered.
struct Stage {
    alerts: Alerts<u8>,
    outbox: Outbox<u8>,
    now: u64,
    told: Vec<(u64, Notice<u8>)>,
    delivered: Vec<(u64, Vec<Notice<u8>>)>,
}

impl Stage {
    fn new(config: Config) -> Self {
        let (alerts, outbox) = (Alerts::new(config), Outbox::new(OutboxConfig::default()));
        Self { alerts, outbox, now: 1_000, told: Vec::new(), delivered: Vec::new() }
    }

    fn look(&mut self, look: &Look) {
        self.now += look.after;
        let now = secs(self.now);
        let bad = look.bad.iter().map(|fault| fact(*fault, Seen::Bad));
        let between = look.between.iter().map(|fault| fact(*fault, Seen::Between));
        for notice in self.alerts.on_look(now, self.now, bad.chain(between).collect()) {
            self.told.push((self.now, notice.clone()));
            self.outbox.on_notice(now, notice);
        }
        assert!(self.alerts.deadline() > now, "everything due was done");
        let message = self.outbox.on_deadline(now);
        if message.is_empty() {
            assert!(self.outbox.deadline() > now);
            return;
        }
        assert_eq!(self.outbox.deadline(), Time::NEVER, "one message at a time");
        assert_eq!(self.outbox.on_deadline(now), []);
        match look.arrives {
            true => {
                self.outbox.on_delivered(now);
                self.delivered.push((self.now, message));
            }
            false => self.outbox.on_failed(now),
        }
        assert!(self.outbox.deadline() > now);
    }

    fn of(&self, fault: Fault) -> impl Iterator<Item = &(u64, Notice<u8>)> {
        self.told.iter().filter(move |(_, notice)| notice.key == key(fault))
    }
}

fn all() -> impl Iterator<Item = Fault> {
    (0..3).flat_map(|subject| (0..2).map(move |alert| (subject, alert)))
}

proptest! {
    #[test]
    fn an_alert_resolves_once_for_each_time_that_it_fired(looks in looks()) {
        let mut stage = Stage::new(Config::default());
        looks.iter().for_each(|look| stage.look(look));
        for fault in all() {
            let mut standing: Option<u64> = None;
            for (at, notice) in stage.of(fault) {
                match notice.state {
                    State::Firing => {
                        prop_assert!(notice.until.is_none() && notice.since + 60 <= *at);
                        // told again with the same beginning, and no sooner than configured
                        prop_assert!(standing.is_none_or(|since| since == notice.since));
                        standing = Some(notice.since);
                    }
                    State::Resolved => {
                        prop_assert_eq!(standing.take(), Some(notice.since));
                        prop_assert_eq!(notice.until, Some(*at));
                    }
                }
            }
            let stands = stage.alerts.snapshot().iter().any(|firing| firing.key == key(fault));
            prop_assert_eq!(standing.is_some(), stands);
        }
    }

    #[test]
    fn a_fault_that_does_not_last_is_not_told(looks in looks()) {
        let mut stage = Stage::new(Config { after: Span::from_secs(200 * 151), ..Config::default() });
        looks.iter().for_each(|look| stage.look(look));
        prop_assert!(stage.told.is_empty() && stage.alerts.snapshot().is_empty());
    }

    #[test]
    fn flapping_is_told_a_few_times_an_hour(looks in looks()) {
        let mut stage = Stage::new(Config::default());
        looks.iter().for_each(|look| stage.look(look));
        for fault in all() {
            let times: Vec<u64> = stage.of(fault).map(|(at, _)| *at).collect();
            // holds of 1, 2, 4, 8, 16 and 30 minutes, each with a minute before it fires
            let most = times.iter().map(|from| {
                times.iter().filter(|at| (*from..from + 3_600).contains(at)).count()
            });
            prop_assert!(most.max().unwrap_or(0) <= 14, "{:?}", times);
        }
    }

    #[test]
    fn messages_keep_their_distance_and_tell_the_newest(looks in looks()) {
        let mut stage = Stage::new(Config::default());
        looks.iter().for_each(|look| stage.look(look));
        // all is well and everything arrives, at last
        for _ in 0..60 {
            stage.look(&Look { after: 60, bad: vec![], between: vec![], arrives: true });
        }
        let mut last: BTreeMap<String, u64> = BTreeMap::new();
        for pair in stage.delivered.windows(2) {
            prop_assert!(pair[1].0 >= pair[0].0 + 5);
        }
        for (at, message) in &stage.delivered {
            let subjects: BTreeSet<String> =
                message.iter().map(|notice| notice.key.subject.clone()).collect();
            for subject in subjects {
                let before = last.insert(subject, *at);
                prop_assert!(before.is_none_or(|before| *at >= before + 60));
            }
        }
        prop_assert_eq!(stage.outbox.snapshot().waiting, 0);
        prop_assert_eq!(stage.alerts.snapshot(), vec![]);
        for fault in all() {
            let newest = |notices: &mut dyn Iterator<Item = &Notice<u8>>| notices.last().cloned();
            let told = newest(&mut stage.of(fault).map(|(_, notice)| notice));
            let mut delivered = stage.delivered.iter().flat_map(|(_, message)| message);
            let delivered = newest(&mut delivered.by_ref().filter(|notice| notice.key == key(fault)));
            prop_assert_eq!(told, delivered);
        }
    }
}

fn well(after: u64) -> Look {
    Look { after, bad: vec![], between: vec![], arrives: true }
}

fn bad(after: u64) -> Look {
    Look { bad: vec![(0, 0)], ..well(after) }
}

fn states(stage: &Stage) -> Vec<(u64, State)> {
    stage.told.iter().map(|(at, notice)| (*at, notice.state)).collect()
}

#[test]
fn an_alert_that_returns_must_be_well_for_longer() {
    let mut stage = Stage::new(Config::default());
    for look in [bad(10), bad(60), well(10), well(60)] {
        stage.look(&look);
    }
    assert_eq!(states(&stage), [(1_070, State::Firing), (1_140, State::Resolved)]);
    for look in [bad(10), bad(60), well(10), well(60), well(60)] {
        stage.look(&look);
    }
    assert_eq!(states(&stage)[2..], [(1_210, State::Firing), (1_340, State::Resolved)]);
    // an hour later it is forgotten
    for look in [well(3_600), bad(10), bad(60), well(10), well(60)] {
        stage.look(&look);
    }
    assert_eq!(states(&stage)[4..], [(5_010, State::Firing), (5_080, State::Resolved)]);
}

#[test]
fn between_two_limits_nothing_begins_and_nothing_ends() {
    let mut stage = Stage::new(Config::default());
    let between = |after| Look { between: vec![(0, 0)], ..well(after) };
    for look in [between(10), between(600), bad(10), between(30), bad(10), bad(59)] {
        stage.look(&look);
    }
    assert_eq!(states(&stage), [], "it was never wrong for a minute");
    for look in [bad(1), between(600), between(600)] {
        stage.look(&look);
    }
    assert_eq!(states(&stage).len(), 1);
    assert!(stage.alerts.deadline() > secs(80_000), "nothing but a reminder is to come");
}

#[test]
fn a_standing_alert_is_told_again_each_day_or_never() {
    for (repeat, times) in [(Some(Span::from_secs(86_400)), 3), (None, 1)] {
        let mut stage = Stage::new(Config { repeat, ..Config::default() });
        (0..50).for_each(|_| stage.look(&bad(3_600)));
        assert_eq!(states(&stage).len(), times, "{repeat:?}");
        assert!(stage.told.iter().all(|(_, notice)| notice.since == 4_600));
    }
}

#[test]
fn an_alert_from_before_a_restart_is_not_told_anew_and_resolves() {
    let mut stage = Stage::new(Config::default());
    let firing = Firing { key: key((0, 0)), since: 7, text: "text".to_string() };
    stage.alerts.on_restored(secs(1_000), firing.clone());
    assert_eq!(stage.alerts.snapshot(), [firing]);
    for look in [bad(60), bad(600)] {
        stage.look(&look);
    }
    assert_eq!(states(&stage), []);
    for look in [well(10), well(60)] {
        stage.look(&look);
    }
    assert_eq!(states(&stage), [(1_730, State::Resolved)]);
    assert_eq!(stage.told[0].1.since, 7);
}

fn notice(fault: Fault, state: State) -> Notice<u8> {
    let until = (state == State::Resolved).then_some(9);
    Notice { key: key(fault), state, since: 5, until, text: "text".to_string() }
}

#[test]
fn a_receiver_that_is_away_is_told_the_newest_and_not_asked_without_end() {
    let mut outbox = Outbox::new(OutboxConfig::default());
    outbox.on_notice(secs(0), notice((0, 0), State::Firing));
    let (mut now, mut attempts) = (secs(0), Vec::new());
    while outbox.deadline() < secs(86_400) {
        now = outbox.deadline();
        assert_eq!(outbox.on_deadline(now).len(), 1);
        attempts.push(now);
        outbox.on_failed(now);
    }
    let waits: Vec<u64> = attempts.windows(2).map(|two| two[1].since(two[0]).as_secs()).collect();
    assert_eq!(waits[..8], [10, 20, 40, 80, 160, 320, 640, 900]);
    assert!(waits[8..].iter().all(|wait| *wait == 900));
    // the end replaces the beginning, which nobody was told of, and is given up after a day
    outbox.on_notice(now, notice((0, 0), State::Resolved));
    assert_eq!(outbox.snapshot().waiting, 1);
    now = outbox.deadline();
    assert_eq!(outbox.on_deadline(now), [notice((0, 0), State::Resolved)]);
    outbox.on_failed(now);
    assert_eq!(outbox.on_deadline(now + Span::from_secs(86_400)), []);
    let snapshot = outbox.snapshot();
    assert_eq!((snapshot.waiting, snapshot.dropped, snapshot.delivered), (0, 1, 0));
    assert_eq!(outbox.deadline(), Time::NEVER);
}

#[test]
fn many_subjects_share_messages() {
    let mut outbox = Outbox::new(OutboxConfig::default());
    let many = |n: u16| Notice {
        key: Key { subject: format!("account{n:03}"), alert: 0_u8 },
        ..notice((0, 0), State::Firing)
    };
    (0..250).for_each(|n| outbox.on_notice(secs(0), many(n)));
    let mut lengths = Vec::new();
    while outbox.deadline() != Time::NEVER {
        let now = outbox.deadline();
        lengths.push((now.since(Time::ZERO).as_secs(), outbox.on_deadline(now).len()));
        outbox.on_delivered(now);
    }
    assert_eq!(lengths, [(0, 100), (5, 100), (10, 50)]);
}
