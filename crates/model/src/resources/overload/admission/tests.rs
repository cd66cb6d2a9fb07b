//! Who comes in, who waits, and for how long.

use super::*;
use crate::resources::overload::{Resource, Watermarks};
use crate::testing::*;
use AdmissionVerdict::{Evict, Proceed, Refuse, Wait};

fn full_at(max: u64, used: u64) -> Pressure {
    let mut pressure = Pressure::new(Watermarks { high: Share::ALL, low: Share::ALL });
    pressure.on_level(Resource::Connections, used, Some(max));
    pressure
}

#[test]
fn lowered_limit_evicts_several() {
    let mut admission = Admission::new(AdmissionConfig::default());
    let ask = |admission: &mut Admission<u8>, used, idle| {
        admission.ask(Time::ZERO, 1, &full_at(200, used), idle)
    };
    assert_eq!(ask(&mut admission, 199, 50), Proceed);
    assert_eq!(ask(&mut admission, 200, 50), Evict(1));
    assert_eq!(ask(&mut admission, 210, 50), Evict(11));
    assert_eq!(ask(&mut admission, 210, 4), Evict(4));
}

#[test]
fn without_connection_management_idle_ones_are_no_room() {
    let config = AdmissionConfig { evict: false, ..AdmissionConfig::default() };
    let mut admission = Admission::new(config);
    assert!(matches!(admission.ask(Time::ZERO, 1, &full_at(9, 9), 5), Wait(_)));
    assert_eq!(admission.next(&full_at(9, 9), 5), None);
    assert_eq!(admission.next(&full_at(9, 8), 0), Some((1, Proceed)));
}

#[test]
fn newcomer_queues_behind_waiting_clients() {
    let mut admission = Admission::new(AdmissionConfig::default());
    let mut ask = |who, used, idle| admission.ask(Time::ZERO, who, &full_at(9, used), idle);
    assert!(matches!(ask(1, 9, 0), Wait(_)));
    assert!(matches!(ask(2, 8, 0), Wait(_)), "a place came free for the first one");
    assert!(matches!(ask(3, 9, 2), Wait(_)), "as many are idle as wait");
    assert_eq!(ask(4, 9, 4), Evict(1), "one is idle beyond them");
    assert_eq!(ask(5, 13, 5), Evict(2), "five would have to go, three are the others'");
    let order: Vec<u8> =
        (0..3).filter_map(|_| admission.next(&full_at(9, 9), 1)).map(|(who, _)| who).collect();
    assert_eq!(order, [1, 2, 3]);
}

#[test]
fn refusal_names_the_retry_time() {
    let config = AdmissionConfig { most_waiting: 1, ..AdmissionConfig::default() };
    let mut admission = Admission::new(config);
    assert!(matches!(admission.ask(at(0), 1, &full_at(9, 9), 0), Wait(_)));
    let mut refused = |ms| admission.ask(at(ms), 2, &full_at(9, 9), 0);
    assert_eq!(refused(4_000), Refuse { retry_after: Span::from_secs(6) });
    assert_eq!(refused(9_999), Refuse { retry_after: Span::from_secs(1) });
    let config = AdmissionConfig { most_waiting: 0, ..config };
    let verdict = Admission::new(config).ask(at(0), 1, &full_at(9, 9), 0);
    assert_eq!(verdict, Refuse { retry_after: Span::from_secs(10) });
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Come { after_ms: u64 },
    Finish,
    Close,
    Leave { at: usize },
    Wait { after_ms: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_u64..400).prop_map(|after_ms| Step::Come { after_ms }),
        3 => Just(Step::Finish),
        2 => Just(Step::Close),
        1 => any::<usize>().prop_map(|at| Step::Leave { at }),
        1 => (0_u64..3_000).prop_map(|after_ms| Step::Wait { after_ms }),
    ];
    proptest::collection::vec(step, 0..300)
}

const MOST: u64 = 6;
const CONFIG: AdmissionConfig =
    AdmissionConfig { evict: true, most_waiting: 5, patience: Span::from_secs(2) };

