//! By hand, and over paths that answer at once.

use super::*;
use crate::testing::*;

const RTT: u64 = 600_000;
const RATE: u64 = 500_000;

fn agreement() -> Agreement {
    Agreement { rate: RATE, ..Agreement::default() }
}

/// A round whose connections all had more to send, and none of whose packets was late.
fn busy(now: u64, delivered: u64, lost: u64) -> Round {
    Round { now, span: RTT, delivered, lost, pressed: delivered, rtt: RTT, ..Round::default() }
}

/// What a line of `line` bytes a second with losses of its own makes of the rate that is held, round after round.
struct Path {
    line: u64,
    own: u64,
    now: u64,
    rounds: Rounds,
    agreement: Agreement,
}

impl Path {
    fn new(line: u64, own: u64) -> Self {
        Self { line, own, now: 0, rounds: Rounds::default(), agreement: agreement() }
    }

    /// Returns what arrived, bytes a second; with a queue of no length, or with one that is late and lossless.
    fn round(&mut self, queue: bool) -> u64 {
        self.rounds.agree(&self.agreement);
        self.now += RTT;
        let sent = self.rounds.rate(&self.agreement) * RTT / MILLION;
        let passed = sent.min(self.line * RTT / MILLION);
        let delivered = passed - passed * self.own / MILLION;
        let lost = if queue { passed - delivered } else { sent - delivered };
        let late = if queue && sent > passed { delivered } else { 0 };
        let told = Round { late, stood: late, ..busy(self.now, delivered, lost) };
        self.rounds.judge(&self.agreement, &told);
        delivered * MILLION / RTT
    }

    fn mean(&mut self, rounds: u64, queue: bool) -> u64 {
        (0..rounds).map(|_| self.round(queue)).sum::<u64>() / rounds
    }
}

#[test]
fn path_losses_cause_no_lasting_reaction() {
    for own in [0, 10_000, 50_000, 100_000, 150_000, 200_000] {
        let mut path = Path::new(10 * RATE, own);
        path.mean(20, false);
        let kept = path.mean(100, false);
        let full = RATE - RATE * own / MILLION;
        assert!(kept >= full / 100 * 99, "{own}: {kept} of {full}, {:?}", path.rounds);
        assert!(path.rounds.reactions <= 1, "{own}: {:?}", path.rounds);
    }
}

#[test]
fn chance_losses_cause_no_reaction() {
    // rounds of 200 packets over a path that loses 5 % of them by chance, between 2 and 12 %
    let mut rounds = Rounds::default();
    for (nth, lost) in [10, 4, 16, 9, 25, 21, 13, 7, 20, 11].repeat(10).into_iter().enumerate() {
        let (sent, lost) = (200 * PACKET, lost * PACKET);
        let delivered = sent - lost;
        let now = (nth as u64 + 1) * RTT;
        rounds.judge(&agreement(), &busy(now, delivered, lost));
    }
    assert_eq!((rounds.current, rounds.reactions), (RATE, 0));
}

/// Losses in bursts of five in the mean, 9 % of all (`gilbert(2 %, 20 %)` of `ekiden link`).
#[test]
fn bursts_of_losses_are_no_sign() {
    for seed in 1..40 {
        let (mut rng, mut bad) = (Rng::new(seed), false);
        let (mut rounds, mut sum) = (Rounds::default(), 0);
        for nth in 1..200 {
            rounds.agree(&agreement());
            let sent = rounds.current * RTT / MILLION / PACKET;
            let lost = (0..sent)
                .filter(|_| {
                    bad = if bad { rng.below(100) >= 20 } else { rng.below(100) < 2 };
                    bad
                })
                .count() as u64;
            let [delivered, lost] = [sent - lost, lost].map(|packets| packets * PACKET);
            rounds.judge(&agreement(), &busy(nth * RTT, delivered, lost));
            sum += rounds.current;
        }
        assert!(sum / 199 >= RATE / 100 * 95, "{seed}: {} {rounds:?}", sum / 199);
    }
}

