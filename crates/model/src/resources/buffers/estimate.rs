//! Estimates from one connection's counters: loss, round-trip time, rates.

use crate::control::formula::Path;
use crate::units::{Span, Time};

/// One look at a connection: `TCP_INFO` and queues, or the simulator's. Counters grow from its
/// start; one that fell (32 bits wrapped) is taken up anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionFacts {
    /// Smoothed round-trip time (`tcpi_rtt`); zero before there is one.
    pub rtt: Span,
    /// Retransmission time-out (`tcpi_rto`); zero before there is one.
    pub rto: Span,
    /// How often it was doubled (`tcpi_backoff`); taken out, because the equation counts doublings
    /// itself.
    pub backoff: u32,
    /// Payload bytes of a full segment (`tcpi_snd_mss`).
    pub mss: u64,
    /// The peer's window in bytes (`tcpi_snd_wnd`, Linux 5.4); `None` where unknown.
    pub send_window: Option<u64>,
    /// Segments with data sent, retransmitted ones included (`tcpi_data_segs_out`).
    pub segments_sent: u64,
    /// Segments retransmitted (`tcpi_total_retrans`).
    pub retransmitted: u64,
    /// Of those, as many as the peer had already (`tcpi_dsack_dups`): late, not lost.
    pub spurious: u64,
    /// Time with data outstanding (`tcpi_busy_time`).
    pub busy: Span,
    /// Of that, stopped by a full send buffer (`tcpi_sndbuf_limited`); `None` where unknown.
    pub buffer_limited: Option<Span>,
    /// Bytes received in order (`tcpi_bytes_received`).
    pub bytes_received: u64,
    /// Bytes in the send buffer, acknowledged ones excluded (`SIOCOUTQ`).
    pub queued: u64,
    /// Bytes received and not yet read (`SIOCINQ`).
    pub unread: u64,
    /// Whether this program leaves bytes unread on purpose, its own sink being full.
    pub held_back: bool,
}

/// The loss probability until [`ENOUGH`] segments were sent (algorithms/buffers A.3).
pub const PRIOR: f64 = 1e-3;
/// Fewest segments for a loss estimate (algorithms/buffers A.3).
pub const ENOUGH: u64 = 50;
/// The lowest loss probability, so that λ stays finite (algorithms/buffers A.3).
pub const LEAST: f64 = 1e-5;
/// The weight of a new period (algorithms/buffers A.3).
const WEIGHT: f64 = 1.0 / 8.0;
/// Segments per ACK: delayed ACKs are assumed (algorithms/buffers A.3).
const SEGMENTS_PER_ACK: f64 = 2.0;
/// A sender's margin above the received rate (algorithms/buffers A.5 (i)).
const MORE_THAN_SEEN: f64 = 1.25;
/// The time-out before one is known: RFC 6298 §2.
const FIRST_TIMEOUT: Span = Span::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Period {
    sent: u64,
    losses: u64,
    received: u64,
    /// Of looks between which bytes came.
    receiving: Span,
    busy: Span,
    buffer_limited: Option<Span>,
    window: Option<u64>,
}

/// Takes looks, and returns the inputs of the equation.
///
/// **Loss.** Retransmissions count as at most one loss event per round trip between two looks;
/// looks further apart resolve bursts less sharply. Events and segments of each active period are
/// averaged with weight 1/8 and divided. Without a loss in n segments it is 1/(n + 1), at most the
/// prior: fifty clean segments are no reason to believe in 2 %.
///
/// **Receiving.** A receiver does not see losses; λ is 5/4 of the rate at which data arrived in the
/// last active period.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Estimator {
    last: ConnectionFacts,
    looked: Time,
    period: Period,
    /// Loss events up to here belong to the last one.
    burst_until: Time,
    sent: u64,
    lost: bool,
    /// Events and segments of a period, averaged.
    averages: Option<(f64, f64)>,
    window: Option<u64>,
    receive_rate: Option<f64>,
    busy: Span,
    buffer_limited: Option<Span>,
}

impl Estimator {
    /// A connection just opened, with counters at zero.
    pub fn new(now: Time) -> Self {
        Self { looked: now, ..Self::default() }
    }

