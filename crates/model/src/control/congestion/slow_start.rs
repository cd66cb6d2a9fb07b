//! When slow start ends before it fills a queue: HyStart++ (RFC 9406) and Linux's HyStart.
//!
//! Both compare rounds of one RTT and take a grown delay for a filling queue. They leave slow start
//! early where the delay grows for other reasons (radio, competing traffic); HyStart++ notices when
//! the delay falls again within five rounds.

use super::{Ack, SlowStart};
use crate::units::{Span, Time};

/// RFC 9406 §4.3 MIN_RTT_THRESH; Linux has the same.
const LEAST_RISE: Span = Span::from_millis(4);
/// RFC 9406 §4.3 MAX_RTT_THRESH; Linux has the same.
const MOST_RISE: Span = Span::from_millis(16);
/// RFC 9406 §4.3 MIN_RTT_DIVISOR: the rise that counts, as a part of the RTT; Linux has the same.
const RISE_DIVISOR: u64 = 8;
/// RFC 9406 §4.3 N_RTT_SAMPLE; Linux has the same.
const ENOUGH_SAMPLES: u32 = 8;
/// RFC 9406 §4.3 CSS_GROWTH_DIVISOR.
const CONSERVATIVE_DIVISOR: f64 = 4.0;
/// RFC 9406 §4.3 CSS_ROUNDS.
const CONSERVATIVE_ROUNDS: u32 = 5;
/// Linux's hystart_low_window, in segments: below it HyStart decides nothing.
const LOW_WINDOW: f64 = 16.0;
/// Linux's hystart_ack_delta: the most between two ACKs of one train.
const TRAIN_GAP: Span = Span::from_millis(2);

/// What watches slow start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Start {
    Standard,
    HyStartPlusPlus(PlusPlus),
    HyStart(HyStart),
}

impl Start {
    pub(super) const fn new(kind: SlowStart) -> Self {
        match kind {
            SlowStart::Standard => Self::Standard,
            SlowStart::HyStartPlusPlus => Self::HyStartPlusPlus(PlusPlus::new()),
            SlowStart::HyStart => Self::HyStart(HyStart::new()),
        }
    }

    pub(super) const fn divisor(&self) -> f64 {
        match self {
            Self::HyStartPlusPlus(PlusPlus { conservative: Some(_), .. }) => CONSERVATIVE_DIVISOR,
            _ => 1.0,
        }
    }

    /// Whether slow start ends with this ACK, at a window of `size` segments.
    pub(super) fn ends(&mut self, ack: &Ack, size: f64) -> bool {
        match self {
            Self::Standard => false,
            Self::HyStart(start) => start.ends(ack, size),
            Self::HyStartPlusPlus(start) => {
                let ends = start.ends(ack);
                if ends {
                    *self = Self::Standard;
                }
                ends
            }
        }
    }

    /// RFC 9406 §4.2: only the first slow start is watched, and a loss ends it.
    pub(super) const fn on_loss(&mut self) {
        if let Self::HyStartPlusPlus(_) = self {
            *self = Self::Standard;
        }
    }