#[test]
fn detects_a_slower_line_by_queue_and_losses() {
    for (queue, part) in [(true, 2), (true, 5), (false, 2), (false, 5)] {
        let mut path = Path::new(RATE / part, 0);
        path.mean(40, queue);
        let (line, kept) = (path.line, path.mean(200, queue));
        assert!(kept >= line / 100 * 80, "{queue}, {part}: {kept} of {line}");
        let sent = path.rounds.current;
        assert!(sent <= line * 2, "{queue}, {part}: {sent} over {line}");
        assert!(path.rounds.undone == 0, "{queue}, {part}: {:?}", path.rounds);
    }
}

#[test]
fn uses_a_line_that_speeds_up() {
    let mut path = Path::new(RATE / 4, 0);
    path.mean(40, true);
    path.line = 2 * RATE;
    path.mean(40, true);
    assert_eq!(path.rounds.current, RATE);
}

#[test]
fn losses_are_made_up_for_where_the_line_is_faster_only() {
    let mut path = Path::new(2 * RATE, 100_000);
    path.agreement.line = RATE * 12 / 10;
    let kept = path.mean(20, false);
    assert!(kept >= RATE / 100 * 99, "{kept}");
    path.agreement.line = RATE;
    assert_eq!(path.rounds.rate(&path.agreement), RATE);
    path.own = 400_000;
    path.agreement.line = 2 * RATE;
    path.mean(20, false);
    assert!(path.rounds.rate(&path.agreement) <= RATE * 125 / 100);
}

#[test]
fn little_to_send_is_no_sign_of_anything() {
    let mut rounds = Rounds::default();
    for nth in 1..100 {
        let told = Round { pressed: 0, ..busy(nth * RTT, 30_000, 15_000) };
        rounds.judge(&agreement(), &told);
    }
    assert_eq!((rounds.current, rounds.reactions), (RATE, 0));
}

#[test]
fn shares_and_windows_by_hand() {
    assert_eq!(share(RATE, 0, 0, 1), RATE);
    assert_eq!(share(RATE, 0, 60, 1), RATE / 60);
    assert_eq!(share(RATE, 100_000, 4, 3), 300_000);
    assert_eq!(share(RATE, 2 * RATE, 1, 1), RATE / 16);
    assert_eq!((first(RATE, 0), first(RATE, 4)), (468_750, 93_750));
    // 500 kB/s over 600 ms and a tolerated 150 ms: 375 kB
    assert_eq!(window(&agreement(), RATE, RTT, RTT, 1_500), 250);
    // a queue stands already: no more than that
    assert_eq!(window(&agreement(), RATE, 2 * RTT, RTT, 1_500), 250);
    // 20 ms: twice the path, though 50 ms of queue are tolerated
    assert_eq!(window(&agreement(), RATE, 20_000, 20_000, 1_500), 14);
    assert_eq!(window(&agreement(), 1, 20_000, 20_000, 1_500), 4);
}

proptest! {
    #[test]
    fn shares_sum_to_the_rate_at_most(
        rate in 0..RATE_MOST,
        weights in prop::collection::vec(1_u64..1_000, 1..60),
    ) {
        let sum: u64 = weights.iter().sum();
        let given: u64 = weights.iter().map(|weight| share(rate, 0, sum, *weight)).sum();
        prop_assert!(given <= rate && given + weights.len() as u64 >= rate);
    }

    #[test]
    fn never_more_than_agreed_and_never_nothing(
        rate in 1..RATE_MOST,
        dedicated: bool,
        told in prop::collection::vec((0_u64..1 << 34, 0_u64..1 << 34, 0_u64..4, 0_u64..2, 1_u64..1 << 23), 1..50),
    ) {
        let agreement = Agreement { rate, dedicated, ..Agreement::default() };
        let (mut rounds, mut now) = (Rounds::default(), 0);
        for (delivered, lost, late, pressed, span) in told {
            now += span;
            let (late, pressed) = (delivered / 4 * late, delivered * pressed);
            let rtt = span;
            rounds.judge(&agreement, &Round { now, span, delivered, lost, late, stood: late, pressed, rtt });
            prop_assert!(rounds.current <= rate && rounds.current >= rate.min(LEAST_RATE));
            prop_assert!(rounds.rate(&agreement) <= rate);
            prop_assert!(u64::from(rounds.nominal) <= NOMINAL_MOST);
        }
    }
}
