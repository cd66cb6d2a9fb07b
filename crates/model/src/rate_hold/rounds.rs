//! Holding a rate round by round, in integers: what a program inside the kernel's TCP can do (ALGORITHMS E.4).
//!
//! [`RateHold`](super::RateHold) knows each packet and sends when it says. The kernel's TCP tells a congestion
//! control sums at each ACK and lets it set a pace and a window, without floating point. So this is E.4 as it is
//! written: once a round trip it is judged whether what was sent arrived, and how late. From there it differs in
//! these things, for `RateHold`'s reasons (decision 8):
//!
//! - *what arrives is compared with what is sent now*, and not with the allotment, which would make each reaction
//!   the reason of the next;
//! - *losses are counted where they are beyond chance*, and *a reaction to them is a test*: where half as many and
//!   more are lost though less is sent, they are the path's own;
//! - *a dedicated line has no floor at a tenth*, but 64 kbit/s.
//!
//! `crates/linux/bpf/hold.h` is this in C, line by line; the two are held together by running that in the kernel on
//! rounds drawn at random (`linux/tests/programs.rs`). Bytes are those of IP packets, rates bytes a second,
//! times microseconds, shares parts of a million.

const MILLION: u64 = 1_000_000;
const PACKET: u64 = 1_500;
/// E.4: once a round trip, and at least this.
const ROUND_LEAST: u64 = 100_000;
/// E.4: rounds without growth after a reaction.
const HOLD_ROUNDS: u64 = 10;
/// What was sent before a reaction has been answered for by then.
const TEST_ROUNDS: u64 = 3;
/// E.4: losses beyond the path's own that are congestion, where less arrives than was sent.
const LOSS_MARGIN: u64 = 50_000;
/// A share counts where it is beyond by three deviations of a number (of packets lost) that varies by as much as its
/// root: 200 packets a round are a usual number over a satellite, and 5 % of them are now and then 9.
const CHANCE: u64 = 9;
/// Beyond it losses are never taken for the path's own: the circuit breaker's share (E.4).
const NOMINAL_MOST: u64 = 200_000;
/// The path's own losses where nothing is said (E.4).
const NOMINAL: u32 = 20_000;
/// 64 kbit/s (decision 8).
const LEAST_RATE: u64 = 8_000;
/// Packets under way at least (E.4).
const WINDOW_LEAST: u64 = 4;
/// Packets that say something of losses (E.4: n_min).
const ENOUGH: u64 = 50;
/// E.4: five slots of a second.
const SLOT: u64 = 1_000_000;
const SLOTS: u64 = 5;
/// Beyond all lines: 8.8 Tbit/s; products stay below 2^64.
const RATE_MOST: u64 = 1 << 40;
/// Beyond all round trips.
const SPAN_MOST: u64 = 8 * MILLION;

/// What was agreed to for a group of connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Bytes a second of IP packets; 0: none.
    pub rate: u64,
    /// The line's own rate, up to which losses are made up for; up to `rate`: they are not.
    pub line: u64,
    /// Tolerated delay in the queue, µs; 0: a quarter of the least round trip, 50 to 250 ms.
    pub queue: u32,
    /// Window over rate × round trip, in hundredths; 0: 200, or 125 on a dedicated line.
    pub gain: u32,
    /// The path's own losses, parts of a million; 0: 2 %.
    pub nominal: u32,
    /// Whether the line is the operator's own.
    pub dedicated: bool,
}

/// What became of what was sent, over one round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Round {
    /// When it ended, µs.
    pub now: u64,
    /// How long it was, µs.
    pub span: u64,
    /// Bytes that arrived.
    pub delivered: u64,
    /// Bytes taken for lost.
    pub lost: u64,
    /// Of `delivered`, those that waited longer than is tolerated.
    pub late: u64,
    /// Of `delivered`, those of connections that had more to send.
    pub pressed: u64,
    /// The longest smoothed round trip among the connections, µs.
    pub rtt: u64,
}

/// What is kept between rounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rounds {
    /// The rate that `current` was derived from.
    pub agreed: u64,
    /// What all connections together may send.
    pub current: u64,
    /// What that was before the last reaction.
    pub before: u64,
    /// No growth and no other reaction before then.
    pub until: u64,
    /// When the last reaction to losses is judged; 0: none is to be.
    pub test: u64,
    /// Bytes that arrived in the last seconds.
    pub acked: u64,
    /// Bytes lost meanwhile.
    pub lost: u64,
    /// Until when those were forgotten.
    pub slot: u64,
    /// The path's own losses as far as known.
    pub nominal: u32,
    /// The share of losses that was last reacted to.
    pub losses: u32,
    /// How often less was sent.
    pub reactions: u32,
    /// How often that was taken back.
    pub undone: u32,
}