    /// A look. Each 100 ms while busy is a good rhythm; any other works.
    pub fn on_facts(&mut self, now: Time, facts: &ConnectionFacts) {
        // a counter that fell says nothing this time
        let grown =
            |new: Span, old: Span| Span::from_nanos(new.as_nanos().saturating_sub(old.as_nanos()));
        let sent = facts.segments_sent.saturating_sub(self.last.segments_sent);
        let spurious = facts.spurious.saturating_sub(self.last.spurious);
        let lost =
            facts.retransmitted.saturating_sub(self.last.retransmitted).saturating_sub(spurious);
        self.period.sent += sent;
        self.sent += sent;
        // more events than segments there cannot be
        let room = self.period.sent - self.period.losses;
        self.period.losses += self.events(now, lost, facts.rtt).min(room);
        let received = facts.bytes_received.saturating_sub(self.last.bytes_received);
        if received > 0 {
            self.period.received += received;
            self.period.receiving += now.since(self.looked);
        }
        self.period.busy += grown(facts.busy, self.last.busy);
        if let Some(limited) = facts.buffer_limited {
            let before = self.last.buffer_limited.unwrap_or(Span::ZERO);
            let sum = self.period.buffer_limited.unwrap_or(Span::ZERO);
            self.period.buffer_limited = Some(sum + grown(limited, before));
        }
        // the widest of a period: a reader that paused for a moment does not lower the rate
        self.period.window = self.period.window.max(facts.send_window);
        self.last = *facts;
        self.looked = now;
    }

    /// Data moves again after an idle time, which counts for nothing.
    pub fn on_active(&mut self, now: Time) {
        self.looked = self.looked.max(now);
    }

    /// A period ends: its sums become part of the averages.
    pub fn on_period(&mut self) {
        let period = self.period;
        let numbers = (period.losses as f64, period.sent as f64);
        match &mut self.averages {
            Some((losses, sent)) if period.sent > 0 => {
                *losses += WEIGHT * (numbers.0 - *losses);
                *sent += WEIGHT * (numbers.1 - *sent);
            }
            None if period.sent >= ENOUGH => self.averages = Some(numbers),
            None => {
                // too little so far: the next period adds to it
                self.period =
                    Period { sent: period.sent, losses: period.losses, ..Period::default() };
            }
            Some(_) => {}
        }
        self.lost |= period.losses > 0;
        if self.averages.is_some() {
            self.period = Period::default();
        }
        if period.receiving > Span::ZERO {
            let seconds = period.receiving.as_secs_f64();
            self.receive_rate = Some(period.received as f64 / seconds * MORE_THAN_SEEN);
        }
        self.window = period.window.or(self.window);
        (self.busy, self.buffer_limited) = (period.busy, period.buffer_limited);
    }

    /// The probability of a loss event per segment, [`LEAST`] … 1.
    pub fn loss(&self) -> f64 {
        let Some((losses, sent)) = self.averages else { return PRIOR };
        let none = 1.0 / (self.sent as f64 + 1.0);
        let p = if self.lost { none.max(losses / sent) } else { none.min(PRIOR) };
        p.clamp(LEAST, 1.0)
    }

    /// The path as its sender; `None` before there is a round-trip time.
    pub fn path(&self) -> Option<Path> {
        let rtt = self.rtt()?;
        let rto = self.last.rto.as_nanos() >> self.last.backoff.min(63);
        let timeout = if rto > 0 { Span::from_nanos(rto) } else { FIRST_TIMEOUT };
        let window = self.window.or(self.last.send_window);
        let segments = |bytes: u64| bytes as f64 / self.last.mss.max(1) as f64;
        Some(Path {
            rtt,
            timeout,
            loss: self.loss(),
            segments_per_ack: SEGMENTS_PER_ACK,
            window: window.map_or(f64::INFINITY, segments),
        })
    }

    /// The smoothed round-trip time; `None` before there is one.
    pub fn rtt(&self) -> Option<Span> {
        (self.last.rtt > Span::ZERO).then_some(self.last.rtt)
    }