    /// After a time-out Linux's HyStart learns the path anew.
    pub(super) const fn on_timeout(&mut self) {
        *self = match self {
            Self::HyStart(_) => Self::HyStart(HyStart::new()),
            _ => Self::Standard,
        };
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Round {
    /// The first byte that belongs to the next round; none before the first ACK.
    end: Option<u64>,
    least: Span,
    samples: u32,
}

impl Round {
    const fn new() -> Self {
        Self { end: None, least: Span::MAX, samples: 0 }
    }

    /// Whether this ACK begins a round, which then is the current one.
    fn begins(&mut self, ack: &Ack) -> bool {
        let begins = self.end.is_none_or(|end| ack.una > end);
        if begins {
            *self = Self { end: Some(ack.next), ..Self::new() };
        }
        begins
    }

    fn sample(&mut self, rtt: Option<Span>) {
        if let Some(rtt) = rtt {
            self.least = self.least.min(rtt);
            self.samples = self.samples.saturating_add(1);
        }
    }

    const fn knows(&self) -> bool {
        self.samples >= ENOUGH_SAMPLES
    }
}

/// The RTT from which on a queue is said to fill, where `base` was the RTT without one.
fn risen(base: Span) -> Span {
    let part = Span::from_nanos(base.as_nanos() / RISE_DIVISOR);
    base + part.clamp(LEAST_RISE, MOST_RISE)
}

/// HyStart++, RFC 9406 §4.2.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PlusPlus {
    round: Round,
    /// The least RTT of the round before; [`Span::MAX`] where there was none.
    before: Span,
    conservative: Option<Conservative>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Conservative {
    /// The RTT that made slow start end; below it the rise was a mistake.
    baseline: Span,
    /// Rounds that are over, the one it began in counted whole.
    rounds: u32,
}

impl PlusPlus {
    const fn new() -> Self {
        Self { round: Round::new(), before: Span::MAX, conservative: None }
    }

    fn ends(&mut self, ack: &Ack) -> bool {
        let least = self.round.least;
        if self.round.begins(ack) {
            self.before = least;
            if let Some(conservative) = &mut self.conservative {
                conservative.rounds += 1;
                if conservative.rounds >= CONSERVATIVE_ROUNDS {
                    return true;
                }
            }
        }
        self.round.sample(ack.rtt);
        if self.round.knows() {
            let rtt = self.round.least;
            self.conservative = match self.conservative {
                Some(conservative) if rtt >= conservative.baseline => Some(conservative),
                // spurious: slow start goes on
                Some(_) => None,
                None if self.before < Span::MAX && rtt >= risen(self.before) => {
                    Some(Conservative { baseline: rtt, rounds: 0 })
                }
                None => None,
            };
        }
        false
    }
}

/// HyStart as Linux has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct HyStart {
    round: Round,
    began: Time,
    /// The last ACK of the train that began with the round.
    train: Time,
    /// The least RTT since the beginning; [`Span::MAX`] before the first sample.
    least: Span,
}

impl HyStart {
    const fn new() -> Self {
        Self { round: Round::new(), began: Time::ZERO, train: Time::ZERO, least: Span::MAX }
    }