/// A small proxy: so many connections at work, so many idle.
struct Small {
    admission: Admission<u32>,
    active: u64,
    idle: u64,
    /// Who waits, in the order of coming, with the deadline.
    queue: VecDeque<(u32, Time, Ticket)>,
    last_in: Option<u32>,
}

impl Small {
    fn pressure(&self) -> Pressure {
        full_at(MOST, self.active + self.idle)
    }

    fn let_in(&mut self, who: u32, verdict: AdmissionVerdict) {
        if let Evict(n) = verdict {
            assert!(n >= 1 && n <= self.idle, "only idle ones are closed");
            self.idle -= n;
        }
        self.active += 1;
        assert!(self.active + self.idle <= MOST);
        assert!(self.last_in.is_none_or(|last| last < who), "in the order of coming");
        self.last_in = Some(who);
    }

    fn serve(&mut self) {
        while let Some((who, verdict)) = self.admission.next(&self.pressure(), self.idle as usize) {
            let (expected, ..) = self.queue.pop_front().unwrap();
            assert_eq!(who, expected);
            self.let_in(who, verdict);
        }
        // none waits while there is room or something idle
        assert!(self.queue.is_empty() || (self.idle == 0 && self.active == MOST));
    }
}

proptest! {
    #[test]
    fn nobody_waits_beside_an_idle_connection_nor_longer_than_told(steps in steps()) {
        let admission = Admission::new(CONFIG);
        let mut small =
            Small { admission, active: 0, idle: 0, queue: VecDeque::new(), last_in: None };
        let (mut now, mut who) = (Time::ZERO, 0);
        for step in steps {
            match step {
                Step::Come { after_ms } | Step::Wait { after_ms } => {
                    now += Span::from_millis(after_ms);
                }
                Step::Finish if small.active > 0 => {
                    small.active -= 1;
                    small.idle += 1;
                }
                Step::Close if small.active > 0 => small.active -= 1,
                Step::Leave { at } if !small.queue.is_empty() => {
                    let at = at % small.queue.len();
                    let (who, _, ticket) = small.queue.remove(at).unwrap();
                    prop_assert_eq!(small.admission.leave(ticket), Some(who));
                    prop_assert_eq!(small.admission.leave(ticket), None);
                }
                _ => {}
            }
            // the first deadline is the first one's, and nobody waits beyond it
            let first = small.queue.front().map_or(Time::NEVER, |(_, deadline, _)| *deadline);
            prop_assert_eq!(small.admission.deadline(), first);
            while let Some(refused) = small.admission.on_deadline(now) {
                let (expected, deadline, _) = small.queue.pop_front().unwrap();
                prop_assert_eq!(refused, expected);
                prop_assert!(now >= deadline);
            }
            prop_assert!(small.queue.iter().all(|(_, deadline, _)| *deadline > now));
            small.serve();
            if let Step::Come { .. } = step {
                let (idle, active) = (small.idle, small.active);
                let pressure = small.pressure();
                match small.admission.ask(now, who, &pressure, idle as usize) {
                    Wait(ticket) => {
                        prop_assert!(idle == 0 && active == MOST);
                        small.queue.push_back((who, now + CONFIG.patience, ticket));
                    }
                    Refuse { retry_after } => {
                        prop_assert!(idle == 0 && active == MOST);
                        prop_assert_eq!(small.queue.len(), CONFIG.most_waiting);
                        prop_assert!(retry_after >= SHORTEST_RETRY);
                        prop_assert!(retry_after <= CONFIG.patience);
                    }
                    verdict => {
                        prop_assert!(small.queue.is_empty(), "before those who wait");
                        prop_assert_eq!(verdict == Proceed, active + idle < MOST);
                        small.let_in(who, verdict);
                    }
                }
                who += 1;
            }
            prop_assert_eq!(small.admission.waiting(), small.queue.len());
        }
        let told = small.admission.snapshot();
        let all = told.proceeded + told.evicted_for + told.waited + told.refused;
        prop_assert_eq!(all, u64::from(who));
        let out = told.served + told.timed_out + told.left;
        prop_assert_eq!(told.waited, out + told.waiting as u64);
    }
}