impl Agreement {
    /// What may wait in the queue, µs, given the least round trip (E.4: Q_max).
    #[must_use]
    pub fn queue(&self, base: u64) -> u64 {
        match self.queue {
            0 => (base / 4).clamp(50_000, 250_000),
            queue => u64::from(queue).min(SPAN_MOST),
        }
    }

    fn floor(&self) -> u64 {
        let least = if self.dedicated { LEAST_RATE } else { self.rate / 10 };
        least.max(LEAST_RATE.min(self.rate))
    }
}

impl Rounds {
    /// Another agreement begins at its own rate; what is known of the path's losses stays.
    pub fn agree(&mut self, agreement: &Agreement) {
        let rate = agreement.rate.min(RATE_MOST);
        let nominal = if agreement.nominal == 0 { NOMINAL } else { agreement.nominal };
        self.nominal = self.nominal.max(nominal);
        if self.agreed != rate {
            (self.agreed, self.current, self.until, self.test) = (rate, rate, 0, 0);
        }
    }

    /// A round has ended.
    pub fn judge(&mut self, agreement: &Agreement, round: &Round) {
        self.agree(agreement);
        self.count(round);
        let (delivered, lost) = (round.delivered.min(RATE_MOST), round.lost.min(RATE_MOST));
        let (sent, rtt) = (delivered + lost, round.rtt.clamp(ROUND_LEAST, SPAN_MOST));
        let arrived = delivered * MILLION / round.span.max(1);
        let share = (lost * MILLION).checked_div(sent).unwrap_or(0);
        if sent < 10 * PACKET {
            return self.grow(round.now);
        }
        if self.test != 0 && round.now >= self.test {
            self.test = 0;
            if share * 2 >= u64::from(self.losses) {
                let own = share.min(NOMINAL_MOST) as u32;
                self.nominal = self.nominal.max(own);
                self.current = self.current.max(self.before);
                self.until = 0;
                self.undone += 1;
            }
        }
        if round.now < self.until {
            return;
        }
        let queued = round.late * 2 > delivered;
        let usual = sent / PACKET * (u64::from(self.nominal) + LOSS_MARGIN) / MILLION;
        let beyond = (lost / PACKET).saturating_sub(usual);
        let lossy = beyond * beyond > CHANCE * usual
            && round.pressed * 2 > delivered
            && arrived < self.expected();
        if !queued && !lossy {
            return self.grow(round.now);
        }
        self.before = self.current;
        let kept = arrived / 100 * 85;
        self.current = kept.max(agreement.floor()).min(self.current);
        self.until = round.now + HOLD_ROUNDS * rtt;
        self.test = if queued { 0 } else { round.now + TEST_ROUNDS * rtt };
        self.losses = share as u32;
        self.reactions += 1;
    }

    /// Bytes a second for all together, with what makes up for losses where the line has it.
    #[must_use]
    pub fn rate(&self, agreement: &Agreement) -> u64 {
        let rate = if self.agreed == 0 { agreement.rate } else { self.current }.min(RATE_MOST);
        let sent = self.acked + self.lost;
        if agreement.line <= agreement.rate || sent < ENOUGH * PACKET {
            return rate;
        }
        // E.4: a_min
        let arrives = (self.acked * 1_000 / sent).max(800);
        (rate * 1_000 / arrives).min(agreement.line)
    }

    /// E.4: 0.9 of what would arrive by the path's own losses.
    fn expected(&self) -> u64 {
        let (most, arrives) = (self.current / 10 * 9, MILLION - u64::from(self.nominal));
        most / MILLION * arrives + most % MILLION * arrives / MILLION
    }

    fn grow(&mut self, now: u64) {
        if now >= self.until {
            self.current = (self.current + self.agreed / 20).min(self.agreed);
        }
    }