    fn ends(&mut self, ack: &Ack, size: f64) -> bool {
        if let Some(rtt) = ack.rtt {
            self.least = self.least.min(rtt);
        }
        if self.round.begins(ack) {
            self.began = ack.now;
            self.train = ack.now;
        }
        if size < LOW_WINDOW || self.least == Span::MAX {
            return false;
        }
        // the first samples say how long the RTT is, later ones are compared
        let knew = self.round.knows();
        self.round.sample(ack.rtt);
        if knew && self.round.least > risen(self.least) {
            return true;
        }
        if ack.now.since(self.train) > TRAIN_GAP {
            return false;
        }
        self.train = ack.now;
        // one way takes about half the RTT, so that a longer train fills the path
        ack.now.since(self.began) > Span::from_nanos(self.least.as_nanos() / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Drives rounds of as many ACKs as the window holds, one segment each, one byte a segment.
    struct Path {
        start: Start,
        now: Time,
        una: u64,
        window: u64,
    }

    impl Path {
        fn new(kind: SlowStart, window: u64) -> Self {
            Self { start: Start::new(kind), now: Time::ZERO, una: 0, window }
        }

        /// A round with ACKs `gap` apart at this RTT; returns after how many ACKs slow start ended.
        fn round(&mut self, rtt_ms: u64, gap: Span) -> Option<u64> {
            self.now += Span::from_millis(rtt_ms);
            let next = self.una + self.window;
            (1..=self.window).find(|n| {
                self.now += gap;
                self.una += 1;
                let ack = Ack {
                    now: self.now,
                    acked: 1.0,
                    in_flight: self.window as f64,
                    rtt: Some(Span::from_millis(rtt_ms)),
                    smoothed: Span::from_millis(rtt_ms),
                    limited: true,
                    una: self.una,
                    // each ACK before this one permitted a segment
                    next: next + (n - 1),
                    recovering: false,
                };
                self.start.ends(&ack, self.window as f64)
            })
        }
    }

    const APART: Span = Span::from_millis(3);

    #[test]
    fn rise_is_an_eighth_within_4_and_16_ms() {
        for (base, expected) in [(8, 12), (32, 36), (80, 90), (128, 144), (600, 616)] {
            assert_eq!(risen(Span::from_millis(base)), Span::from_millis(expected), "{base} ms");
        }
    }

    #[test]
    fn lasting_delay_ends_slow_start_after_five_rounds() {
        let mut path = Path::new(SlowStart::HyStartPlusPlus, 20);
        assert_eq!(path.round(100, APART), None);
        assert_eq!((path.round(112, APART), path.start.divisor()), (None, 1.0), "12.5 ms count");
        assert_eq!((path.round(126, APART), path.start.divisor()), (None, 4.0));
        // the round it began in is the first of five
        for _ in 0..4 {
            assert_eq!((path.round(126, APART), path.start.divisor()), (None, 4.0));
        }
        assert_eq!(path.round(126, APART), Some(1));
        assert_eq!(path.start, Start::Standard, "the first slow start alone");
    }

    #[test]
    fn falling_delay_resumes_slow_start() {
        let mut path = Path::new(SlowStart::HyStartPlusPlus, 20);
        assert_eq!(path.round(100, APART), None);
        assert_eq!((path.round(113, APART), path.start.divisor()), (None, 4.0));
        assert_eq!((path.round(112, APART), path.start.divisor()), (None, 1.0));
        // and the next rise is seen again
        assert_eq!((path.round(130, APART), path.start.divisor()), (None, 4.0));
    }

    #[test]
    fn rise_is_relative_to_the_previous_round() {
        let mut path = Path::new(SlowStart::HyStartPlusPlus, 20);
        for rtt_ms in [100, 112, 125, 140] {
            assert_eq!((path.round(rtt_ms, APART), path.start.divisor()), (None, 1.0), "{rtt_ms}");
        }
    }

    #[test]
    fn seven_samples_do_not_decide() {
        let mut path = Path::new(SlowStart::HyStartPlusPlus, 7);
        assert_eq!(path.round(100, APART), None);
        assert_eq!((path.round(200, APART), path.start.divisor()), (None, 1.0));
    }

    #[test]
    fn only_hystart_plus_plus_stops_after_a_loss() {
        let mut start = Start::new(SlowStart::HyStartPlusPlus);
        start.on_loss();
        assert_eq!(start, Start::Standard);
        let mut path = Path::new(SlowStart::HyStart, 20);
        path.round(100, APART);
        let before = path.start;
        path.start.on_loss();
        assert_eq!(path.start, before);
        path.start.on_timeout();
        assert_eq!(path.start, Start::new(SlowStart::HyStart));
    }

    #[test]
    fn hystart_ends_at_the_first_sample_after_eight_that_have_risen() {
        let mut path = Path::new(SlowStart::HyStart, 20);
        assert_eq!(path.round(100, APART), None);
        assert_eq!(path.round(112, APART), None, "12 ms are less than an eighth");
        assert_eq!(path.round(113, APART), Some(9));
        let mut small = Path::new(SlowStart::HyStart, 15);
        assert_eq!(small.round(100, APART), None);
        assert_eq!(small.round(200, APART), None, "below the low window");
    }

    #[test]
    fn hystart_ends_when_a_train_of_acks_lasts_half_the_rtt() {
        let close = Span::from_millis(2);
        let mut path = Path::new(SlowStart::HyStart, 40);
        // 25 gaps of 2 ms are 50 ms, the next is more
        assert_eq!(path.round(100, close), Some(27));
        let mut torn = Path::new(SlowStart::HyStart, 40);
        assert_eq!(torn.round(100, Span::from_micros(2_001)), None);
    }
}