    /// Payload bytes of a full segment; `None` before a look told it.
    pub fn mss(&self) -> Option<u64> {
        (self.last.mss > 0).then_some(self.last.mss)
    }

    /// λ of the sender at the other end, in bytes per second; `None` before a period brought anything.
    pub const fn receive_rate(&self) -> Option<f64> {
        self.receive_rate
    }

    /// Of the last period: how long data was outstanding, and how much of that the send buffer was full.
    pub const fn busy(&self) -> (Span, Option<Span>) {
        (self.busy, self.buffer_limited)
    }

    /// How many loss events `lost` retransmissions since the last look are.
    fn events(&mut self, now: Time, lost: u64, rtt: Span) -> u64 {
        if lost == 0 || now < self.burst_until {
            return 0;
        }
        let round_trip = rtt.max(Span::from_nanos(1));
        let since = now.since(self.looked.max(self.burst_until));
        self.burst_until = now + round_trip;
        lost.min(1 + since.as_nanos() / round_trip.as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    const RTT: Span = Span::from_millis(100);

    fn facts(sent: u64, retransmitted: u64) -> ConnectionFacts {
        let rto = Span::from_millis(300);
        ConnectionFacts {
            rtt: RTT,
            rto,
            mss: 1_460,
            segments_sent: sent,
            retransmitted,
            ..ConnectionFacts::default()
        }
    }

    /// An estimator after periods of a second, each with a look at its end.
    fn after(periods: impl IntoIterator<Item = (u64, u64)>) -> Estimator {
        let mut estimator = Estimator::new(Time::ZERO);
        let (mut now, mut sums) = (0, (0, 0));
        for (sent, retransmitted) in periods {
            now += 1_000;
            sums = (sums.0 + sent, sums.1 + retransmitted);
            estimator.on_facts(at(now), &facts(sums.0, sums.1));
            estimator.on_period();
        }
        estimator
    }

    #[test]
    fn uses_the_prior_until_enough_was_sent() {
        assert_eq!(after([]).loss(), PRIOR);
        assert_eq!(after([(49, 3)]).loss(), PRIOR);
        assert_eq!(after([(30, 0), (20, 2)]).loss(), 2.0 / 50.0, "small periods add up");
        assert_eq!(after([]).path(), None);
    }

    #[test]
    fn nothing_lost_in_n_segments_is_one_in_n_and_one() {
        assert_eq!(after([(50, 0)]).loss(), PRIOR, "not above the prior");
        assert_eq!(after([(4_999, 0)]).loss(), 1.0 / 5_000.0);
        assert_eq!(after([(3_000, 0), (1_999, 0)]).loss(), 1.0 / 5_000.0);
        assert_eq!(after([(10_000_000, 0)]).loss(), LEAST);
    }

    #[test]
    fn periods_weigh_an_eighth() {
        assert_eq!(after([(1_000, 8)]).loss(), 0.008);
        // events 8 − 8/8 = 7 of 1,000 segments
        assert_eq!(after([(1_000, 8), (1_000, 0)]).loss(), 0.007);
        // a period without sending is no evidence
        assert_eq!(after([(1_000, 8), (0, 0), (0, 0)]).loss(), 0.008);
        // a lost one of five is no 20 %: (8 − 7/8) of (1,000 − 995/8)
        assert_eq!(after([(1_000, 8), (5, 1)]).loss(), 7.125 / 875.625);
        let long_ago = after([(1_000, 8)].into_iter().chain([(1_000, 0); 200]));
        assert_eq!(long_ago.loss(), LEAST.max(1.0 / 201_001.0));
    }

    #[test]
    fn a_burst_within_a_round_trip_counts_once() {
        let mut estimator = Estimator::new(Time::ZERO);
        // looks each 30 ms; a burst of nine from 30 to 90 ms, one more loss at 150 ms
        for (ms, lost) in [(30, 3), (60, 7), (90, 9), (120, 9), (150, 10), (180, 10)] {
            estimator.on_facts(at(ms), &facts(100 * ms, lost));
        }
        estimator.on_period();
        assert_eq!(estimator.loss(), 2.0 / 18_000.0);
        // seen once a second, ten of a 100 ms path may be ten events, twenty are eleven
        assert_eq!(after([(1_000, 10)]).loss(), 0.01);
        assert_eq!(after([(1_000, 20)]).loss(), 0.011);
    }

    #[test]
    fn late_packets_do_not_count_as_lost() {
        let mut estimator = Estimator::new(Time::ZERO);
        estimator.on_facts(at(1_000), &ConnectionFacts { spurious: 3, ..facts(1_000, 5) });
        estimator.on_period();
        assert_eq!(estimator.loss(), 0.002);
    }

    #[test]
    fn path_follows_the_kernel() {
        let mut estimator = Estimator::new(Time::ZERO);
        let window = |window| ConnectionFacts { send_window: Some(window), ..facts(10, 0) };
        estimator.on_facts(at(100), &window(14_600));
        let facts = ConnectionFacts { backoff: 2, rto: Span::from_millis(1_200), ..window(0) };
        estimator.on_facts(at(200), &facts);
        estimator.on_period();
        let path = estimator.path().unwrap();
        assert_eq!((path.rtt, path.timeout), (RTT, Span::from_millis(300)), "doubled twice since");
        assert_eq!((path.window, path.segments_per_ack), (10.0, 2.0), "the widest of the period");
    }

    #[test]
    fn receive_rate_ignores_silence() {
        let mut estimator = Estimator::new(Time::ZERO);
        let mut look = |ms, bytes_received| {
            estimator.on_facts(at(ms), &ConnectionFacts { bytes_received, ..facts(0, 0) });
        };
        // 300,000 bytes in 300 ms, then silence
        [(100, 100_000), (200, 200_000), (300, 300_000), (400, 300_000), (1_000, 300_000)]
            .into_iter()
            .for_each(|(ms, bytes)| look(ms, bytes));
        estimator.on_period();
        assert_eq!(estimator.receive_rate(), Some(1_250_000.0));
        estimator.on_period();
        assert_eq!(estimator.receive_rate(), Some(1_250_000.0), "of the last active period");
        estimator.on_active(at(60_000));
        estimator.on_facts(at(60_100), &ConnectionFacts { bytes_received: 350_000, ..facts(0, 0) });
        estimator.on_period();
        assert_eq!(estimator.receive_rate(), Some(625_000.0), "a minute's silence not counted");
    }

    proptest! {
        #[test]
        fn estimates_stay_in_range_for_any_input(
            looks in proptest::collection::vec((0_u64..3_000, any::<[u32; 4]>(), any::<bool>()), 0..50),
        ) {
            let mut estimator = Estimator::new(Time::ZERO);
            let mut now = 0;
            for (ms, [sent, lost, spurious, bytes], end) in looks {
                now += ms;
                let told = ConnectionFacts {
                    spurious: u64::from(spurious),
                    bytes_received: u64::from(bytes),
                    ..facts(u64::from(sent), u64::from(lost))
                };
                estimator.on_facts(at(now), &told);
                if end {
                    estimator.on_period();
                }
                prop_assert!((LEAST..=1.0).contains(&estimator.loss()));
                prop_assert!(estimator.receive_rate().is_none_or(|r| r.is_finite() && r >= 0.0));
            }
        }

        #[test]
        fn estimates_the_mean_of_random_losses(seed: u64, one_in in 20_u64..500) {
            let mut rng = Rng::new(seed);
            let mut draw = || (0..2_000).filter(|_| rng.below(one_in) == 0).count() as u64;
            // each loss in a round trip of its own: looks as often as segments are sent would say so
            let mut estimator = Estimator::new(Time::ZERO);
            let (mut sent, mut lost, mut sum, mut said) = (0, 0, 0.0, 0.0);
            for period in 1..=80_u64 {
                sent += 2_000;
                lost += draw();
                let told = ConnectionFacts { rtt: Span::from_nanos(1), ..facts(sent, lost) };
                estimator.on_facts(at(period * 1_000), &told);
                estimator.on_period();
                if period > 16 {
                    sum += estimator.loss();
                    said += 1.0;
                }
            }
            let expected = lost as f64 / sent as f64;
            prop_assert!((sum / said / expected - 1.0).abs() < 0.35, "{} for {expected}", sum / said);
        }
    }
}