    /// Losses of the last seconds: a fifth is forgotten each second.
    fn count(&mut self, round: &Round) {
        match round.now.saturating_sub(self.slot) / SLOT {
            0 => {}
            slots if slots < SLOTS => {
                self.acked -= self.acked / SLOTS * slots;
                self.lost -= self.lost / SLOTS * slots;
                self.slot += slots * SLOT;
            }
            _ => (self.acked, self.lost, self.slot) = (0, 0, round.now),
        }
        self.acked += round.delivered.min(RATE_MOST);
        self.lost += round.lost.min(RATE_MOST);
    }
}

/// One connection's part of `rate`: what those with little to send (`light` bytes a second together) leave, by
/// its weight among the weights of those that have more to send.
#[must_use]
pub fn share(rate: u64, light: u64, weights: u64, weight: u64) -> u64 {
    let left = rate.saturating_sub(light).max(rate / 16);
    if weights <= weight {
        return left;
    }
    left / weights * weight + left % weights * weight / weights
}

/// Packets that may be under way: the gain times rate and round trip, and no more than the path holds with the
/// tolerated queue (E.4: the in-flight cap). `smoothed` and `base` in µs, `packet` in bytes.
#[must_use]
pub fn window(agreement: &Agreement, share: u64, smoothed: u64, base: u64, packet: u64) -> u64 {
    let gain = match (agreement.gain, agreement.dedicated) {
        (0, true) => 125,
        (0, false) => 200,
        (gain, _) => u64::from(gain),
    };
    let span = (smoothed.min(SPAN_MOST) * gain / 100)
        .min(base.min(SPAN_MOST) + agreement.queue(base))
        .min(SPAN_MOST);
    let packet = if packet == 0 { PACKET } else { packet };
    (share.min(RATE_MOST) * span / MILLION / packet).max(WINDOW_LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RTT: u64 = 600_000;
    /// 4 Mbit/s.
    const RATE: u64 = 500_000;

    fn agreement() -> Agreement {
        Agreement { rate: RATE, ..Agreement::default() }
    }

    /// What a line of `line` bytes a second with losses of its own makes of the rate that is held, round after round.
    struct Path {
        line: u64,
        /// Parts of a million.
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
            let told = Round {
                now: self.now,
                span: RTT,
                delivered,
                lost,
                late,
                pressed: delivered,
                rtt: RTT,
            };
            self.rounds.judge(&self.agreement, &told);
            delivered * MILLION / RTT
        }

        fn mean(&mut self, rounds: u64, queue: bool) -> u64 {
            (0..rounds).map(|_| self.round(queue)).sum::<u64>() / rounds
        }
    }

    #[test]
    fn the_paths_own_losses_change_nothing_for_long() {
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
    fn a_few_lost_by_chance_are_no_sign() {
        // rounds of 200 packets over a path that loses 5 % of them by chance, between 2 and 12 %
        let mut rounds = Rounds::default();
        for (nth, lost) in [10, 4, 16, 9, 25, 21, 13, 7, 20, 11].repeat(10).into_iter().enumerate()
        {
            let (sent, lost) = (200 * PACKET, lost * PACKET);
            let delivered = sent - lost;
            let now = (nth as u64 + 1) * RTT;
            let told =
                Round { now, span: RTT, delivered, lost, late: 0, pressed: delivered, rtt: RTT };
            rounds.judge(&agreement(), &told);
        }
        assert_eq!((rounds.current, rounds.reactions), (RATE, 0));
    }

    #[test]
    fn a_slower_line_is_noticed_by_its_queue_and_by_its_losses() {
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
    fn a_line_that_is_faster_again_is_used_again() {
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
            let told = Round {
                now: nth * RTT,
                span: RTT,
                delivered: 30_000,
                lost: 15_000,
                rtt: RTT,
                ..Round::default()
            };
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
        // 500 kB/s over 600 ms and a tolerated 150 ms: 375 kB
        assert_eq!(window(&agreement(), RATE, RTT, RTT, 1_500), 250);
        // a queue stands already: no more than that
        assert_eq!(window(&agreement(), RATE, 2 * RTT, RTT, 1_500), 250);
        // 20 ms: twice the path, though 50 ms of queue are tolerated
        assert_eq!(window(&agreement(), RATE, 20_000, 20_000, 1_500), 13);
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
                rounds.judge(&agreement, &Round { now, span, delivered, lost, late, pressed, rtt });
                prop_assert!(rounds.current <= rate && rounds.current >= rate.min(LEAST_RATE));
                prop_assert!(rounds.rate(&agreement) <= rate);
                prop_assert!(u64::from(rounds.nominal) <= NOMINAL_MOST);
            }
        }
    }
}
